"""A show in the browser: a local server (viser) with the scene, its controls, and the formula's state.

    page = Page(show, port=8080)
    page.run()                          # until it is interrupted; http://127.0.0.1:8080
    page.close()
"""

from __future__ import annotations

import contextlib
import io
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import viser

from temporeal.policies.evaluate.rollout import host
from temporeal.policies.evaluate.scene_figure import Goal, Part
from temporeal.policies.evaluate.viewer.viewer import (
    Show,
    best_way,
    ghostly,
    goal_pose,
    look_at,
    room,
    size_of,
    spatial,
)

Array = np.ndarray
REDRAW_S, TELL_S, REST_S = 1 / 30, 0.1, 1.5  # between pictures, between texts, and what an end is shown for
BEHIND_S = 0.3  # a simulation slower than real time is not run after
TRAIL = 300  # points of a trail
GOOD, AVOID, LINE, BLUE = (50, 170, 100), (215, 75, 65), (140, 150, 165), (40, 110, 230)
SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


class PortTaken(ValueError):
    """The port is not available."""


@dataclass
class Asked:
    """Clicks since the loop last looked."""

    playing: bool = True
    steps: int = 0
    restart: bool = False
    speed: float = 1.0
    world: int = 0
    by_hand: bool = False
    repeat: bool = True


