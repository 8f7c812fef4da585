"""Every task on the robot's side: what controller and guard send is what the training environment does.

For the tasks of every robot that has a ``ros.yaml``: signals cross their messages, the artifact runs in the controller,
and the guard forwards. What the guard changes on purpose (a ramped start, limits of motion) is its own business, so the
commands that were *proposed* are compared with the environment's, and those that were *sent* with the proposed ones
where the guard says that it changed nothing. In real time a step may come late, or with a newer part of the state:
there the comparison is with the modules of the environment, on the signals and the memory that each step had.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tests.examples import thinned

from temporeal.policies.export.golden_trace import record_golden
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.nets.actor import Critic, make_actor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.acting import graph_policy
from temporeal.policies.training.reflex_policy import Reflex, ReflexGraph
from temporeal.policies.training.schedule_choice import Choosing
from temporeal.robots.artifact.manifest import ENGAGED, PHASE, ReflexSpec
from temporeal.robots.registry import names
from temporeal.robots.spec import load_robot, robot_names
from temporeal.sim.env import make_env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.rewards.scheduled import SCHEDULE
from temporeal.sim.task import load_task
from temporeal.sim.tasks.reach import DRIVES
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.guard_node import GuardNode
from temporeal_bridge.interface.checks import at_home
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.link.datagrams import Proposal
from temporeal_bridge.link.in_process import linked
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.policy_node import PolicyNode
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.dds import free_domain
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.selection import open_transport
from temporeal_bridge.transports.transport import QOS

CONFIGS = Path(__file__).parents[2] / "configs" / "task"
STEPS, ARRAY = 12, "std_msgs/msg/Float64MultiArray"
SAME = 1e-5  # of a command's own unit: rad, rad/s, m/s, N m, N or a share of full thrust


def loaded(name: str) -> Any:
    """The task ``name``, its ``name drive``, or that of a file in ``configs/task``."""
    if "/" in name:
        content = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
        return load_task(content["name"], **content["settings"])
    name, _, drive = name.partition(" ")
    return load_task(name, drive=drive) if drive else load_task(name)


def interface_of(task: Any, bus: str = "memory") -> Interface | None:
    """The first interface that has the task's command, of messages that the bus knows: a ROS 2 knows what was built."""
    if task.robot.ros is None or not task.robot.ros.exists():
        return None
    for name in yaml.safe_load(task.robot.ros.read_text())["interfaces"]:
        found = load_interface(task.robot, name)
        packages = {row.type.split("/")[0] for row in (*found.states, *found.commands.values())}
        if bus == "rclpy" and not all(map(importlib.util.find_spec, packages)):
            continue
        if task.command in found.commands and task.command in found.safety["commands"]:
            return found
    return None


def deployable() -> list[str]:
    """Tasks of robots that can be talked to, some interface of which carries the command, each drive of them, and the
    tasks that are a formula and nothing else: those of every system whose robot can be talked to."""
    known: dict[tuple[str, str], bool] = {}

    def carried(task: Any) -> bool:
        key = task.robot.name, task.command
        if key not in known:
            known[key] = interface_of(task) is not None
        return known[key]

    systems = {file.stem.partition("_")[0]: carried(loaded(f"stl/{file.stem}"))
               for file in CONFIGS.glob("stl/*_reach.yaml")}
    return [*(name for name in names("temporeal.sim.tasks") if carried(load_task(name))),
            *(f"reach {drive}" for drive in DRIVES if drive != "position"),
            *(f"stl/{file.stem}" for file in sorted(CONFIGS.glob("stl/*.yaml"))
              if systems[file.stem.partition("_")[0]])]


DEPLOYABLE = deployable()
SOME = [name for name in DEPLOYABLE if "/" not in name or name.endswith("_reach")]  # of each system one formula


def with_task_signals(task: Any, interface: Interface, folder: Path) -> Interface:
    """The interface, with topics for what the task reads and the robot does not say."""
    more = [n for n in task.observe.signals if n not in interface.carried and n != "mission_time"]
    if not more:
        return interface
    rows: dict[str, Any] = {"definitions": {}, "signals": {}, "states": []}
    for name in more:
        spec = task.robot.signals.get(name) or task.schema[name]
        if name not in task.robot.signals:
            rows["signals"][name] = {"shape": list(spec.shape), "unit": spec.unit, "frame": spec.frame}
        rows["states"].append({"topic": f"more/{name}", "type": ARRAY, "codec": "array", "rate_hz": 0,
                               "qos": "latched", "options": {"signal": name, "shape": list(spec.shape)}})
    path = folder / "more.yaml"
    path.write_text(yaml.safe_dump(rows))
    return load_interface(task.robot, interface.name, path)


