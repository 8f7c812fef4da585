"""Pretrained models on our tasks: judged as any chunk policy, and refused in words. No model is loaded."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from tests.policies.pretrained.folders import model

from temporeal.policies.cli.main import main
from temporeal.policies.pretrained.client import Request, Server, Where
from temporeal.policies.pretrained.mapping import read_mapping
from temporeal.policies.pretrained.serving import channel
from temporeal.policies.pretrained.serving.channel import ChannelError, Deadline
from temporeal.policies.pretrained.serving.interface import Interface
from temporeal.policies.pretrained.serving.server import agreed, chunk
from temporeal.policies.runs import environments
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on, write_report
from temporeal.policies.runs.pretrained.serving import Served, opened, robot_of
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.trained import Trained
from temporeal.robots.signals import schema
from temporeal.robots.spec import load_robot
from temporeal.sim.adapters.vocabularies import vocabulary_of
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION

JOINTS = list(range(7))
FEATURES = {"type": "act", "chunk_size": 4, "input_features": {"observation.state": {"type": "STATE", "shape": [7]}},
            "output_features": {"action": {"type": "ACTION", "shape": [7]}},
            "normalization_mapping": {"STATE": "MEAN_STD", "ACTION": "MEAN_STD"}}
MAP = {"dataset": "someone/pushes", "robot": "franka", "command": "joint_pos_cmd", "rate_hz": 25, "execute": 3,
       "inputs": {"observation.state": [{"signal": "joint_pos", "unit": "rad"}]},
       "action": {"size": 7, "parts": [{"kind": "delta", "action": JOINTS, "command": JOINTS, "unit": "rad",
                                        "base": "joint_pos", "relative_to": "start"}]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model(tmp_path / "model", FEATURES,
                 {"observation.state.mean": np.zeros(7), "observation.state.std": np.ones(7)},
                 {"action.mean": np.zeros(7), "action.std": np.ones(7)})


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    (tmp_path / "map.yaml").write_text(yaml.safe_dump(MAP))
    return tmp_path / "map.yaml"


class Still:
    """A model that stays where it is, and notes what it saw."""

    facts: dict[str, Any] = {"kind": "act"}

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def check(self, interface: Interface) -> int:
        return 4

    def infer(self, inputs: dict[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
        self.asked.append(inputs["observation.state"].shape)
        return np.zeros((len(inputs["observation.state"]), 4, 7), np.float32)


def in_a_thread(still: Still) -> Any:
    """``Server.start`` without a process."""
    def start(request: Request, interface: Interface, where: Where) -> Server:
        ours, theirs = socket.socketpair()

        def work() -> None:
            try:
                known, rows = agreed(still, theirs)
                while True:
                    asked = channel.receive(theirs, Deadline(20.0, "the client"))
                    channel.send(theirs, chunk(still, known, rows, asked), Deadline(20.0, "the client"))
            except ChannelError:
                theirs.close()

        threading.Thread(target=work, daemon=True).start()
        return Server(None, ours, interface, where)

    return start


def test_a_model_is_judged_as_a_chunk_policy(folder, mapping, monkeypatch):
    """Every third step is an inference, of so many worlds at once; the arm that stays is not where it should be."""
    monkeypatch.setattr("temporeal.policies.pretrained.inference.AT_ONCE", 2)
    still = Still()
    monkeypatch.setattr(Server, "start", staticmethod(in_a_thread(still)))
    served = Served(folder, mapping, python="python")
    settings = {**compose(["task=reach", "compiled=false"]), "algo": served.settings()}
    judged = evaluate_on(Trained(folder, settings, served=served), settings, "mujoco", EvaluationConfig(3))
    steps = judged.rollout.signals["joint_pos"].shape[0] - 1
    assert still.asked == [(2, 7), (1, 7)] * -(-steps // 3)
    moved = judged.rollout.signals["joint_pos"] - judged.rollout.signals["joint_pos"][:1]
    assert np.abs(moved).max() < 0.05 and judged.evaluation.satisfied.successes == 0
    kept = json.loads(write_report(settings, {"mujoco": judged}, folder.parent / "eval").json.read_text())["policy"]
    assert kept["mapping"] == read_mapping(mapping).digest() and len(kept["files"]) == 64 and kept["kind"] == "act"


def test_a_mapping_is_for_the_tasks_rate(folder, tmp_path):
    (tmp_path / "map.yaml").write_text(yaml.safe_dump({**MAP, "rate_hz": 20}))
    task = environments.make_task(compose(["task=reach"]))
    with pytest.raises(BadInput, match="runs at 20 Hz"), opened(Served(folder, tmp_path / "map.yaml"), task, {}):
        pass


def test_a_sentence_is_in_the_words_of_its_task():
    """The same numbers are other words in Meta-World."""
    for name in ("tabletop", "metaworld"):
        words = vocabulary_of(name)
        tokens = words.encode(" ".join(words.words[:3])).astype(np.float32)
        task = SimpleNamespace(name=name, robot=load_robot("franka"), command="arm_cmd", schema=schema(INSTRUCTION))
        decode = robot_of(task, {}).decode
        assert decode is not None and decode(tokens) == " ".join(words.words[:3])


def test_check_says_what_results_keep(folder, mapping, capsys):
    assert main(["pretrained", "check", str(folder), "--map", str(mapping), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["statistics"], found["execute"]) == ("act", "stated", 3)
    assert main(["pretrained", "check", str(folder), "--map", str(mapping)]) == 0
    assert "only the mapping says so" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "says"), [
    (["eval", "{model}", "task=reach"], "--map FILE says which signals it reads"),
    (["eval", "{model}", "--map", "{map}", "algo.execute=2"], "says how its chunks are played"),
    (["eval", "{model}", "--map", "{map}", "--trust", "key.pem"], "nobody signs a pretrained model"),
    (["eval", "{model}", "--map", "{map}", "task=reach"], "temporeal pretrained install lerobot"),
    (["eval", "{model}", "--map", "{map}", "--python", "python", "--answer-s", "0"], "--answer-s is above 0"),
    (["pretrained", "check", "nowhere", "--map", "{map}"], "nothing is downloaded"),
    (["pretrained", "install", "moon"], "no environment 'moon'; known: lerobot, libero"),
    (["pretrained", "libero", "{model}"], "a model and its mapping go together"),
    (["pretrained", "libero", "{model}", "--map", "{map}"], "rate_hz is 25, LIBERO runs at 20 Hz"),
    (["pretrained", "libero"], "temporeal pretrained install libero"),
    (["pretrained", "libero", "--episodes", "0"], "at least 1"),
    (["pretrained", "libero", "--task", "-1"], "--task at least 0"),
    (["pretrained", "moon"], "known: install, check, libero"),
])
def test_what_is_wrong_is_said_at_once(folder, mapping, capsys, monkeypatch, words, says):
    monkeypatch.setattr("temporeal.policies.pretrained.environment.installed", lambda name: False)
    assert main([word.format(model=folder, map=mapping) for word in words]) == 2
    assert says in capsys.readouterr().err
