"""The reflex: when it acts, what its critic learns, what a formula does not allow, and the artifact that carries it."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.algos import ppo, reflex
from temporeal.policies.algos.reflex import Batch, Constraint, ReflexConfig, Steps
from temporeal.policies.export.policy import export_policy
from temporeal.policies.nets.actor import make_actor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training import policy_graphs
from temporeal.policies.training.acting import graph_policy
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.ppo_state import PPOConfig
from temporeal.policies.training.ranks import Ranks
from temporeal.policies.training.reflex_policy import Reflex, ReflexGraph, choose
from temporeal.robots.artifact.manifest import (
    ENGAGED,
    GOLDEN,
    HELD,
    MANIFEST,
    PHASE,
    REFLEX,
    RISK,
    ArtifactError,
    ReflexSpec,
)
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import load_robot
from temporeal.sim.env import make_env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import MISSION_TIME, load_task

SPEC = ReflexSpec(3, 0.5, 0.25)
X = schema(SignalSpec("x", (), "m"), SignalSpec("y", (), "m"), MISSION_TIME)


def graph_of(task: Any, spec: ReflexSpec = SPEC, hidden: int = 0) -> ReflexGraph:
    """A policy of high gain and a reflex whose risk crosses its threshold again and again."""
    torch.manual_seed(3)
    actor = make_actor(task.observe.obs_dim, task.act.action_dim, (16,), hidden_dim=hidden)
    layer = Reflex(task.observe.obs_dim, task.act.action_dim, (16,), "silu", spec.every)
    with torch.no_grad():
        for module in (actor.head if hidden else actor.net[-1], *(c[-1] for c in layer.critics), layer.actor[-1]):
            for parameter in module.parameters():
                parameter.mul_(30.0)
    base = PolicyGraph(task.observe, Normalizer(task.observe.obs_dim), actor, task.act)
    return ReflexGraph(base, layer, spec).eval()


def environment(task: Any, worlds: int = 1) -> Any:
    return make_env(task, num_worlds=worlds, seed=2, compiled=False, threads=1)


# ---------------------------------------------------------------- when it acts


def test_it_takes_over_above_the_threshold_and_lets_go_at_the_release() -> None:
    risks = [0.1, 0.5, 0.51, 0.3, 0.26, 0.25, 0.4, 0.9, 0.0]
    #        no   no   yes   yes  yes   no    no   yes  no
    engaged, found = torch.zeros(1), []
    for risk in risks:
        choice = choose(SPEC, torch.tensor([risk]), engaged, torch.tensor([[1.0]]), torch.tensor([[-1.0]]))
        engaged = choice.engaged
        found.append(float(choice.action))
    assert found == [1, 1, -1, -1, -1, 1, 1, -1, 1]


def test_a_threshold_of_one_never_acts() -> None:
    choice = choose(ReflexSpec(1, 1.0, 1.0), torch.ones(1), torch.ones(1), torch.ones(1, 1), -torch.ones(1, 1))
    assert choice.engaged == 0 and choice.action == 1


@pytest.mark.parametrize("hidden", [0, 4])
@pytest.mark.parametrize("every", [1, 3])
def test_the_task_is_asked_every_so_many_steps_and_held_between(every: int, hidden: int) -> None:
    task = load_task("hover")
    graph = graph_of(task, ReflexSpec(every, 1.0, 1.0), hidden)
    carried = {name: torch.zeros(2, *shape) for name, shape in graph.carried.items()}
    own = {name: torch.zeros(2, *shape) for name, shape in graph.task.carried.items()}
    with torch.no_grad():
        for t in range(7):
            obs = torch.randn(2, task.observe.obs_dim)
            if t % every == 0:
                wanted, own = graph.task.decide(obs, own)
            action, carried = graph.decide(obs, carried)
            torch.testing.assert_close(action, wanted.clamp(-1, 1))
            assert (carried[PHASE] == (t + 1) % every).all()
            torch.testing.assert_close(carried[HELD], action)


def test_the_risk_is_that_of_the_held_action_with_the_newest_observation() -> None:
    task = load_task("hover")
    graph = graph_of(task)
    carried = {name: torch.zeros(2, *shape) for name, shape in graph.carried.items()}
    with torch.no_grad():
        for _ in range(4):
            obs = torch.randn(2, task.observe.obs_dim)
            phase = carried[PHASE]
            _, carried = graph.decide(obs, carried)
            state = torch.cat([graph.reflex.normalizer(obs), carried[HELD], phase[:, None] / 3], -1)
            both = [torch.sigmoid(c(torch.cat([state, carried[HELD]], -1))[:, 0]) for c in graph.reflex.critics]
            torch.testing.assert_close(carried[RISK], torch.maximum(*both))


# ---------------------------------------------------------------- what may not be violated


def margin(text: str, **signals: float) -> float:
    found = Constraint(parse(text, X)).margin({k: torch.tensor([v]) for k, v in signals.items()})
    return float(found)


def test_what_must_always_hold_is_the_constraint_and_goals_are_not() -> None:
    text = "F[0,4] (x > 5) & G[0,4] (x < 3 & y < 2) & G[2,4] (y > 1)"
    assert margin(text, x=1.0, y=1.5, mission_time=0.0) == 0.5
    assert margin(text, x=4.0, y=1.5, mission_time=0.0) == -1.0
    assert margin(text, x=1.0, y=-9.0, mission_time=3.0) == 2.0  # G[2,4] is a goal: to be there by then
    assert margin(text, x=4.0, y=0.0, mission_time=4.0) == -1.0  # windows are closed
    assert margin(text, x=4.0, y=0.0, mission_time=4.1) == math.inf


def test_a_negated_eventually_is_an_always() -> None:
    assert margin("!(F[0,4] (x > 3)) & F[0,4] (y > 0)", x=4.0, y=0.0, mission_time=1.0) == -1.0


@pytest.mark.parametrize("text", ["F[0,4] (x > 1)", "G[1,4] (x > 1)", "G[0,2] F[0,1] (x > 1)"])
def test_a_formula_that_keeps_nothing_has_no_reflex(text: str) -> None:
    with pytest.raises(SettingsError, match=r"a part G\[0,b\] p"):
        Constraint(parse(text, X))


# ---------------------------------------------------------------- what is learned


class Fixed:
    """A critic that says 0.8 of positive actions and 0.2 of others."""

    def risk(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.where(action[:, 0] > 0, 0.8, 0.2)


def test_targets_by_hand() -> None:
    """A violation counts 1 whatever comes after; where nothing comes there is no risk; else 0.9 of the next one's."""
    batch = Batch(state=torch.zeros(4, 1), held=torch.zeros(4, 1), action=torch.zeros(4, 1),
                  cost=torch.tensor([1.0, 0, 0, 0]), over=torch.tensor([0.0, 1, 0, 0]), after=torch.zeros(4, 1),
                  wanted=torch.tensor([[1.0], [1], [1], [-1]]))
    found = reflex.targets(Fixed(), batch, 0.9)  # type: ignore[arg-type]
    torch.testing.assert_close(found, torch.tensor([1.0, 0.0, 0.9 * 0.8, 0.9 * 0.2]))


