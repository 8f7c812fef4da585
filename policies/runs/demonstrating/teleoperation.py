"""Record demonstrations in simulation: which settings, which device, and the set's interface."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from temporeal.policies.runs import environments, run_folders
from temporeal.policies.runs.demonstrating import demonstrations
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    import numpy as np

    from temporeal.policies.data.episodes.interface import Interface
    from temporeal.policies.data.recording.controls import Device
    from temporeal.policies.data.recording.operators import Acts, Operator
    from temporeal.policies.data.recording.simulation import Recording
    from temporeal.policies.evaluate.viewer.browser import Page
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task
    from temporeal.sim.types import Obs

OWN = ("device", "episodes", "seconds", "language", "speed", "policy", "pictures", "append", "leader", "interface",
       "domain", "realtime", "view", "port")
"""Words that are not settings of the task."""
BY_HAND = ("keyboard", "gamepad", "spacemouse", "leader")
"""Devices of people, who must see what they do."""
CORNERS = 48  # of a circle that is drawn
DEVICES = ("keyboard", "gamepad", "spacemouse", "leader", "policy", "expert")
YES, NO = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True)
class Request:
    """What is to be recorded.

    Args:
        settings: the world's. ``out``: the folder.
        device: one of :data:`DEVICES`. ``policy``: of device policy, a run or an artifact.
        seconds: the longest episode; None: the task's.
        language: the instruction; None: the task's sentence.
        speed: the action at full deflection.
        append: add to the set that is there.
        leader: namespace of the leader arm; interface: its topics; domain: DDS domain.
        realtime: wait for the clock; a policy need not.
        port: of the page on which the robot is seen; None: there is none.
    """

    settings: Settings
    out: Path
    device: str
    episodes: int
    seconds: float | None
    language: str | None
    speed: float
    policy: str
    pictures: str
    append: bool
    leader: str
    interface: str | None
    domain: int | None
    realtime: bool
    port: int | None = None


def request_of(words: Sequence[str]) -> Request:
    """The request that a command's ``words`` make."""
    own = {key: value for key, _, value in (word.partition("=") for word in words) if key in OWN}
    others = [word for word in words if word.partition("=")[0] not in OWN]
    settings = compose([*others, "num_worlds=1"])
    if settings["out"] is None:
        raise BadInput("out=FOLDER is needed: where the dataset is written")
    device = own.get("device", "keyboard")
    if device not in DEVICES:
        raise BadInput(f"device={device}: legal are {', '.join(DEVICES)}")
    if (device == "policy") != ("policy" in own):
        raise BadInput("policy=RUN names the policy of device=policy: a run's folder or an artifact")
    seconds = above_zero(own, "seconds") if "seconds" in own else None
    speed = above_zero(own, "speed") if "speed" in own else 1.0
    if speed > 1.0:
        raise BadInput(f"speed={speed:g}: above 0, at most 1, the action at full deflection")
    return Request(
        settings, Path(str(settings["out"])), device, demonstrations.number(own, "episodes", 10), seconds,
        own.get("language"), speed, own.get("policy", ""), own.get("pictures", "h264"), flag(own, "append", False),
        own.get("leader", "/leader"), own.get("interface"),
        demonstrations.number(own, "domain", 0) if own.get("domain", "0") != "0" else None,
        flag(own, "realtime", device in BY_HAND),
        demonstrations.number(own, "port", 8080) if flag(own, "view", device in BY_HAND) else None)


def above_zero(own: Mapping[str, str], key: str) -> float:
    """The number ``key`` above 0."""
    try:
        value = float(own[key])
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise BadInput(f"{key}={own[key]}: a number above 0")
    return value


def flag(own: Mapping[str, str], key: str, default: bool) -> bool:
    """``key=true``."""
    text = own.get(key, str(default)).lower()
    if text not in (*YES, *NO):
        raise BadInput(f"{key}={own[key]}: true or false")
    return text in YES


