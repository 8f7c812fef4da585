"""The artifact: what is written is what runs, and what does not match is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from temporeal.policies.export import writer
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.robots.artifact.manifest import (
    GOLDEN,
    MANIFEST,
    POLICY,
    ArtifactError,
    canonical,
    decode,
    digest,
    encode,
)
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalError, SignalSpec
from temporeal.robots.spec import load_robot

ROBOT = load_robot("crazyflie")
STEPS = 40


class ClockPolicy(nn.Module):
    """A policy with two memories: the last two actions, and a clock that starts at 3 and counts steps.

    The command's first component is the clock, so that memory can be read off the output.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3 + 4 + 8, 32), nn.Tanh(), nn.Linear(32, 4), nn.Tanh())

    def initial_memory(self, n: int) -> dict[str, Tensor]:
        return {"actions": torch.zeros(n, 8), "clock": torch.full((n,), 3.0)}

    def forward(
        self, signals: dict[str, Tensor], memory: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        seen = torch.cat([signals["base_pos_w"], signals["base_quat_w"], memory["actions"]], -1)
        action = self.net(seen)
        after = {"actions": torch.cat([action, memory["actions"][:, :4]], -1), "clock": memory["clock"] + 1.0}
        command = torch.cat([0.01 * memory["clock"][:, None], action[:, 1:]], -1)
        return {"ctbr_cmd": command}, after


def rollout(policy: ClockPolicy, signals: dict[str, np.ndarray]) -> np.ndarray:
    """Commands [T, 4] of the torch policy for one robot's signals [T, ...]."""
    memory, out = policy.initial_memory(1), []
    with torch.no_grad():
        for t in range(STEPS):
            commands, memory = policy({k: torch.from_numpy(v[t])[None] for k, v in signals.items()}, memory)
            out.append(commands["ctbr_cmd"][0].numpy())
    return np.stack(out)


def recorded(policy: ClockPolicy) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    signals = {
        "base_pos_w": rng.normal(size=(STEPS, 3)).astype(np.float32),
        "base_quat_w": rng.normal(size=(STEPS, 4)).astype(np.float32),
    }
    return {**{f"signals.{k}": v for k, v in signals.items()}, "commands.ctbr_cmd": rollout(policy, signals)}


def write_artifact(path: Path, policy: Any = None, **changes: Any) -> Artifact:
    policy = policy or ClockPolicy()
    arguments: dict[str, Any] = {
        "robot": ROBOT, "signals": ("base_pos_w", "base_quat_w"), "command": "ctbr_cmd", "rate_hz": 50.0,
        "formula_text": "G[0,5] (height > floor)", "constants": {"floor": 0.2, "home": (0.0, 0.0, 1.0)},
        "horizon_s": 5.0, "training": {"algo": "none", "steps": 0}, "seed": 7, "stop": "level", "name": "test",
        "golden": recorded(ClockPolicy()), **changes,
    }
    golden = arguments.pop("golden")
    return export(policy, path, ArtifactSpec(**arguments), golden)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One good artifact; tests copy it before they damage it."""
    return write_artifact(tmp_path_factory.mktemp("made") / "artifact").path


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "artifact"
    folder.mkdir()
    for file in made.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest and make its digest right again: what is left to find is the mismatch itself."""
    content = json.loads((folder / MANIFEST).read_bytes())
    change(content)
    content.pop("sha256")
    content["sha256"] = digest(canonical(content).encode())
    (folder / MANIFEST).write_text(json.dumps(content))


def replace_file(folder: Path, name: str, data: bytes) -> None:
    """Replace a file and its digest in the manifest."""
    (folder / name).write_bytes(data)
    rewrite(folder, lambda c: c["files"].update({name: digest(data)}))


def test_golden_trace_is_replayed(made: Path) -> None:
    result = Artifact.load(made, ROBOT).self_test()
    assert result.steps == STEPS
    assert result.max_error <= 1e-5


def test_runtime_equals_torch_over_a_rollout(made: Path) -> None:
    artifact, policy = Artifact.load(made, ROBOT), ClockPolicy()
    rng = np.random.default_rng(2)
    signals = {"base_pos_w": rng.normal(size=(STEPS, 3)).astype(np.float32),
               "base_quat_w": rng.normal(size=(STEPS, 4)).astype(np.float32)}
    got = np.stack([artifact.act({k: v[t] for k, v in signals.items()})["ctbr_cmd"] for t in range(STEPS)])
    np.testing.assert_allclose(got, rollout(policy, signals), atol=1e-5, rtol=0)


def test_memory_counts_steps_and_reset_restores_its_initial_value(made: Path) -> None:
    artifact = Artifact.load(made)
    sample = {"base_pos_w": np.zeros(3), "base_quat_w": np.array([1.0, 0, 0, 0])}
    clocks = [artifact.act(sample)["ctbr_cmd"][0] for _ in range(3)]
    np.testing.assert_allclose(clocks, [0.03, 0.04, 0.05], atol=1e-7)
    artifact.reset()
    assert artifact.act(sample)["ctbr_cmd"][0] == pytest.approx(0.03)


def test_self_test_leaves_the_flight_memory_alone(made: Path) -> None:
    artifact = Artifact.load(made)
    sample = {"base_pos_w": np.zeros(3), "base_quat_w": np.array([1.0, 0, 0, 0])}
    artifact.act(sample)
    artifact.self_test()
    assert artifact.act(sample)["ctbr_cmd"][0] == pytest.approx(0.04)


def test_batch_of_robots_equals_each_alone(made: Path) -> None:
    artifact = Artifact.load(made)
    rng = np.random.default_rng(3)
    signals = {"base_pos_w": rng.normal(size=(5, 3)), "base_quat_w": rng.normal(size=(5, 4))}
    together, after = artifact.act_batch(signals, artifact.initial_memory(5))
    assert after["actions"].shape == (5, 8) and after["clock"].tolist() == [4.0] * 5
    for i in range(5):
        artifact.reset()
        alone = artifact.act({k: v[i] for k, v in signals.items()})
        np.testing.assert_allclose(alone["ctbr_cmd"], together["ctbr_cmd"][i], atol=1e-6)


@pytest.mark.parametrize(("sample", "told"), [
    ({"base_pos_w": np.zeros(3)}, "missing signals ['base_quat_w']"),
    ({"base_pos_w": np.zeros(2), "base_quat_w": np.ones(4)}, "'base_pos_w' has shape (2,)"),
    ({"base_pos_w": np.array([0, np.nan, 0]), "base_quat_w": np.ones(4)}, "'base_pos_w' has a non-finite value"),
])
def test_bad_signal_is_named_and_does_not_move_the_memory(made: Path, sample: dict, told: str) -> None:
    artifact = Artifact.load(made)
    with pytest.raises(SignalError) as error:
        artifact.act(sample)
    assert told in str(error.value)
    assert artifact.memory["clock"].tolist() == [3.0]


def test_non_finite_command_is_refused(tmp_path: Path) -> None:
    class Root(ClockPolicy):
        def forward(self, signals, memory):
            commands, after = super().forward(signals, memory)
            return {"ctbr_cmd": commands["ctbr_cmd"] + 0.0 * signals["base_pos_w"][:, :1].sqrt()}, after

    golden = recorded(ClockPolicy())
    golden["signals.base_pos_w"] = np.abs(golden["signals.base_pos_w"])
    golden["commands.ctbr_cmd"] = rollout(
        ClockPolicy(), {k: golden[f"signals.{k}"] for k in ("base_pos_w", "base_quat_w")})
    artifact = write_artifact(tmp_path / "a", Root(), golden=golden)
    with pytest.raises(SignalError, match="'ctbr_cmd' is not finite"):
        artifact.act({"base_pos_w": np.array([-1.0, 0, 0]), "base_quat_w": np.ones(4)})


@pytest.mark.parametrize("name", [POLICY, GOLDEN, MANIFEST])
def test_one_changed_byte_in_any_file_is_found(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    if name == MANIFEST:  # a changed figure, still good JSON
        data = bytearray(bytes(data).replace(b'"rate_hz": 50.0', b'"rate_hz": 51.0', 1))
    else:
        data[len(data) // 2] ^= 1
    assert bytes(data) != (copy / name).read_bytes()
    (copy / name).write_bytes(data)
    with pytest.raises(ArtifactError, match=f"{name} was changed after export"):
        Artifact.load(copy)


@pytest.mark.parametrize("name", [POLICY, GOLDEN, MANIFEST])
def test_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(ArtifactError, match=name):
        Artifact.load(copy)


@pytest.mark.parametrize("name", [POLICY, GOLDEN])
@pytest.mark.parametrize("kept", [0, 100, -20])
def test_truncated_file_is_refused_even_with_a_matching_digest(copy: Path, name: str, kept: int) -> None:
    replace_file(copy, name, (copy / name).read_bytes()[:kept])
    with pytest.raises(ArtifactError, match=name):
        Artifact.load(copy)


def test_golden_with_pickled_objects_is_refused(copy: Path) -> None:
    np.savez(copy / GOLDEN, **{"signals.base_pos_w": np.array([{"a": 1}], dtype=object)})
    replace_file(copy, GOLDEN, (copy / GOLDEN).read_bytes())
    with pytest.raises(ArtifactError, match="cannot be read"):
        Artifact.load(copy)


def test_commands_that_differ_from_the_recorded_ones_fail_the_self_test(copy: Path) -> None:
    golden = dict(np.load(copy / GOLDEN))
    rates = ROBOT.command("ctbr_cmd")
    golden["commands.ctbr_cmd"][17, 2] += 2e-5 * (rates.high[2] - rates.low[2])
    np.savez(copy / GOLDEN, **golden)
    replace_file(copy, GOLDEN, (copy / GOLDEN).read_bytes())
    artifact = Artifact.load(copy)
    with pytest.raises(ArtifactError, match="at step 17 of 40 .* by 2e-05 of its range"):
        artifact.self_test()
    assert artifact.self_test(tolerance=1e-4).max_error == pytest.approx(2e-5, rel=0.1)


def test_unknown_version_says_which_is_read(copy: Path) -> None:
    rewrite(copy, lambda c: c.update(schema_version=99))
    with pytest.raises(ArtifactError, match="schema_version 99; this program reads version 1"):
        Artifact.load(copy)


@pytest.mark.parametrize(
    ("text", "told"), [("{", "is not JSON"), ("[]", "holds a list"), ("{}", "schema_version None")])
def test_malformed_manifest(copy: Path, text: str, told: str) -> None:
    (copy / MANIFEST).write_text(text)
    with pytest.raises(ArtifactError, match=told):
        Artifact.load(copy)


@pytest.mark.parametrize(("change", "told"), [
    (lambda c: c.pop("stop"), "lacks the keys ['stop']"),
    (lambda c: c.update(extra=1), "unknown keys ['extra']"),
    (lambda c: c.update(rate_hz=0.0), "rate_hz is a positive number, got 0.0"),
    (lambda c: c.update(rate_hz=100.0), "do not belong together: rate_hz is 50.0 and 100.0"),
    (lambda c: c.update(formula="G[0,1] (height > 0)"), "do not belong together: formula"),
    (lambda c: c["memory"].pop(), "do not belong together: memory"),
    (lambda c: c["signals"].reverse(), "do not belong together: signals"),
    (lambda c: c["signals"][0].pop("name"), "is malformed"),
    (lambda c: c["files"].update({"../x": ""}), "the manifest names"),
    (lambda c: c.update(rate_hz=10**400), "is no whole number of 64 bits"),
    (lambda c: c.update(rate_hz=True), "rate_hz is a positive number, got True"),
    *((lambda c, value=value: c.update(horizon_s=value), f"horizon_s is a time in s, 0 or more, got {value!r}")
      for value in (None, -1, "x", True)),
    (lambda c: c.update(training=None), "training is an object, got None"),
    (lambda c: c.update(seed=None), "seed is a whole number, got None"),
    (lambda c: c.update(formula=3), "formula is text, got 3"),
    (lambda c: c.update(schema_version=[]), "has schema_version []; this program reads version 1"),
    (lambda c: c.update(schema_version=True), "has schema_version True"),
    (lambda c: c["memory"][0].update(initial=10**400), "is no whole number of 64 bits"),
    (lambda c: c["memory"][0].update(initial=1e300, shape=[]), "the initial value is not finite in float32: 1e+300"),
    (lambda c: c["memory"][0].update(shape="x"), "shape is a list of whole numbers, got 'x'"),
    (lambda c: c["signals"][0].update(unit=None), "is malformed: signal"),
])
def test_changed_manifest_with_a_matching_digest(copy: Path, change: Callable, told: str) -> None:
    rewrite(copy, change)
    with pytest.raises(ArtifactError) as error:
        Artifact.load(copy)
    assert told in str(error.value)


def test_graph_inputs_are_checked_against_the_manifest(copy: Path) -> None:
    model = onnx.load(copy / POLICY)
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if name == "base_pos_w":
                node.input[i] = "position"
    model.graph.input[0].name = "position"
    replace_file(copy, POLICY, model.SerializeToString())
    with pytest.raises(ArtifactError, match=r"has the inputs \['position', 'base_quat_w'"):
        Artifact.load(copy)


def with_signal(spec: SignalSpec) -> Any:
    return replace(ROBOT, signals={**ROBOT.signals, spec.name: spec})


@pytest.mark.parametrize(("robot", "told"), [
    (replace(ROBOT, name="iris"), "for robot 'crazyflie', this robot is 'iris'"),
    (replace(ROBOT, signals={"height": ROBOT.signals["height"]}), "'base_pos_w', robot 'crazyflie' has: height"),
    (with_signal(replace(ROBOT.signals["base_quat_w"], unit="xyzw")), "unit is wxyz in the artifact and xyzw on robot"),
    (with_signal(replace(ROBOT.signals["base_pos_w"], frame="ned")), "frame is w in the artifact and ned on robot"),
    (with_signal(replace(ROBOT.signals["base_pos_w"], shape=(2,))), "shape is [3] in the artifact and [2] on robot"),
    (with_signal(replace(ROBOT.signals["base_pos_w"], dtype="float64")), "dtype is float32 in the artifact and float"),
    (with_signal(replace(ROBOT.signals["base_pos_w"], rate_hz=30)), "rate_hz is 100 in the artifact and 30 on robot"),
    (replace(ROBOT, symmetry=None, commands={"motor_cmd": ROBOT.commands["motor_cmd"]}), "takes: motor_cmd"),
    (replace(ROBOT, symmetry=None, commands={"ctbr_cmd": replace(ROBOT.commands["ctbr_cmd"], high=(1.0,) * 4)}),
     "high is [0.4394"),
])
def test_robot_mismatch_names_the_field_and_both_values(made: Path, robot: Any, told: str) -> None:
    with pytest.raises(ArtifactError) as error:
        Artifact.load(made, robot)
    assert told in str(error.value)


def test_manifest_round_trip(made: Path) -> None:
    manifest = decode((made / MANIFEST).read_bytes())
    assert decode(encode(manifest)) == manifest
    assert manifest.signals == (ROBOT.signals["base_pos_w"], ROBOT.signals["base_quat_w"])
    assert manifest.commands == (ROBOT.commands["ctbr_cmd"],)
    assert manifest.constants == {"floor": 0.2, "home": [0.0, 0.0, 1.0]}
    assert manifest.seed == 7 and manifest.stop == "level" and manifest.versions["torch"] == torch.__version__


def test_export_refuses_a_policy_that_ignores_a_declared_signal(tmp_path: Path) -> None:
    golden = {**recorded(ClockPolicy()), "signals.height": np.zeros(STEPS, np.float32)}
    with pytest.raises(ArtifactError, match=r"never reads the signals \['height'\]"):
        write_artifact(tmp_path / "a", signals=("base_pos_w", "base_quat_w", "height"), golden=golden)
    assert list(tmp_path.iterdir()) == []


def test_export_refuses_an_unknown_signal_and_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="reads signal 'lidar', robot 'crazyflie' has: base_pos_w, "):
        write_artifact(tmp_path / "a", signals=("lidar",))


def test_memory_that_nothing_reads_stays_in_the_graph(tmp_path: Path) -> None:
    class Writer(ClockPolicy):
        def initial_memory(self, n):
            return {"first": torch.ones(n, 2), **super().initial_memory(n)}

        def forward(self, signals, memory):
            commands, after = super().forward(signals, memory)
            return commands, {"first": signals["base_pos_w"][:, :2], **after}

    artifact = write_artifact(tmp_path / "a", Writer())
    assert [m.name for m in artifact.manifest.memory] == ["first", "actions", "clock"]
    assert artifact.self_test().max_error <= 1e-5


def test_failed_self_test_leaves_the_older_artifact_in_place(tmp_path: Path) -> None:
    write_artifact(tmp_path / "a")
    before = {f.name: f.read_bytes() for f in (tmp_path / "a").iterdir()}
    golden = recorded(ClockPolicy())
    golden["commands.ctbr_cmd"] = golden["commands.ctbr_cmd"] + 1e-3
    with pytest.raises(ArtifactError, match="self-test"):
        write_artifact(tmp_path / "a", golden=golden)
    assert {f.name: f.read_bytes() for f in (tmp_path / "a").iterdir()} == before
    assert [f.name for f in tmp_path.iterdir()] == ["a"]


def test_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "write", full)
    with pytest.raises(OSError, match="No space left"):
        write_artifact(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_export_replaces_an_artifact_but_nothing_else(tmp_path: Path) -> None:
    write_artifact(tmp_path / "a", seed=1)
    assert write_artifact(tmp_path / "a", seed=2).manifest.seed == 2
    assert [f.name for f in tmp_path.iterdir()] == ["a"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(ArtifactError, match="exists and is not an artifact"):
        write_artifact(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_policy_that_freezes_the_batch_size_is_refused(tmp_path: Path) -> None:
    class Frozen(ClockPolicy):
        def forward(self, signals, memory):
            commands, after = super().forward(signals, memory)
            value = commands["ctbr_cmd"]
            return {"ctbr_cmd": value + 0.0 * value.mean(0) + 1e-2 * (value - value.mean(0))}, after

    golden = recorded(ClockPolicy())  # with one robot the batch mean is the robot itself: the golden trace agrees
    with pytest.raises(ArtifactError, match="depends on the batch size"):
        write_artifact(tmp_path / "a", Frozen(), golden=golden)


def test_runtime_imports_neither_torch_nor_a_simulator(made: Path) -> None:
    program = (
        "import sys; from temporeal.robots.artifact.runtime import Artifact\n"
        "from temporeal.robots.spec import load_robot\n"
        f"print(Artifact.load({str(made)!r}, load_robot('crazyflie')).self_test().steps)\n"
        "bad = {'torch', 'numba', 'mujoco', 'onnx', 'scipy'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(STEPS)
