"""What is loaded is data: no file that somebody else wrote can run code here, and the source has no call that could."""

from __future__ import annotations

import ast
import io
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("robots", "sim", "policies", "configs", "launch", "ros2_ws/src", "benchmarks")

# ---- the source

IMPORTS = ("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")
"""Modules that make code of bytes."""
CALLS = ("eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.unsafe_load", "yaml.full_load",
         "yaml.unsafe_load_all", "yaml.full_load_all", "torch.jit.load", "torch.hub.load", "pandas.read_pickle",
         "hydra.utils.instantiate", "instantiate_class", "runpy.run_path")
"""Calls that run what they are given."""
NEEDS = {  # call: (argument that must be there, the only value it may have)
    "np.load": ("allow_pickle", False), "numpy.load": ("allow_pickle", False),
    "np.lib.format.read_array": ("allow_pickle", False), "torch.load": ("weights_only", True),
}
EXCEPTIONS = {  # (file, what): why it is none
    (
        "policies/export/external_policies.py",
        "import pickle",
    ): "an unpickler that refuses all but the parts of VecNormalize",
    ("benchmarks/own_robot/fuzzing/mutations.py", "import pickle"): "writes what no reader may unpickle",
    ("benchmarks/measurements/train_quadrotor.py", "torch.load"): "of a benchmark: written by a process of its own",
}


def files() -> list[Path]:
    found = [file for folder in SOURCES for file in sorted((ROOT / folder).rglob("*.py"))]
    assert len(found) > 100
    return found


LAST = {name.rpartition(".")[2] for name in (*CALLS, *NEEDS, "yaml.load") if "." in name} | {*IMPORTS, "shell"}
WORDS = {name for name in CALLS if "." not in name} | LAST | {f".{name}" for name in LAST}
"""A text without any of these is not parsed: names of modules and functions, of those of modules with their dot."""


def dotted(node: ast.expr) -> str:
    """``np.load`` of the expression that is called; empty where it is no plain name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return f"{left}.{node.attr}" if left else ""
    return ""


def dangers(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of every import and call in the source ``text`` that could run what a file holds."""
    plain = text.isascii()  # other letters may be read as these by the parser
    for node in () if plain and WORDS.isdisjoint(re.findall(r"\.?\w+", text)) else ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from ((node.lineno, f"import {name}") for name in modules if name in IMPORTS)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            given = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            if name in CALLS or name == "yaml.load" or given.get("shell") is True:
                yield node.lineno, name
            if name in NEEDS and given.get(NEEDS[name][0], "absent") is not NEEDS[name][1]:
                yield node.lineno, name


def test_nothing_in_the_source_makes_code_of_data() -> None:
    found = {(str(file.relative_to(ROOT)), what): line
             for file in files() for line, what in dangers(file.read_text())}
    new = [f"{file}:{line}: {what}" for (file, what), line in found.items() if (file, what) not in EXCEPTIONS]
    assert new == [], "give allow_pickle=False, weights_only=True, yaml.safe_load; or an exception with its reason"
    assert set(EXCEPTIONS) <= set(found), "an exception that is not needed any more"


@pytest.mark.parametrize("text", [
    "import pickle", "from marshal import loads", "eval(x)", "exec(x)", "__import__(x)", "np.load(f)",
    "np.load(f, allow_pickle=True)", "np.load(f, allow_pickle=flag)", "torch.load(f)",
    "torch.load(f, weights_only=False)", "\U0001d41eval(x)",
    "yaml.load(f, yaml.Loader)", "yaml.unsafe_load(f)", "os.system(c)", "subprocess.run(c, shell=True)",
])
def test_the_search_finds(text: str) -> None:
    assert list(dangers(text))


@pytest.mark.parametrize("text", [
    "np.load(f, allow_pickle=False)", "torch.load(f, weights_only=True)", "yaml.safe_load(f)", "re.compile(p)",
    "policy.eval()", "torch.compile(f)", "subprocess.run(c)",
])
def test_the_search_lets_pass(text: str) -> None:
    assert not list(dangers(text))


# ---- files that would run code, if anybody let them


class Bomb:
    """Unpickled, it makes the file ``mark``."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that code in a file would make; the fixture proves that it would, and that nothing did."""
    out = tmp_path / "code-was-run"
    pickle.loads(pickle.dumps(Bomb(out)))
    assert out.exists()
    out.unlink()
    return out


def refused(load: Callable[[], Any], error: type[Exception] | tuple[type[Exception], ...], mark: Path) -> None:
    """``load`` raises ``error``, and nothing ran."""
    with pytest.raises(error):
        load()
    assert not mark.exists()


def npz(bomb: Any, *names: str, **texts: str) -> bytes:
    """An NPZ file in which each of the arrays ``names`` is a pickle; ``texts`` are further members."""
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.array([bomb], dtype=object) for name in names})
    with zipfile.ZipFile(buffer, "a") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def test_a_checkpoint_runs_no_code(tmp_path: Path, mark: Path) -> None:
    """Right to the last byte: the digest, which anybody can compute, is right too."""
    import hashlib

    import torch

    from temporeal.policies.training import checkpoint

    buffer = io.BytesIO()
    torch.save({"weights": Bomb(mark)}, buffer)
    file = tmp_path / "00000001.rank0of1.pt"
    file.write_bytes(buffer.getvalue() + hashlib.sha256(buffer.getvalue()).digest())
    refused(lambda: checkpoint.load(file), checkpoint.CheckpointError, mark)


