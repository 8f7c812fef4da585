"""`temporeal robot view`: the robot in its simulator, held at home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import print_json, say
from temporeal.policies.runs.errors import OK, BadInput, bad_input
from temporeal.policies.runs.replacing import refuse_to_replace
from temporeal.robots.atomic_files import write_whole
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import RobotSpec, load_robot

if TYPE_CHECKING:
    from pathlib import Path

    from temporeal.policies.evaluate.viewer.viewer import Show
    from temporeal.sim.task import Task

CONTROL_DT, SUBSTEPS, EPISODE_S = 0.04, 20, 10.0
SIZE, CORNERS, PORTS = (960, 720), 48, range(8080, 8100)


def look(options: Any) -> int:
    """Show the robot as `temporeal view` shows a task's world: in the browser, or as a PNG with ``--png``."""
    if options.png is not None and options.png.suffix.lower() != ".png":
        raise BadInput(f"--png is a file with the ending .png, got {str(options.png)!r}")
    refuse_to_replace(options.png, options.overwrite, "--png")
    with bad_input():
        show = standing(load_robot(options.robot))
        try:
            if options.png is not None:
                picture(show, options.png)
                result = {"robot": options.robot, "png": options.png}
                print_json(result) if options.json else say(f"{options.png}: {options.robot} at home")
            else:
                browse(show, options)
        finally:
            show.env.backend.close()
    return OK


def picture(show: Show, path: Path) -> None:
    """Write a picture of the robot at home."""
    import cv2

    from temporeal.policies.evaluate.viewer.pictures import Studio

    moment = show.restart()
    studio = Studio(show, moment, size=SIZE, camera=None, renderer="auto")
    try:
        _, data = cv2.imencode(".png", cv2.cvtColor(studio.take(moment), cv2.COLOR_RGB2BGR))
    finally:
        studio.close()
    write_whole(path, data.tobytes())


def browse(show: Show, options: Any) -> None:
    """Serve the robot to a browser until Ctrl-C."""
    from temporeal.policies.evaluate.viewer.browser import Page, free_port

    host = "127.0.0.1"
    page = Page(show, host=host, port=options.port or free_port(host, PORTS))
    try:
        if options.json:
            print_json({"robot": options.robot, "url": page.url})
        else:
            say(f"{options.robot}: {page.url} (Ctrl-C ends it)")
        page.run(options.seconds)
    finally:
        page.close()


def standing(robot: RobotSpec) -> Show:
    """A world in which the robot is held at home."""
    from temporeal.policies.evaluate.scene_figure import stage_of
    from temporeal.policies.evaluate.viewer.viewer import Show
    from temporeal.sim.env import make_env

    task = home_task(robot)
    env = make_env(task, num_worlds=1, backend="quadrotor" if robot.kind == "quadrotor" else "mujoco", compiled=False)
    return Show(env, stage_of(task, corners=CORNERS))


def home_task(robot: RobotSpec) -> Task:
    """A task in which nothing is asked: zero actions are the command that holds home."""
    from temporeal.sim.maps import AffineAction
    from temporeal.sim.scene import Scene
    from temporeal.sim.stl.language.parse import parse
    from temporeal.sim.task import Task, task_schema

    command, center = resting(robot)
    text = f"G[0,{EPISODE_S:g}] (mission_time >= 0)"
    return Task(
        name=f"{robot.name}, held at home", scene=Scene(robot), command=command, control_dt=CONTROL_DT,
        substeps=SUBSTEPS, episode_s=EPISODE_S, formula=parse(text, task_schema(robot), {}), formula_text=text,
        constants={}, observe=sees(next(iter(robot.signals.values()))),
        act=AffineAction(robot, command, center, [1e-6] * len(center)), objective=Unasked(), initial=lambda draw: {})


def resting(robot: RobotSpec) -> tuple[str, list[float]]:
    """A command, and its value that holds home: for positions home itself, for a quadrotor its weight."""
    if robot.kind == "quadrotor":
        return "ctbr_cmd", [9.81 * robot.parameters["mass"].nominal[0], 0.0, 0.0, 0.0]
    names = robot.sources["joint_pos"].names if "joint_pos" in robot.sources else ()
    home = dict(zip(names, robot.home.get("joint_pos", ())))
    if not robot.commands:
        raise BadInput(f"{robot.name} has no command: say in its YAML which joints or actuators one drives (commands:)")
    name, spec = next(iter(robot.commands.items()))
    return name, [min(max(home.get(driven, 0.0), low), high)
                  for driven, low, high in zip(robot.actuators[name], spec.low, spec.high)]


class Unasked:
    """No reward and no end."""

    privileged_dim = 1
    carry: Mapping[str, tuple[int, ...]] = {}

    def start(self, signals: Mapping[str, Any], carry: Any) -> Any:
        """Nothing is kept."""
        return carry

    def step(self, signals: Mapping[str, Any], action: Any, carry: Any) -> tuple[Any, Any, Any]:
        """Nothing is rewarded, nothing ends."""
        time = signals["mission_time"]
        return 0.0 * time, time < 0, carry

    def privileged(self, signals: Mapping[str, Any], carry: Any) -> Any:
        """The time."""
        return signals["mission_time"][:, None]

    def success(self, signals: Mapping[str, Any], carry: Any) -> Any:
        """Always."""
        return signals["mission_time"] >= 0


def sees(signal: SignalSpec) -> Any:
    """An observation map that sees one signal."""
    from torch import nn

    class Sees(nn.Module):
        signals = (signal.name,)
        memory: Mapping[str, Any] = {}
        obs_dim = signal.size

        def forward(self, signals: Mapping[str, Any], memory: Any) -> Any:
            return signals[signal.name].reshape(-1, signal.size), memory

        def record(self, memory: Any, action: Any) -> Any:
            return memory

    return Sees()