@dataclass(frozen=True)
class Recorded:
    """What was recorded. ``late``: control steps that began late."""

    folder: Path
    episodes: int
    discarded: int
    successes: int
    late: int


def record(request: Request, say: Callable[[str], None], operator: Operator | None = None) -> Recorded:
    """Record until enough episodes are there, or the operator quits.

    Args:
        operator: in place of the device that is asked for, as a test's double.
    """
    from temporeal.policies.data.demonstrators.collecting import prolonged, read_by_formula
    from temporeal.policies.data.demonstrators.scripted import sentence
    from temporeal.policies.data.episodes.writer import DatasetWriter
    from temporeal.policies.data.recording.session import Session
    from temporeal.policies.data.recording.simulation import AtOnce, RealTime, Recording
    from temporeal.policies.evaluate.measurement_recorder import with_recorder

    run_folders.check_writable(request.out, "out=FOLDER")
    task, make = acting(request)
    steps = task.steps if request.seconds is None else max(1, round(request.seconds / task.control_dt))
    with bad_input():
        env = environments.make_env(request.settings, task=prolonged(with_recorder(task, read_by_formula(task)), steps))
        measure = Measurement(task)
        if request.append:  # other episodes than those that are there
            env.reseed(env.seed + recorded_before(request.out))
        env.reset()
        interface = interface_of(request, env, task, measure)
        mine = operator or operator_of(request, task, make, env)
        session, page = None, None
        try:
            with DatasetWriter(request.out, interface, request.append, pictures=request.pictures) as writer:
                session = Session(writer, request.episodes, sentence(task) if request.language is None else
                                  request.language, {"device": request.device, "seed": env.seed}, say)
                recording = Recording(env, mine, session, measure, steps, RealTime() if request.realtime else AtOnce())
                if request.port is not None:
                    page = watched(recording, task, request.port)
                    say(f"watch: {page.url}")
                if mine.words:
                    say(mine.words)
                recording.run()
        finally:
            mine.close()
            if page is not None:
                page.close()
            if session is not None and not session.recorded and not request.append:
                shutil.rmtree(request.out, ignore_errors=True)  # an empty set would be in the way
    return Recorded(request.out, session.recorded, session.discarded, session.successes, recording.late)


def watched(recording: Recording, task: Task, port: int) -> Page:
    """A page on which the recording is seen."""
    from temporeal.policies.evaluate.scene_figure import stage_of
    from temporeal.policies.evaluate.viewer.browser import Page
    from temporeal.policies.evaluate.viewer.followed import Followed

    page = Page(Followed(recording.env, stage_of(task, corners=CORNERS)), port=port)

    def show() -> None:
        if recording.session.steps == 0:
            page.moment, page.trail = page.show.restart(), []
            page.draw()
        else:
            page.step()

    recording.show = show
    return page


def recorded_before(folder: Path) -> int:
    """Episodes of the set that is appended to; 0: there is none."""
    from temporeal.policies.data.episodes.dataset import Dataset

    return Dataset.open(folder).episodes if folder.is_dir() and any(folder.iterdir()) else 0


class Measurement:
    """What is recorded of a sample: what was measured, pictures, and what the formula reads."""

    def __init__(self, task: Task) -> None:
        from temporeal.policies.data.demonstrators.collecting import read_by_formula

        self.names = read_by_formula(task)

    def __call__(self, env: Env) -> dict[str, np.ndarray]:
        """The newest signals [1, ...]."""
        from temporeal.policies.data.demonstrators.collecting import TRUE, host, seen
        from temporeal.policies.evaluate.measurement_recorder import measured

        truth = host(env.true_signals(), self.names)
        if demonstrations.distorted(env):
            truth = {f"{TRUE}{name}": value for name, value in truth.items()}
        return {**truth, **seen(env, measured)}