def test_steps_are_remembered_with_what_came_next_and_the_oldest_are_forgotten() -> None:
    steps, layer = Steps(rows=12, worlds=3, obs_dim=1, action_dim=1), Reflex(1, 1, (4,), "silu", 1)
    for t in range(6):  # 4 rows: steps 2 to 5 are left, and what followed on 5 is not known
        value = torch.full((3, 1), float(t))
        steps.add(obs=value, held=value, phase=torch.zeros(3), action=-value, over=torch.zeros(3),
                  cost=torch.zeros(3), cut=torch.tensor([0.0, float(t == 3), 0.0]))
    rows = steps.usable()
    assert steps.columns["obs"][rows, 0, 0].tolist() == [2.0, 3.0, 4.0]
    batch = steps.take(rows[[0, 1]], torch.tensor([0, 0]), layer)
    assert batch.action[:, 0].tolist() == [-2.0, -3.0] and batch.wanted[:, 0].tolist() == [3.0, 4.0]
    assert len(steps.take(rows[[1]], torch.tensor([1]), layer).cost) == 0  # cut by the clock: nothing is known of after


class Corridor:
    """x in [-1, 1] that an action moves by 0.1 a step, and that a wind moves by 0.05 to the right; beyond 1 is a wall.
    Episodes begin anywhere in the middle and last 40 steps, or until the wall."""

    def __init__(self, worlds: int) -> None:
        self.num_worlds, self.obs_dim, self.action_dim, self.device = worlds, 1, 1, torch.device("cpu")
        self.generator = torch.Generator().manual_seed(1)
        self.task = SimpleNamespace(formula=parse("G[0,4] (x < 1)", X), control_dt=0.1, name="corridor")
        self.clock = torch.zeros(worlds)

    def draw(self) -> torch.Tensor:
        return torch.rand(self.num_worlds, 1, generator=self.generator) - 0.5

    def reset(self) -> Any:
        self.x = self.draw()
        return SimpleNamespace(actor=self.x)

    def step(self, action: torch.Tensor) -> Any:
        x = (self.x + 0.1 * action.clamp(-1, 1) + 0.05).clamp(min=-1)
        self.clock = self.clock + 1
        terminated, truncated = x[:, 0] > 1, (self.clock >= 40) & (x[:, 0] <= 1)
        info = {"signals": {"x": x[:, 0], "y": x[:, 0], "mission_time": 0.1 * self.clock}}
        ended = terminated | truncated
        self.x = torch.where(ended[:, None], self.draw(), x)
        self.clock = torch.where(ended, 0.0, self.clock)
        return SimpleNamespace(obs=SimpleNamespace(actor=self.x), terminated=terminated, truncated=truncated, info=info)


