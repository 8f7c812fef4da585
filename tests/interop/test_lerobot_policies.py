"""LeRobot's own policies through the channel: the chunk is the one that LeRobot gives when it is called directly.

Random weights; a SmolVLM of 200 thousand parameters that is built offline. The environment comes from
`temporeal pretrained install`; another one is named by TEMPOREAL_PRETRAINED_PYTHON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.policies.pretrained.folders import write_tensors

from temporeal.policies.pretrained import environment
from temporeal.policies.pretrained.client import ROOT, START, Request, Server, Where
from temporeal.policies.pretrained.serving.channel import ChannelError
from temporeal.policies.pretrained.serving.interface import Field, Interface
from temporeal.policies.pretrained.serving.tensor_files import header, tensors

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
PYTHON = "TEMPOREAL_PRETRAINED_PYTHON"
SET = "someone/pushes"
ROWS = {"smolvla": 10, "act": 6, "diffusion": 8}
SENTENCES = ["push the red cube", "open the drawer"]
INPUTS = (Field("observation.state", (9,), unit="rad"), Field("observation.images.front", (64, 64, 3), "uint8"))
Made = Callable[[str], Path]


def where() -> Where:
    """The environment with LeRobot; a skip that says how it comes."""
    if python := os.environ.get(PYTHON):
        return Where(python)
    if not environment.installed("lerobot"):
        pytest.skip(f"needs the environment of pretrained models: {environment.how('lerobot')}")
    return Where(overlay=environment.overlay("lerobot"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """``made("act")``: the folder of a policy, and what LeRobot answers, made the first time (10 s)."""
    place, folder = where(), tmp_path_factory.mktemp("policies")

    @cache
    def make(kind: str) -> Path:
        command = [place.python, "-I", str(HERE / "tiny_policies.py"), str(place.overlay or "-"), kind,
                   str(folder / kind)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return folder / kind

    return make


def interface(kind: str, inputs: tuple[Field, ...] = INPUTS) -> Interface:
    return Interface(inputs, Field("action", (8,)), 20.0, kind == "smolvla")


def served(folder: Path, kind: str, **changes: object) -> Server:
    request = replace(Request(str(folder), SET, history="repeat"), **changes)
    return Server.start(request, interface(kind), where())


@pytest.mark.parametrize("kind", ROWS)
def test_the_chunk_is_lerobots_own(made: Made, kind: str) -> None:
    root = made(kind)
    with np.load(root / "expected.npz") as found:
        expected = dict(found)
    action = expected.pop("action")
    sentences = SENTENCES if kind == "smolvla" else None
    with served(root / "policy", kind) as server:
        chunk = server.ask(expected, sentences, seed=11)
        assert (server.rows, server.facts["kind"], server.facts["statistics"]) == (ROWS[kind], kind, "train_config")
        np.testing.assert_array_equal(chunk, action)
        if kind == "smolvla":  # the words are read, the noise is the seed's
            assert np.abs(server.ask(expected, SENTENCES[::-1], seed=11) - chunk).max() > 1e-4
        if kind != "act":
            assert np.abs(server.ask(expected, sentences, seed=12) - chunk).max() > 1e-3
        np.testing.assert_array_equal(server.ask(expected, sentences, seed=11), chunk)


def test_lerobot_itself_skips_statistics_of_another_name(made: Made, tmp_path: Path) -> None:
    """Keys with the dataset's name: LeRobot would normalize nothing; here they are found, and the chunk is the same."""
    folder = copied(made("smolvla") / "policy", tmp_path)
    for name in ("policy_preprocessor_step_5_normalizer_processor",
                 "policy_postprocessor_step_0_unnormalizer_processor"):
        file = folder / f"{name}.safetensors"
        write_tensors(file, {f"so100.buffer.{key}": value for key, value in tensors(file).items()})
    (folder / "train_config.json").unlink()
    with np.load(made("smolvla") / "expected.npz") as found:
        expected = dict(found)
    with served(folder, "smolvla", dataset="so100") as server:
        assert server.facts["statistics"] == "key"
        np.testing.assert_array_equal(server.ask({f.name: expected[f.name] for f in INPUTS}, SENTENCES, seed=11),
                                      expected["action"])


def copied(policy: Path, target: Path) -> Path:
    return Path(shutil.copytree(policy, target / "policy"))


def refused(folder: Path, kind: str, asked: Interface | None = None, **changes: object) -> str:
    request = replace(Request(str(folder), SET, history="repeat"), **changes)
    with pytest.raises(ChannelError) as found:
        Server.start(request, asked or interface(kind), where())
    return str(found.value)


def test_what_lerobot_would_take_silently_is_refused(made: Made, tmp_path: Path) -> None:
    """Steps of another pipeline; a missing camera, by the process itself, too."""
    policy = copied(made("diffusion") / "policy", tmp_path)
    assert "which the mapping does not give" in refused(policy, "diffusion", interface("diffusion", INPUTS[:1]))
    steps = json.loads((policy / "policy_preprocessor.json").read_text())
    (policy / "policy_preprocessor.json").write_text(json.dumps({**steps, "steps": steps["steps"][::-1]}))
    assert "prepared otherwise" in refused(policy, "diffusion")


def test_weights_fit_exactly(made: Made, tmp_path: Path) -> None:
    policy = copied(made("act") / "policy", tmp_path)
    config = json.loads((policy / "config.json").read_text())
    (policy / "config.json").write_text(json.dumps({**config, "n_action_steps": 60}))
    assert "chunk size is the upper bound" in refused(policy, "act")
    (policy / "config.json").write_text(json.dumps({**config, "dim_feedforward": 48}))
    assert "another architecture" in refused(policy, "act")
    (policy / "config.json").write_text(json.dumps({**config, "n_encoder_layers": 2}))
    assert "are missing" in refused(policy, "act")
    assert len(header(policy / "model.safetensors")) > 50


def test_the_environment_sees_nothing_of_ours() -> None:
    """temporeal is a stand-in there, and needs neither torch nor a simulator to begin."""
    code = (f"import runpy, sys\n"
            f"try: runpy.run_path({str(START)!r})['begin']({str(ROOT)!r}, '-', 'server')\n"
            f"except IndexError: print(hasattr(sys.modules['temporeal'], '__file__'), "
            f"[name for name in ('torch', 'mujoco', 'hydra') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False []"