class Page:
    """The page of ``show``, served from ``host``:``port``.

    Raises:
        PortTaken: the message says what to do.
    """

    def __init__(self, show: Show, *, host: str = "127.0.0.1", port: int = 8080) -> None:
        check_port(host, port)
        self.show, self.stage, self.figure = show, show.stage, show.stage.figure
        self.asked, self.moment = Asked(), show.restart()
        with quiet():
            self.server = viser.ViserServer(host=host, port=port, label=f"temporeal view {show.task.name}",
                                            verbose=False)
        if self.server.get_port() != port:  # it took another because this one went meanwhile
            self.close()
            raise taken(host, port)
        self.url = f"http://{host if ':' not in host else f'[{host}]'}:{port}"
        self.scale = size_of(self.figure, self.moment.qpos[0])
        self.trail: list[Array] = []
        self._drawn = self._told = 0.0
        try:
            self._build_scene()
            self._build_controls()
            self.draw()
        except BaseException:
            self.close()
            raise

    # ---- scene

    def _build_scene(self) -> None:
        scene, shapes = self.server.scene, self.show.task.shapes
        look = look_at(room(self.stage, self.moment, shapes), best_way(self.stage, self.moment, shapes, 1.5), 1.5)
        self.server.gui.configure_theme(show_logo=False, show_share_button=False, control_width="large")
        scene.set_up_direction("+z")
        self.server.initial_camera.position = tuple(look.eye)
        self.server.initial_camera.look_at = tuple(look.target)
        self.server.initial_camera.fov = float(np.radians(look.fovy + 10))
        for i, height in enumerate(self.figure.floors):
            scene.add_grid(f"/floor/{i}", 40.0, 40.0, cell_size=0.25, section_size=1.0, position=(0, 0, height - 1e-3),
                           plane_color=(225, 229, 234), plane_opacity=1.0, cell_color=(200, 206, 213),
                           section_color=(170, 178, 188), fade_distance=30.0)
        mj = self.figure.model.mj
        names = [mj.body(b).name or f"body_{b}" for b in self.figure.bodies]
        self.bodies = [scene.add_frame(f"/world/{name}", show_axes=False) for name in names]
        used: dict[str, int] = {}
        self.meshes: dict[str, Any] = {}  # of geoms, by name
        for part in self.figure.parts:
            home = f"/world/{names[part.body]}" if part.body >= 0 else "/world"
            name = f"{home}/{part.name.replace('/', '_')}"
            used[name] = used.get(name, 0) + 1
            self.meshes[part.name] = add_part(scene, name if used[name] == 1 else f"{name}.{used[name]}", part)
        for shape in self.show.task.shapes:
            add_shape(scene, shape)
        self.goals = [(goal, self._add_goal(goal)) for goal in self.stage.goals]
        self.tool = scene.add_frame("/followed", axes_length=0.13 * self.scale, axes_radius=0.004 * self.scale,
                                    visible=self.stage.attitude is not None)
        self.path = scene.add_line_segments("/trail", np.zeros((1, 2, 3), np.float32), BLUE,
                                            thickness=3.0, thickness_units="screen")

    def _add_goal(self, goal: Goal) -> Any:
        """A ball at the goal's position, axes for its attitude, and as a ghost the body that shall have that attitude.
        """
        scene, home = self.server.scene, f"/goal/{goal.name}"
        frame = scene.add_frame(home, show_axes=goal.attitude is not None, axes_length=0.2 * self.scale,
                                axes_radius=0.003 * self.scale)
        if goal.place and goal.radius:
            scene.add_icosphere(f"{home}/ball", max(goal.radius, 0.01 * self.scale), GOOD, opacity=0.45,
                                cast_shadow=False)
        for i, part in enumerate(self.stage.ghost(goal)):
            scene.add_mesh_simple(f"{home}/ghost/{i}", part.mesh.vertices.astype(np.float32),
                                  part.mesh.triangles().astype(np.uint32), color=ghostly(part.rgba), opacity=0.45,
                                  flat_shading=True, side="double", cast_shadow=False)
        return frame

    # ---- controls

    def _build_controls(self) -> None:
        gui, asked = self.server.gui, self.asked
        self.status = gui.add_markdown("")
        self.play = gui.add_button("Pause")
        self.play.on_click(lambda _: self._toggle())
        gui.add_button("One step").on_click(lambda _: self._one())
        gui.add_button("New episode").on_click(lambda _: setattr(asked, "restart", True))
        speed = gui.add_dropdown("Speed", [f"{s:g}" for s in SPEEDS], initial_value="1")
        speed.on_update(lambda _: setattr(asked, "speed", float(speed.value)))
        repeat = gui.add_checkbox("Go on after an end", True)
        repeat.on_update(lambda _: setattr(asked, "repeat", repeat.value))
        count = len(self.moment.qpos)
        if count > 1:
            world = gui.add_dropdown("World", [str(i) for i in range(count)], initial_value="0")
            world.on_update(lambda _: self._choose(int(world.value)))
        self.pictures = self._add_pictures()
        self._add_joints()
        with gui.add_folder("Formula", expand_by_default=False):
            gui.add_markdown(f"```\n{self.show.task.formula_text.strip()}\n```")

    def _toggle(self) -> None:
        self.asked.playing = not self.asked.playing
        self.play.label = "Pause" if self.asked.playing else "Play"

    def _one(self) -> None:
        if self.asked.playing:
            self._toggle()
        self.asked.steps += 1

    def _choose(self, world: int) -> None:
        self.asked.world, self.trail = world, []

    def _add_pictures(self) -> dict[str, Any]:
        images = {n: v for n, v in self.show.env.images.items() if n.endswith("_rgb")}
        if not images:
            return {}
        with self.server.gui.add_folder("Cameras"):
            return {n: self.server.gui.add_image(host(v[0]), label=n.removesuffix("_rgb")) for n, v in images.items()}

    def _add_joints(self) -> None:
        """Sliders that pose the robot by hand, to inspect joints and limits; nothing is simulated."""
        mj, self.sliders = self.figure.model.mj, []
        joints = [j for j in range(mj.njnt) if mj.jnt_type[j] >= int(mujoco.mjtJoint.mjJNT_SLIDE)]
        if not joints:
            return
        gui = self.server.gui
        with gui.add_folder("Joints", expand_by_default=False):
            by_hand = gui.add_checkbox("Pose by hand", False)
            by_hand.on_update(lambda _: setattr(self.asked, "by_hand", by_hand.value))
            for joint in joints:
                low, high = (float(x) for x in mj.jnt_range[joint]) if mj.jnt_limited[joint] else (-np.pi, np.pi)
                now = float(self.moment.qpos[0][mj.jnt_qposadr[joint]])
                slider = gui.add_slider(mj.joint(joint).name or f"joint {joint}", low, high, (high - low) / 500,
                                        min(max(now, low), high))
                self.sliders.append((int(mj.jnt_qposadr[joint]), slider))

    # ---- the loop

    def run(self, seconds: float | None = None) -> None:
        """Play in real time, for ``seconds`` or until an interrupt."""
        end = None if seconds is None else time.monotonic() + seconds
        due = time.monotonic()
        while end is None or time.monotonic() < end:
            now = time.monotonic()
            if self.asked.restart:
                self._restart()
                due = now
            elif self.asked.steps and not self.asked.playing:
                self.asked.steps -= 1
                self.step()
            elif self.asked.playing and not self.asked.by_hand and now >= due:
                due = self._played(due, now)
            elif now - self._drawn >= REDRAW_S and (self.asked.by_hand or self._stale):
                self.draw()
            else:
                time.sleep(0.004)

    def _played(self, due: float, now: float) -> float:
        """Advance one control step, or pause at an episode's end; the time when the next step is due."""
        if self.moment.over.all():
            if self.asked.repeat:
                self._restart()
            return now + (0.0 if self.asked.repeat else 0.1)
        self.step()
        due = max(due, now - BEHIND_S) + self.show.task.control_dt / self.asked.speed
        return due if not self.moment.over.all() else now + REST_S

    def _restart(self) -> None:
        self.asked.restart, self.trail = False, []
        self.moment = self.show.restart()
        self.draw()

    def step(self) -> None:
        """One control step; the picture is updated at its own rate."""
        self.moment = self.show.step()
        if self.moment.time == 0:
            self.trail = []
        if self.stage.point:
            self.trail.append(spatial(self.moment.signals[self.stage.point])[self.asked.world])
        self._stale = True
        if time.monotonic() - self._drawn >= REDRAW_S:
            self.draw()

    def draw(self) -> None:
        """Send the current state."""
        self._stale, self._drawn = False, time.monotonic()
        world, moment = self.asked.world, self.moment
        qpos = np.array(moment.qpos[world])
        if self.asked.by_hand:
            for at, slider in self.sliders:
                qpos[at] = slider.value
        if not np.isfinite(qpos).all():
            return
        (pos,), (quat,) = self.figure.poses(qpos[None])
        with self.server.atomic():
            for frame, p, q in zip(self.bodies, pos, quat):
                frame.position, frame.wxyz = p, q
            for goal, frame in self.goals:
                place, turn = goal_pose(goal, self.stage, moment.signals, world)
                frame.position = place
                if turn is not None:
                    frame.wxyz = turn
            self._draw_followed(world)
            self._paint(world)
        if time.monotonic() - self._told >= TELL_S or moment.over[world]:
            self._tell(world)

    def _paint(self, world: int) -> None:
        """The colours of geoms that the task drew for the episode."""
        for name, values in self.show.looks.items():
            mesh = self.meshes.get(name.removeprefix("color.")) if name.startswith("color.") else None
            if mesh is not None and mesh.color != (rgb := bytes_of(values[world].tolist())):
                mesh.color = rgb

    def _draw_followed(self, world: int) -> None:
        if self.stage.point:
            self.tool.position = spatial(self.moment.signals[self.stage.point])[world]
        if self.stage.attitude:
            self.tool.wxyz = self.moment.signals[self.stage.attitude][world]
        points = np.array(self.trail[:: max(1, len(self.trail) // TRAIL)], np.float32)
        self.path.visible = len(points) > 1
        if len(points) > 1:
            self.path.points = np.stack([points[:-1], points[1:]], 1)

    def _tell(self, world: int) -> None:
        self._told = time.monotonic()
        self.status.content = status_text(self.show, world)
        for name, handle in self.pictures.items():
            handle.image = host(self.show.env.images[name][world])

    def close(self) -> None:
        """Stop serving."""
        with quiet():
            self.server.stop()


def status_text(show: Show, world: int) -> str:
    """Time, verdict and clauses as Markdown."""
    moment = show.moment
    assert moment is not None
    reading, verdict = moment.readings[world], moment.verdict(world)
    early = " (ended early)" if moment.terminated[world] else ""
    rows = [f"- {MARKS[c.verdict]} {between(c.lower, c.upper)} {code(c.text)}" for c in reading.clauses]
    return "\n".join([
        f"**{show.task.name}** · {show.task.robot.name} · t = {moment.time:.2f} s", "",
        f"{MARKS[verdict]} **{verdict}**{early}, robustness {between(reading.lower, reading.upper)}", "", *rows])


MARKS = {"satisfied": "✓", "violated": "✗", "undecided": "○"}


def between(low: float, high: float) -> str:
    """Bounds of robustness as text."""
    return bound(low) if low == high else f"{bound(low)} … {bound(high)}"


def code(text: str) -> str:
    """A formula as Markdown code."""
    return "`" + " ".join(text.replace("`", "'").split()) + "`"


def bound(value: float) -> str:
    """A bound of robustness as text."""
    return f"{value:+.3f}" if np.isfinite(value) else "−∞" if value < 0 else "∞"


def bytes_of(rgb: Sequence[float]) -> tuple[int, ...]:
    """A colour, 0 to 1, as 0 to 255."""
    return tuple(round(255 * min(max(c, 0.0), 1.0)) for c in rgb)


def add_part(scene: Any, name: str, part: Part) -> Any:
    """Add a geom. Corners are not shared between faces, so that edges stay sharp."""
    return scene.add_mesh_simple(
        name, part.mesh.vertices.astype(np.float32), part.mesh.triangles().astype(np.uint32),
        color=bytes_of(part.rgba[:3]), opacity=None if part.rgba[3] >= 1 else part.rgba[3], flat_shading=True,
        side="double")


def add_shape(scene: Any, shape: Mapping[str, Any]) -> None:
    """Add a shape of the task."""
    color = AVOID if shape.get("role") == "avoid" else GOOD if shape.get("role") == "goal" else LINE
    name = f"/shapes/{shape.get('name', shape['type'])}"
    if shape["type"] == "sphere":
        scene.add_icosphere(name, float(shape["radius"]), color, opacity=0.35, position=tuple(shape["center"]),
                            cast_shadow=False)
    elif shape["type"] == "cylinder":
        x, y, z = np.resize(np.append(np.array(shape["center"], float), 0.0), 3)
        tall = float(shape["height"])
        scene.add_cylinder(name, float(shape["radius"]), tall, color, opacity=0.5, position=(x, y, z + tall / 2))
    elif shape["type"] in ("box", "path"):
        scene.add_line_segments(name, segments(shape).astype(np.float32), color, thickness=2.0,
                                thickness_units="screen")


def segments(shape: Mapping[str, Any]) -> Array:
    """The lines [M, 2, 3] m of a box or a path."""
    if shape["type"] == "path":
        points = np.array(shape["points"], float)
        return np.stack([points[:-1], points[1:]], 1)
    corners = [[(shape["low"], shape["high"])[i >> m & 1][m] for m in range(3)] for i in range(8)]
    return np.array([(corners[i], corners[j]) for i in range(8) for j in range(i + 1, 8)
                     if bin(i ^ j).count("1") == 1], float)


# ---- ports


def check_port(host: str, port: int) -> None:
    """Refuse a port on which no server can listen now."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        raise PortTaken(f"--host {host}: no such address on this machine ({error.strerror})") from error
    except OSError as error:
        raise taken(host, port, error.strerror) from error


def taken(host: str, port: int, why: str = "Address already in use") -> PortTaken:
    """The error for a port that is not available."""
    return PortTaken(f"cannot serve on {host} port {port} ({why}): choose another with --port")


def free_port(host: str, ports: Sequence[int]) -> int:
    """The first available one of ``ports``."""
    for port in ports:
        with contextlib.suppress(PortTaken):
            check_port(host, port)
            return port
    raise PortTaken(f"ports {ports[0]} to {ports[-1]} of {host} are all in use: choose another with --port")


@contextlib.contextmanager
def quiet() -> Any:
    """Suppress the server's own output: it may name another address."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