def graph_of(task: Any, reflex: bool = False) -> PolicyGraph:
    """A policy of small actions, so that the guard lets it begin, but not so small that its commands are all alike;
    with a ``reflex``, which acts now and then, if asked."""
    torch.manual_seed(3)
    planned = SCHEDULE in task.observe.signals
    actor = make_actor(task.observe.obs_dim, task.act.action_dim, (32, 32))
    with torch.no_grad():
        # speeds of alike steps are alike; what is seen of a formula is large, and at an action's end all are alike
        actor.net[-1].weight *= 40.0 if task.command in task.robot.drives else 5.0 if planned else 20.0
    observe = task.observe
    if planned:  # as TGPO exports it: a critic chooses among schedules, in the artifact
        critic, schedules = Critic(observe.obs_dim, (32, 32), "silu"), task.schedules.buffer[:8].clone()
        observe = Choosing(observe, critic, Normalizer(observe.obs_dim), schedules, 0.1, observe.view.behind)
    graph = PolicyGraph(observe, Normalizer(observe.obs_dim), actor, task.act).eval()
    if not reflex:
        return graph
    layer = Reflex(task.observe.obs_dim, task.act.action_dim, (16,), "silu", 2)
    with torch.no_grad():
        for critic in layer.critics:
            critic[0].weight.mul_(10.0)  # of small changes of what is observed, great ones of the risk
    return ReflexGraph(graph, layer, ReflexSpec(2, 0.5, 0.49)).eval()


class Deployed:
    """Controller and guard of a task, and who publishes its signals. ``bus``: dds or rclpy on loopback, in real time,
    or memory."""

    def __init__(
        self, task: Any, graph: PolicyGraph, golden: dict[str, np.ndarray], folder: Path, bus: str = "memory"
    ) -> None:
        self.task, self.interface = task, with_task_signals(task, interface_of(task, bus), folder)
        has_reflex = isinstance(graph, ReflexGraph)
        policy, between = (graph.at(True), graph.at(False)) if has_reflex else (graph, None)
        spec = ArtifactSpec(
            robot=task.robot, signals=graph.signals, command=task.command, rate_hz=1 / task.control_dt,
            formula_text=task.formula_text, constants=task.constants, horizon_s=task.episode_s, training={}, seed=0,
            stop=task.stop, task_signals=dict(task.schema), reflex=graph.spec if has_reflex else None)
        artifact = export(policy, folder / "artifact", spec, golden, between=between)
        self.bus = Bus()
        controller, guarded = linked()
        self.proposals: dict[int, np.ndarray] = {}
        send = controller.send

        def heard(proposal: Proposal) -> bool:
            if len(proposal.values):
                self.proposals[proposal.step] = np.asarray(proposal.values)
            return send(proposal)

        controller.send = heard
        self.real, domain = bus != "memory", free_domain()
        transports: list[Any] = [
            open_transport(bus, name, "/r", domain=domain, loopback=True) if self.real else
            MemoryTransport(self.bus, name, "/r") for name in ("guard_node", "policy_node", "peer")]
        self.guard = GuardNode(transports[0], artifact.manifest, task.robot, self.interface, guarded)
        self.node = PolicyNode(transports[1], artifact, task.robot, self.interface, controller)
        self.transports, self.own = transports, transports[2]
        self.told: list[CommandRecord] = []
        self.own.subscribe("guard/command", ARRAY, QOS["deep"], lambda r: self.told.append(
            CommandRecord.of(messages.decode(ARRAY, r.data).data)))
        self.states = [(s, self.own.advertise(s.topic, s.type, QOS[s.qos] if s.qos == "latched" else QOS["default"]))
                       for s in self.interface.states]
        self.rng = np.random.default_rng(0)

    def publish(self, golden: dict[str, np.ndarray], t: int) -> None:
        """The signals of step ``t``, and home for what the task does not read."""
        signals = {name: value + 1e-6 * self.rng.normal(size=np.shape(value))
                   for name, value in at_home(self.task.robot, self.interface.carried).items()}
        signals |= {name.removeprefix("signals."): np.asarray(value[t], dtype=float)
                    for name, value in golden.items() if name.startswith("signals.")}
        for topic, endpoint in reversed(self.states):
            message = STATE_CODECS[topic.codec].encode(signals, self.own.now(), ("world", "r"), topic.options)
            self.own.publish(endpoint, messages.encode(topic.type, message))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.own.monotonic() + seconds
        while self.own.monotonic() < end - 1e-9:
            self.transports[1].wait(0.0)
            self.node.step()
            self.guard.step()
            self.own.wait(0.0)
            if not self.real:
                self.bus.advance(seconds / 8)

    def close(self) -> None:
        """Leave the bus."""
        for transport in self.transports:
            transport.close()


def test_only_tasks_of_robots_without_a_ros_yaml_are_left_out() -> None:
    """docs/reference/nodes.md names them."""
    silent = {name for name in robot_names() if not load_robot(name).ros or not load_robot(name).ros.exists()}
    assert silent == {"ant", "linear", "unicycle"}
    assert set(names("temporeal.sim.tasks")) - set(DEPLOYABLE) == {"ant", "any_formula", "stl"}
    files = {file.stem for file in CONFIGS.glob("stl/*.yaml")} - {name.partition("/")[2] for name in DEPLOYABLE}
    assert {file.partition("_")[0] for file in files} == silent


@pytest.mark.parametrize("name", thinned(SOME, keep=[  # of arms one
    "hover", "track", "waypoints", "reach", "cube_reorient", "cube_rotate", "stl/quadrotor_reach"]))