def interface_of(request: Request, env: Env, task: Task, measure: Measurement) -> Interface:
    """What the numbers of the set mean."""
    from temporeal.policies.data.episodes.interface import ActionSpec, Interface
    from temporeal.robots.signals import schema

    command, own = task.robot.command(task.command), request.device != "leader"
    specs = [demonstrations.spec_of(task, name, values) for name, values in measure(env).items()]
    return Interface(
        task.robot.name, schema(*specs),
        ActionSpec(command.name, tuple(map(float, command.low)), tuple(map(float, command.high)), command.unit),
        1.0 / task.control_dt, task_action=task.act.action_dim if own else 0, task=task.name,
        simulator=demonstrations.simulator(env),
        about={"settings": {key: request.settings[key] for key in demonstrations.STORED if key in request.settings},
               "formula": task.formula_text, "recorded": {"device": request.device, "policy": request.policy}})


def acting(request: Request) -> tuple[Task, Callable[[Env], Acts] | None]:
    """The task as the world must show it, and what acts in one episode where no person does."""
    if request.device not in ("policy", "expert"):
        return environments.make_task(request.settings), None
    expert = "scripted" if request.device == "expert" else request.policy
    task, (make,) = demonstrations.experts_of(
        demonstrations.Request(request.settings, request.out, "expert", 1, (expert,)))

    def in_world(env: Env) -> Acts:
        import torch

        act, whole_speed = make(env), torch.ones(1)

        def choose(obs: Obs, signals: Mapping[str, np.ndarray]) -> np.ndarray:
            return act(obs, env.true_signals(), whole_speed)[0].detach().numpy()

        return choose

    return task, in_world


def operator_of(request: Request, task: Task, make: Callable[[Env], Acts] | None, env: Env) -> Operator:
    """Who acts."""
    from temporeal.policies.data.recording.keyboard import Terminal
    from temporeal.policies.data.recording.operators import Acting, Handheld

    keys: Device | None = Terminal() if sys.stdin.isatty() else None
    try:
        if make is not None:
            return Acting(lambda: make(env), keys)
        if request.device == "leader":
            return leader_of(request, task, keys)
        device = device_of(request.device, keys)
        return Handheld(device, task.robot.kind, task.act.action_dim, request.speed, None if device is keys else keys)
    except BaseException:
        if keys is not None:
            keys.close()
        raise


def device_of(name: str, keys: Device | None) -> Device:
    """The device called ``name``; a :class:`BadInput` says what is missing."""
    try:
        if name == "gamepad":
            from temporeal.policies.data.recording.gamepad import Gamepad

            return Gamepad()
        if name == "spacemouse":
            from temporeal.policies.data.recording.spacemouse import SpaceMouse

            return SpaceMouse()
        return keys if keys is not None else screen_keys()
    except OSError as error:
        raise BadInput(f"device={name}: {error}") from error


def screen_keys() -> Device:
    """The keys of the graphical session, where standard input is no terminal."""
    from importlib.util import find_spec

    if find_spec("pynput") is None or not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        raise OSError("standard input is no terminal, whose keyboard it would be; pynput takes the keys of a graphical "
                      "session: pip install pynput")
    from temporeal.policies.data.recording.keyboard import Screen

    return Screen()


def leader_of(request: Request, task: Task, keys: Device | None) -> Operator:
    """The leader arm of a recording."""
    return leader_on(request.leader, request.interface, request.domain, task, keys)


def leader_on(
    namespace: str, interface: str | None, domain: int | None, task: Task, keys: Device | None
) -> Operator:
    """A leader arm on the bus, of the task's robot."""
    from temporeal.policies.data.recording.leader_arm import LeaderArm
    from temporeal_bridge.interface.loading import load_interface
    from temporeal_bridge.transports.selection import open_transport

    transport = open_transport("auto", "temporeal_recorder", namespace, domain=domain)
    try:
        return LeaderArm(transport, task.robot, load_interface(task.robot, interface), task.command,
                         task.act.action_dim, keys)
    except BaseException:
        transport.close()
        raise