def test_an_artifact_runs_no_code(tmp_path: Path, mark: Path) -> None:
    """Its golden trace is an archive that could hold pickled objects, under whatever name."""
    from temporeal.robots.artifact.manifest import ArtifactError, Manifest
    from temporeal.robots.artifact.runtime import open_session, read_golden

    manifest = Manifest("x", "crazyflie", (), (), 50.0, (), "", {}, 1.0, "level", {}, {}, 0, "", "", {})
    refused(lambda: read_golden(npz(Bomb(mark), "signals.height"), manifest), ArtifactError, mark)
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("a.npy", pickle.dumps(Bomb(mark)))
    refused(lambda: read_golden(raw.getvalue(), manifest), ArtifactError, mark)
    refused(lambda: read_golden(pickle.dumps(Bomb(mark)), manifest), ArtifactError, mark)
    refused(lambda: open_session(pickle.dumps(Bomb(mark))), ArtifactError, mark)


def test_what_is_saved_otherwise_runs_no_code(tmp_path: Path, mark: Path) -> None:
    """Actors, faults of simulated worlds, counterexamples and traces: the arrays that are read first are pickles."""
    from temporeal.policies.algos import apg
    from temporeal.policies.cli.traces.array_files import read_npz
    from temporeal.policies.cli.traces.table import Options
    from temporeal.policies.runs.errors import BadInput
    from temporeal.sim import diverged_worlds
    from temporeal.sim.stl.analysis import counterexample

    file = tmp_path / "x.npz"
    file.write_bytes(npz(Bomb(mark), "sizes", "flat"))
    refused(lambda: apg.load(file), ValueError, mark)
    file.write_bytes(npz(Bomb(mark), "about", "given", "action", "record", "state.x"))
    refused(lambda: diverged_worlds.load(file), (ValueError, TypeError), mark)
    file.write_bytes(npz(Bomb(mark), "signals/x", **{counterexample.CONTENT: "{}"}))
    refused(lambda: counterexample.load_counterexample(file), ValueError, mark)
    file.write_bytes(npz(Bomb(mark), "t", "height"))
    refused(lambda: read_npz(file, Options()), BadInput, mark)


def test_yaml_runs_no_code(tmp_path: Path, mark: Path) -> None:
    from temporeal.policies.cli.specs.spec_file import read_yaml
    from temporeal.policies.runs.errors import BadInput
    from temporeal_bridge.interface import rows
    from temporeal_bridge.interface.interface import InterfaceError

    text = f"!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{mark}]]\n"
    file = tmp_path / "ros.yaml"
    file.write_text(text)
    refused(lambda: rows.read_yaml(file), InterfaceError, mark)
    refused(lambda: read_yaml(text, "not a mission"), BadInput, mark)


def test_statistics_of_vecnormalize_run_no_code(tmp_path: Path, mark: Path) -> None:
    from temporeal.policies.export.external_policies import NotExportable, load_statistics

    file = tmp_path / "statistics.pkl"
    for bomb in (Bomb(mark), {"obs_rms": Bomb(mark)}, np.array([Bomb(mark)], dtype=object)):
        file.write_bytes(pickle.dumps(bomb))
        refused(lambda: load_statistics(file), NotExportable, mark)


def test_message_definitions_run_no_code(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of .msg files, of a ros.yaml or inside a bag: rosbags makes Python of them, and must keep it theirs."""
    from rosbags.typesys import Stores, get_typestore

    from temporeal_bridge.transports import messages

    fresh = get_typestore(Stores.ROS2_JAZZY)
    monkeypatch.setattr(messages, "store", lambda: fresh)
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    texts = [
        ("bad_msgs/msg/A", f"string X=\"'+{code}+'\""), ("bad_msgs/msg/B", f"string X=''+{code}+''"),
        ("bad_msgs/msg/C", f"float64 y 1.0+{code}"), ("bad_msgs/msg/D", f"int32 x={code}"),
        (f"bad_msgs/msg/E'+{code}+'", "int32 x"), (f"bad_msgs/msg/F:\n  pass\n{code}\nclass G", "int32 x"),
        (f'bad_msgs/msg/H"""\n{code}\n"""', "int32 x"), ("bad_msgs/msg/I", f"int32 x  # \n{code}"),
    ]
    accepted = []
    for name, text in texts:
        try:
            messages.define({name: text})
            accepted.append(name)
        except Exception:  # a parser of text from anywhere raises its own errors; what counts is the mark
            pass
        assert not mark.exists(), (name, text)
    assert accepted == ["bad_msgs/msg/A"]  # that one is a text in quotes
    assert messages.record("bad_msgs/msg/A").X == f"'+{code}+'"