def test_the_robot_is_sent_what_the_training_environment_does(name: str, tmp_path: Path) -> None:
    same(name, tmp_path)


@pytest.mark.parametrize("name", thinned(SOME, keep=["hover", "cube_rotate"]))
def test_so_it_is_over_dds(name: str, tmp_path: Path) -> None:
    same(name, tmp_path, "dds")


@pytest.mark.skipif(importlib.util.find_spec("rclpy") is None, reason="rclpy is not importable: no sourced ROS 2")
@pytest.mark.parametrize("name", SOME)
def test_so_it_is_over_rclpy(name: str, tmp_path: Path) -> None:
    same(name, tmp_path, "rclpy")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(DEPLOYABLE) - set(SOME)))
def test_so_it_is_with_every_formula(name: str, tmp_path: Path) -> None:
    same(name, tmp_path)


@pytest.mark.parametrize("name", thinned(["waypoints", "reach"], keep=["waypoints"]))
def test_so_it_is_with_a_reflex(name: str, tmp_path: Path) -> None:
    memory = [memory for _, memory in same(name, tmp_path, reflex=True)]
    assert {float(m[PHASE][0]) for m in memory} == {0.0, 1.0} == {float(m[ENGAGED][0]) for m in memory}


def same(name: str, tmp_path: Path, bus: str = "memory", reflex: bool = False) -> list[Any]:
    """A mission of the task on the robot's side, against the environment that it was trained in, and its modules; what
    it saw, and the memory that it had then, step by step."""
    task = loaded(name)
    graph = graph_of(task, reflex)
    task = replace(task, observe=graph.observe)
    env = make_env(task, num_worlds=1, seed=2, compiled=False, threads=1, sensors={"noise": {}})
    golden = record_golden(env, graph_policy(graph), steps=STEPS)
    trained = golden[f"commands.{task.command}"].reshape(STEPS, -1)
    deployed = Deployed(task, graph, golden, tmp_path, bus)
    seen: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = []  # by step, those left out included
    act = deployed.node.policy.artifact.act

    def noted(signals: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        seen.append(({key: np.array(signals[key], dtype=np.float32) for key in graph.signals},
                     {key: np.array(value) for key, value in deployed.node.policy.artifact.memory.items()}))
        return act(signals)

    deployed.node.policy.artifact.act = noted
    for count in range(200):  # in real time they have to find each other first
        deployed.publish(golden, 0)
        deployed.run(0.02)
        if count >= 3 and deployed.node.mode == "ready" == deployed.guard.mode:
            break
    assert deployed.node.mode == "ready" and deployed.guard.mode == "ready", deployed.node.state.last_rejection
    deployed.node.begin(1)
    deployed.bus.advance(1e-6)  # a mission begins with a state that came after its start
    for t in range(STEPS):
        deployed.publish(golden, t)
        deployed.run(task.control_dt)
    figures = deployed.node.summary()
    deployed.close()
    if reflex:
        assert figures["reflex_steps"] == deployed.node.policy.artifact.reflexes > 0 and 0.0 <= figures["risk"] <= 1.0

    if not reflex:  # a step is not taken for another; what a reflex' policy holds is the same for two
        assert np.abs(np.diff(trained, axis=0)).max(axis=1).min() > 10 * SAME
    assert deployed.proposals, f"{deployed.guard.mode}: {deployed.guard.flight}"
    for step, asked in deployed.proposals.items():
        signals, memory = seen[step]
        for key, value in signals.items():
            if key != "mission_time":
                # the robot computes its tool's attitude from the joints: both signs are the same one
                signs = (1.0, -1.0) if key == "grip_quat_w" else (1.0,)
                assert any(np.isclose(sign * value, golden[f"signals.{key}"], rtol=0, atol=1e-6).reshape(
                    STEPS, -1).all(1).any() for sign in signs)
        with torch.no_grad():  # from the memory of each step, as the self-test: feedback multiplies roundings
            command, _ = graph({key: torch.from_numpy(value[None]) for key, value in signals.items()},
                               {key: torch.from_numpy(value) for key, value in memory.items()})
        assert (np.abs(asked - command[task.command][0].numpy().reshape(-1)) <= SAME).all()
    if not deployed.real:  # each step has the state of its time, and its memory is what the steps before made of it
        assert sorted(deployed.proposals) == list(range(STEPS))
        for step, asked in deployed.proposals.items():
            assert (np.abs(asked - trained[step]) <= SAME).all(), step
    # what reached the guard is what it logs, and what it sends, where it changes nothing
    forwarded = [told for told in deployed.told if told.step >= 0]
    assert forwarded, f"{deployed.guard.mode}: {deployed.guard.flight}"
    spec, free = task.robot.command(task.command), not np.isfinite(deployed.guard.config.limits.speed).any()
    for told in forwarded:
        assert np.array_equal(told.proposed, deployed.proposals[told.step])
        if free:  # no start ramp, no limits of motion
            assert np.array_equal(told.sent, np.clip(told.proposed, spec.low, spec.high))
    return seen