class Right(torch.nn.Module):
    """A task's policy that goes to the right: into the wall."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.full_like(obs, 0.5)


def run_folder(folder: Path) -> Path:
    """What a reflex takes of a run: settings and a checkpoint, here of nothing."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text("algo: {name: ppo}\n")
    (folder / "checkpoints" / "00000001.rank0of1.pt").write_bytes(b"of nothing")
    return folder


def learned(folder: Path, **settings: Any) -> reflex.Result:
    act = SimpleNamespace(action_dim=1, command="none")
    observe = SimpleNamespace(memory={}, signals=("x",))
    base = PolicyGraph(observe, torch.nn.Identity(), Right(), act)  # type: ignore[arg-type]
    run = run_folder(folder / "run")
    given = {"updates": 600, "threshold": 0.3, "release": 0.2, "rows": 4000, "batch": 256, "warmup": 20,
             "lookahead_s": 0.4, **settings}
    config = ReflexConfig(policy=str(run), **given)
    return reflex.train(Corridor(64), config, base=base, out=folder / "out", seed=1)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_policy_that_runs_into_a_wall_is_held_off_it(tmp_path: Path) -> None:
    found = learned(tmp_path)
    world, act, violations, engaged = Corridor(64), graph_policy(found.graph), 0, 0.0
    obs = world.reset().actor
    with torch.no_grad():
        for _ in range(38):
            step = world.step(act(obs))
            violations += int(step.terminated.sum())
            obs, engaged = step.obs.actor, engaged + float(getattr(act, "carried")(64)[ENGAGED].mean()) / 38  # noqa: B009
        state = found.graph.reflex.state(torch.tensor([[-0.5], [0.97]]), torch.full((2, 1), 0.5), torch.zeros(2))
        risk = found.graph.reflex.risk(state, torch.full((2, 1), 0.5))
        away = found.graph.reflex(state, torch.full((2, 1), 0.5))
    assert violations == 0 and 0.05 < engaged < 0.95  # alone, the task would be in the wall after 15 steps at most
    assert risk[0] < 0.2 and risk[1] > 0.6 and away[1] < -0.5


def test_what_is_learned_depends_on_the_seed_alone(tmp_path: Path) -> None:
    once, again = (learned(tmp_path / name, updates=48).graph.reflex.state_dict() for name in ("a", "b"))
    assert all(torch.equal(once[name], again[name]) for name in once)


@pytest.mark.parametrize(("settings", "told"), [
    ({"threshold": 1.5}, "threshold is a risk from 0 to 1"), ({"release": 0.5}, "release is at most threshold"),
    ({"every": 0}, "every is a whole number"), ({"activation": "step"}, "legal: tanh"),
    ({"lookahead_s": 0.0}, "lookahead_s must be positive"),
    ({"target_rate": 0.0}, "target_rate"), ({"noise": -1.0}, "noise must not be negative"),
    ({"hidden": ()}, "hidden is a list"), ({"max_seconds": 0.0}, "max_seconds")])
def test_settings_that_cannot_be(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ReflexConfig(**settings)


def test_it_says_what_it_does_not_do(tmp_path: Path) -> None:
    given: dict[str, Any] = {"base": None, "out": tmp_path}
    with pytest.raises(SettingsError, match="one process"):
        reflex.train(Corridor(4), ReflexConfig(), ranks=Ranks(0, 2), **given)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="does not resume"):
        reflex.train(Corridor(4), ReflexConfig(), resume=True, **given)  # type: ignore[arg-type]


def test_a_run_is_loaded_without_the_one_it_came_from(tmp_path: Path) -> None:
    """What is judged and exported is what was trained, whatever became of the task's own run."""
    task = load_task("hover")
    env = make_env(task, num_worlds=16, seed=1, compiled=False, threads=1)
    config = PPOConfig(total_steps=16 * 8, rollout_steps=8, actor_hidden=(8,), critic_hidden=(8,), threads=1,
                       minibatches=1, epochs=1)
    ppo.train(env, config, out=tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text("algo: {name: ppo}\n")
    base = policy_graphs.load_graph(tmp_path / "run", task)
    settings = ReflexConfig(policy=str(tmp_path / "run"), every=2, updates=4, gradient_steps=2, batch=8, warmup=2)
    made = reflex.train(env, settings, base=base, out=tmp_path / "out").graph
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "out" / "config.yaml").write_text("algo: {name: reflex}\n")
    read = policy_graphs.load_graph(tmp_path / "out", task)
    assert isinstance(read, ReflexGraph) and read.spec == made.spec
    obs = torch.randn(5, task.observe.obs_dim)
    carried = {name: torch.zeros(5, *shape) for name, shape in made.carried.items()}
    for a, b in zip(made.decide(obs, carried)[1].values(), read.decide(obs, carried)[1].values()):
        assert torch.equal(a, b)
    with pytest.raises(CheckpointError, match="is no run"):
        policy_graphs.load_graph(tmp_path / "run", task)


# ---------------------------------------------------------------- the artifact


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = replace(load_task("hover", history=2), episode_s=0.4)
    return export_policy(graph_of(task), task, tmp_path_factory.mktemp("made") / "artifact", environment(task),
                         training={}, seed=0).path


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def test_the_runtime_does_what_the_training_environment_does_step_by_step(made: Path) -> None:
    """In a closed loop of its own, not from what was recorded of the memory; and it says how often it acted."""
    artifact = Artifact.load(made, load_robot("crazyflie"))
    trace, engaged = artifact.golden, artifact.golden[f"memory.{ENGAGED}"]
    for t in range(len(trace["commands.motor_cmd"])):
        assert (trace[f"memory.{PHASE}"][t] == t % 3) and artifact.memory[PHASE][0] == t % 3
        np.testing.assert_array_equal(artifact.memory[ENGAGED][0], engaged[t])
        found = artifact.act({name: trace[f"signals.{name}"][t] for name in artifact.schema})["motor_cmd"]
        assert artifact.difference("motor_cmd", found, trace["commands.motor_cmd"][t]).max() <= 1e-4
    assert 0 < engaged.sum() < len(engaged)  # both were seen
    figures = artifact.figures()
    assert figures["reflex_steps"] == engaged[1:].sum() + artifact.memory[ENGAGED][0]
    assert figures["reflex_share"] == figures["reflex_steps"] / len(engaged)
    assert 0.0 <= figures["risk"] <= 1.0 and figures["reflex"] == bool(artifact.memory[ENGAGED][0])
    artifact.reset()
    assert artifact.figures() == {"reflex": False, "reflex_steps": 0, "reflex_share": 0.0, "risk": 0.0}


def test_robots_in_other_phases_do_as_they_would_alone(made: Path) -> None:
    artifact = Artifact.load(made)
    rows = [0, 1, 2, 5]
    signals = {name: artifact.golden[f"signals.{name}"][rows] for name in artifact.schema}
    memory = {name: artifact.golden[f"memory.{name}"][rows] for name in artifact.memory}
    commands, after = artifact.act_batch(signals, memory)
    for i in range(len(rows)):
        alone, then = artifact.act_batch({k: v[i : i + 1] for k, v in signals.items()},
                                         {k: v[i : i + 1] for k, v in memory.items()})
        np.testing.assert_allclose(commands["motor_cmd"][i], alone["motor_cmd"][0], atol=1e-6)
        np.testing.assert_allclose(after[HELD][i], then[HELD][0], atol=1e-6)


def test_between_its_turns_the_task_network_is_not_asked(made: Path) -> None:
    """The held action is taken from the memory there, whatever is observed; and it is not at the others."""
    artifact = Artifact.load(made)
    signals = {name: artifact.golden[f"signals.{name}"][:1] for name in artifact.schema}
    memory = {**artifact.initial_memory(1), HELD: np.full((1, 4), 0.123, np.float32)}
    kept = artifact.act_batch(signals, {**memory, PHASE: np.ones(1, np.float32)})[1][HELD]
    anew = artifact.act_batch(signals, memory)[1][HELD]
    np.testing.assert_array_equal(kept, memory[HELD])
    assert (anew != memory[HELD]).all()


def rewrite(folder: Path, change: Any) -> None:
    from temporeal.robots.artifact.manifest import canonical, digest

    content = json.loads((folder / MANIFEST).read_bytes())
    change(content)
    content.pop("sha256")
    content["sha256"] = digest(canonical(content).encode())
    (folder / MANIFEST).write_text(json.dumps(content))


def test_a_missing_or_a_changed_reflex_is_refused(copy: Path) -> None:
    data = (copy / REFLEX).read_bytes()
    (copy / REFLEX).write_bytes(data[:-1] + b"\0")
    with pytest.raises(ArtifactError, match=r"reflex\.onnx was changed after export"):
        Artifact.load(copy)
    (copy / REFLEX).unlink()
    with pytest.raises(ArtifactError, match=r"reflex\.onnx: No such file"):
        Artifact.load(copy)


def test_another_threshold_than_the_networks_have_is_refused(copy: Path) -> None:
    rewrite(copy, lambda c: c["reflex"].update(threshold=0.6))
    with pytest.raises(ArtifactError, match=r"policy\.onnx and manifest\.json do not belong together: reflex"):
        Artifact.load(copy)


def test_a_reflex_of_another_policy_is_refused(copy: Path, tmp_path: Path) -> None:
    from temporeal.robots.artifact.manifest import digest

    task = replace(load_task("hover", history=1), episode_s=0.2)
    other = export_policy(graph_of(task), task, tmp_path / "other", environment(task), training={}, seed=0).path
    data = (other / REFLEX).read_bytes()
    (copy / REFLEX).write_bytes(data)
    rewrite(copy, lambda c: c["files"].update({REFLEX: digest(data)}))
    with pytest.raises(ArtifactError, match=r"reflex\.onnx and manifest\.json do not belong together: memory"):
        Artifact.load(copy)


def test_the_self_test_asks_both_networks(copy: Path, tmp_path: Path) -> None:
    """A network of the same contract and other weights in the place of the reflex: steps between its turns differ."""
    from temporeal.robots.artifact.manifest import digest

    task = replace(load_task("hover", history=2), episode_s=0.2)
    graph = graph_of(task)
    with torch.no_grad():
        graph.reflex.critics[0][0].weight.mul_(-1.0)
        graph.reflex.critics[1][0].weight.mul_(-1.0)
        graph.reflex.actor[0].weight.mul_(-1.0)
    other = export_policy(graph, task, tmp_path / "other", environment(task), training={}, seed=0).path
    contracts = [json.loads((f / MANIFEST).read_bytes()) for f in (copy, other)]
    data = (other / REFLEX).read_bytes()
    (copy / REFLEX).write_bytes(data)
    rewrite(copy, lambda c: c["files"].update({REFLEX: digest(data)}))
    assert contracts[0]["reflex"] == contracts[1]["reflex"]
    with pytest.raises(ArtifactError, match="self-test"):
        Artifact.load(copy).self_test()


def test_an_artifact_without_a_reflex_has_no_figures_of_it(tmp_path: Path) -> None:
    task = replace(load_task("hover"), episode_s=0.2)
    plain = export_policy(graph_of(task).task, task, tmp_path / "a", environment(task), training={}, seed=0)
    assert plain.figures() == {} and sorted(p.name for p in plain.path.iterdir()) == sorted(
        [GOLDEN, MANIFEST, "policy.onnx"])
