"""Pictures of a show: the worlds through one camera side by side, with goals, shapes, trails and verdicts.

    studio = Studio(show, moment, size=(640, 480))
    frame = studio.take(moment)                     # uint8 [H, W, 3]
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from math import ceil, cos, exp, pi, sin, sqrt
from typing import Any

import cv2
import numpy as np
import torch

from temporeal.policies.evaluate.scene_figure import Goal, rotation
from temporeal.policies.evaluate.viewer.viewer import (
    COLORS,
    FRAME,
    SIDES,
    USUAL,
    Look,
    Moment,
    Show,
    around_goal,
    best_way,
    ghostly,
    goal_pose,
    in_words,
    look_at,
    roams,
    room,
    shape_points,
    size_of,
    spatial,
)
from temporeal.robots.registry import UnknownName
from temporeal.sim.rendering.cameras import Camera
from temporeal.sim.rendering.opengl_renderer import MissingRenderer
from temporeal.sim.rendering.rig import Rig
from temporeal.sim.rendering.video import OUTLINE, label, tile
from temporeal.sim.rendering.viewpoints import names_of

Array = np.ndarray
log = logging.getLogger(__name__)
NAME = "onlooker"  # of the camera that is placed
FOLLOW = "follow"
GHOST = 0.55  # opacity of a ghost
VIEWPOINTS = (FRAME, *SIDES, FOLLOW)
CORNERS = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
SETTLE_S = 0.7  # time constant of a camera that follows
LEAST = 16  # pixels: half the size of a robot in the picture, at least
FINER = 2  # pixels are averages of this many squared: the renderers take one sample per pixel
TALL = 110  # pixels: a smaller picture has no room for words
GOOD, AVOID, LINE, TRAIL = (64, 190, 120), (230, 90, 80), (150, 160, 175), (80, 150, 255)
AXES = ((225, 70, 62), (60, 185, 90), (70, 130, 245))
SKY = ((176, 194, 214), (226, 232, 238))  # at the top and at the horizon


class Studio:
    """A camera for the worlds of a show.

    Args:
        first: the moment by which the viewpoint is chosen.
        size: width and height of the picture of one world, pixels.
        camera: one of the model's own, or a viewpoint: ``frame`` (everything present at the start, from where its
            objects are seen best), ``front``, ``side``, ``top``, ``follow`` (the bodies that the formula is about, and
            their goals). Default: ``follow`` for mobile robots, ``frame`` for others: in the plane, from above.
        renderer: as of :class:`temporeal.sim.rendering.rig.Rig`, but for ``auto``: see :func:`pictures_rig`.
    """

    def __init__(
        self, show: Show, first: Moment, *, size: tuple[int, int] = (640, 480), camera: str | None = None,
        renderer: str = "auto",
    ) -> None:
        self.show, self.stage, (self.width, self.height) = show, show.stage, size
        model = self.stage.figure.model.mj
        self.camera = camera or (FOLLOW if roams(self.stage) else FRAME)
        self.own = self.camera in names_of(model, "camera")
        if not self.own and self.camera not in VIEWPOINTS:
            known = [n for n in names_of(model, "camera") if n]
            raise UnknownName(f"no camera {self.camera!r}; viewpoints: {', '.join(VIEWPOINTS)}; the model's own: "
                              f"{', '.join(known) or 'none'}")
        self.scale = size_of(self.stage.figure, first.qpos[0])
        self.look = self._choose(first)
        name = self.camera if self.own else NAME
        place: dict[str, Any] = {} if self.own else {
            "pos": tuple(map(float, self.look.eye)), "quat": self.look.quat, "fovy_deg": self.look.fovy}
        view = Camera(name, FINER * self.width, FINER * self.height, **place)
        self.rig = pictures_rig(model, len(first.qpos), view, renderer)
        self.name = name
        self.trails: list[list[Array]] = [[] for _ in first.qpos]
        self.last: Moment | None = None
        self.painted: Mapping[str, torch.Tensor] = {}
        self.looks: list[Look] = []  # of each world, where it is followed

    def _choose(self, first: Moment) -> Look:
        if self.camera == FOLLOW:
            return self._wanted(first, 0)
        points, aspect = room(self.stage, first, self.show.task.shapes), self.width / self.height
        if self.camera in SIDES:
            return look_at(points, self.camera, aspect)
        return look_at(points, best_way(self.stage, first, self.show.task.shapes, aspect), aspect)

    def _wanted(self, moment: Moment, world: int) -> Look:
        """The viewpoint that shows the followed bodies, with room to move, and their goals."""
        at = self._followed(moment)[world]
        points = [at + 1.2 * self.scale * np.array(corner) for corner in CORNERS]
        for goal in self.stage.goals:
            points += [*around_goal(goal, self.stage, moment.signals, world)] if goal.place else []
        return look_at(np.array(points), np.array(USUAL), self.width / self.height)

    def _move(self, moment: Moment) -> None:
        """Move each world's camera towards its wanted place gradually: a goal that jumps must not make the picture
        jump."""
        wanted = [self._wanted(moment, world) for world in range(len(moment.qpos))]
        past = moment.time - self.last.time if self.last is not None else 0.0
        if past <= 0 or not self.looks:
            self.looks = wanted
            return
        share = 1 - exp(-past / SETTLE_S)
        self.looks = [was._replace(eye=was.eye + share * (want.eye - was.eye),
                                   target=was.target + share * (want.target - was.target))
                      for was, want in zip(self.looks, wanted)]

    def _followed(self, moment: Moment) -> Array:
        point = self.stage.point
        if point is None:
            return np.zeros((len(moment.qpos), 3))
        return spatial(moment.signals[point]).astype(np.float64)

    def follow(self, moment: Moment) -> Array:
        """Add a moment to the trails without drawing it; positions [N, 3] m of the followed bodies."""
        points = self._followed(moment)
        if moment is not self.last:
            if self.camera == FOLLOW:
                self._move(moment)
            if moment.time == 0:
                self.trails = [[] for _ in points]
            for trail, point, over in zip(self.trails, points, moment.over):
                if not (over and trail):
                    trail.append(point)
        self.last = moment
        return points

    def take(self, moment: Moment, words: bool = True) -> Array:
        """The picture of all worlds, uint8 [H', W', 3]."""
        points = self.follow(moment)
        looks = [self.look] * len(points)
        if self.camera == FOLLOW:
            looks = self.looks
            eyes = np.stack([look.eye for look in looks])
            self.rig.set_params(torch.arange(len(eyes)), {f"camera.{NAME}.pos": torch.tensor(eyes).float()})
        self._paint()
        images = self.rig.render(torch.from_numpy(moment.qpos).float())
        pictures = [self._finish(w, moment, looks[w], *(images[f"{self.name}_{k}"][w].cpu().numpy()
                                                       for k in ("rgb", "depth"))) for w in range(len(points))]
        alone = len(pictures) == 1
        shown = tile(np.stack([self._named(p, w, moment) if words and not alone else p
                               for w, p in enumerate(pictures)]), columns=columns(len(pictures)), gap=0 if alone else 2)
        return self._titled(shown, moment) if words and alone else shown

    def _paint(self) -> None:
        """Give the worlds the looks of new episodes, as far as this camera shows them."""
        if self.painted is not self.show.looks:
            self.painted, known = self.show.looks, self.rig.parameters
            self.rig.set_params(torch.arange(self.rig.num_worlds), {
                name: value for name, value in self.painted.items() if name in known})

    def _finish(self, world: int, moment: Moment, look: Look, rgb: Array, depth: Array) -> Array:
        far = self.rig.far[self.name]
        if not self.own:
            rgb = hazy(rgb, depth, far, 1.4 * float(np.linalg.norm(look.eye - look.target)))
            rgb = self._draw(Sketch(rgb, depth, look), world, moment)
        return cv2.resize(rgb, (self.width, self.height), interpolation=cv2.INTER_AREA)

    def _draw(self, sketch: Sketch, world: int, moment: Moment) -> Array:
        for shape in self.show.task.shapes:
            draw_shape(sketch, shape, named=self.height >= TALL)
        if len(self.trails[world]) > 1:
            sketch.line(np.array(self.trails[world]), TRAIL, 2)
        self._enlarge(sketch, world, moment)
        for goal in self.stage.goals:
            self._draw_goal(sketch, goal, world, moment)
        attitude = self.stage.attitude
        if attitude and moment.signals[attitude].shape[-1] == 4:
            away = float(np.linalg.norm(self.look.eye - self.look.target))  # a small robot in a large room is seen, too
            long = max(0.13 * self.scale, 0.02 * away)
            sketch.axes(self._followed(moment)[world], moment.signals[attitude][world], long, 2)
        return sketch.done()

    def _draw_goal(self, sketch: Sketch, goal: Goal, world: int, moment: Moment) -> None:
        place, quat = goal_pose(goal, self.stage, moment.signals, world)
        if goal.place:
            sketch.ball(place, max(goal.radius, 0.012 * self.scale), GOOD)
            if self.stage.figure.floors:
                sketch.line(np.linspace(place, [place[0], place[1], self.stage.figure.floors[0]], 12), GOOD, 1)
        if quat is None:
            return
        for part in self.stage.ghost(goal):
            sketch.ghost(part.mesh.vertices @ rotation(quat).T + place, part.mesh.faces, ghostly(part.rgba))
        sketch.axes(place, quat, 0.2 * self.scale, 1)

    def _enlarge(self, sketch: Sketch, world: int, moment: Moment) -> None:
        """Draw a robot of a few pixels over itself, larger than life."""
        figure, qpos = self.stage.figure, moment.qpos[world]
        if not figure.bodies or not np.isfinite(qpos).all():
            return
        (pos,), (quat,) = figure.poses(qpos[None])
        away = float(np.linalg.norm(sketch.look.eye - pos[0]))
        larger = FINER * LEAST * away / (sketch.focal * self.scale)
        if larger <= 1:
            return
        for part in figure.parts:
            if part.body >= 0:
                there = part.mesh.moved(pos[part.body], quat[part.body]).vertices
                color = tuple(round(255 * min(max(c, 0.0), 1.0)) for c in part.rgba[:3])
                sketch.solid(pos[0] + larger * (there - pos[0]), part.mesh.faces, color)

    def _named(self, picture: Array, world: int, moment: Moment) -> Array:
        """Label a world among others: number and verdict, or the verdict's colour if words do not fit."""
        verdict = moment.verdict(world)
        if self.height < TALL:
            out = picture.copy()
            cv2.rectangle(out, (0, 0), (self.width - 1, self.height - 1), COLORS[verdict], 1)
            return out
        out = label(picture, f"{world}", color=COLORS[verdict])
        return label(out, verdict if self.width >= 2 * TALL else verdict[:4], color=COLORS[verdict],
                     corner="bottom left")

    def _titled(self, picture: Array, moment: Moment) -> Array:
        """Label a single world: time, verdict and bounds, if they fit."""
        verdict = moment.verdict(0)
        if self.height < TALL or self.width < 2 * TALL:
            out = picture.copy()
            cv2.rectangle(out, (0, 0), (self.width - 1, self.height - 1), COLORS[verdict], 1)
            return out
        out = label(picture, f"{self.show.task.name}, t = {moment.time:.2f} s")
        return label(out, in_words(moment.readings[0], verdict), color=COLORS[verdict], corner="bottom left")

    def close(self) -> None:
        """Free the renderer's memory."""
        self.rig.close()


def pictures_rig(model: Any, worlds: int, view: Camera, renderer: str) -> Rig:
    """The rig for pictures of ``worlds`` worlds.

    ``auto`` is OpenGL where it runs: for few large pictures it is ten times as fast as casting rays on a CPU
    (docs/notes/rendering.md), and compiles nothing first. Elsewhere it is Warp.
    """
    if renderer != "auto":
        return Rig(model, worlds, (view,), renderer=renderer)
    try:
        return Rig(model, worlds, (view,), renderer="gl")
    except MissingRenderer as error:
        log.warning("renderer auto: warp, which compiles for each new scene at the first picture, because %s", error)
        return Rig(model, worlds, (view,), renderer="warp")


def columns(count: int) -> int:
    """Pictures per row, for a nearly square grid."""
    return ceil(sqrt(count))


def hazy(rgb: Array, depth: Array, far: float, clear: float) -> Array:
    """Draw sky into the empty background, and fade floors into it beyond the distance ``clear`` m."""
    height = np.linspace(0, 1, len(rgb))[:, None, None]
    sky = np.array(SKY[0]) * (1 - height) + np.array(SKY[1]) * height
    share = 1 - np.exp(-np.clip(depth - clear, 0, None) / (2.5 * clear))[..., None]
    share = np.where(depth[..., None] >= 0.999 * far, 1.0, share)
    return np.rint(rgb * (1 - share) + sky * share).astype(np.uint8)


class Sketch:
    """Lines and balls over a picture; hidden parts are drawn faintly."""

    def __init__(self, rgb: Array, depth: Array, look: Look) -> None:
        self.front, self.back = np.ascontiguousarray(rgb), np.ascontiguousarray(rgb).copy()
        self.depth, self.look = depth, look
        self.turn = rotation(np.array(look.quat))
        self.focal = len(rgb) / 2 / np.tan(np.radians(look.fovy) / 2)

    def project(self, points: Array) -> Array:
        """[M, 3]: pixels to the right and down, and depth, m, of points [M, 3] m."""
        x, y, z = ((np.asarray(points, float) - self.look.eye) @ self.turn).T
        depth = -z
        safe = np.where(depth > 1e-3, depth, np.nan)
        height, width = self.depth.shape
        return np.stack([width / 2 + self.focal * x / safe, height / 2 - self.focal * y / safe, depth], -1)

    def hidden(self, u: float, v: float, depth: float) -> bool:
        """Whether another surface is nearer at a pixel."""
        height, width = self.depth.shape
        inside = 0 <= u < width and 0 <= v < height
        return bool(inside and self.depth[int(v), int(u)] < depth - 0.004 * depth)

    def line(self, points: Array, color: tuple[int, int, int], thickness: float, above: bool = False) -> None:
        """Draw a polyline [M, 3] m; with ``above`` it is never hidden."""
        seen = self.project(points)
        wide = max(1, round(FINER * thickness * len(self.depth) / (FINER * 480)))
        for a, b in zip(seen, seen[1:]):
            ends = np.array([a[:2], b[:2]])
            if not np.isfinite(ends).all() or np.abs(ends).max() > 1e5:
                continue
            p, q = (tuple(int(round(8 * float(x))) for x in end) for end in ends)
            for image in (self.back, self.front) if above or not self.hidden(*(0.5 * (a + b))) else (self.back,):
                cv2.line(image, p, q, color, wide, cv2.LINE_AA, 3)

    def axes(self, place: Array, quat: Array, long: float, thickness: float) -> None:
        """Three axes of ``long`` m: x red, y green, z blue."""
        if np.isfinite(quat).all() and np.linalg.norm(quat) > 1e-6:
            for axis, color in zip(rotation(quat / np.linalg.norm(quat)).T, AXES):
                self.line(np.linspace(place, place + long * axis, 4), color, thickness, above=True)

    def ball(self, place: Array, radius: float, color: tuple[int, int, int]) -> None:
        """A translucent ball."""
        (u, v, depth), = self.project(place[None])
        if not np.isfinite(u) or max(abs(u), abs(v)) > 1e5:
            return
        r = max(2.0, self.focal * radius / depth)
        mask = np.zeros(self.depth.shape, np.uint8)
        cv2.circle(mask, (round(u), round(v)), round(r), 255, -1, cv2.LINE_AA)
        share = (mask / 255 * np.where(self.depth < depth - radius, 0.0, 0.38))[..., None]
        self.front = np.rint(self.front * (1 - share) + np.array(color) * share).astype(np.uint8)
        ring = [(cos(2 * pi * i / 48), sin(2 * pi * i / 48)) for i in range(49)]
        across, up = self.turn[:, 0], self.turn[:, 1]
        self.line(np.array([place + radius * (c * across + s * up) for c, s in ring]), color, 1.5)

    def solid(self, vertices: Array, faces: Sequence[Sequence[int]], color: tuple[int, ...]) -> None:
        """Draw a closed convex surface as a whole: in front of everything, faintly where its middle is hidden.

        ``vertices`` [V, 3] m, corners of faces counter-clockwise seen from outside.
        """
        seen, (u, v, depth) = self.project(vertices), self.project(vertices.mean(0)[None])[0]
        if not np.isfinite(seen).all() or np.abs(seen).max() > 1e5:
            return
        places = np.rint(8 * seen[:, :2]).astype(np.int32)
        images = (self.back,) if self.hidden(u, v, 0.97 * depth) else (self.back, self.front)
        first, second, third = (vertices[[face[i] for face in faces]] for i in range(3))
        normal, toward = np.cross(second - first, third - first), self.look.eye - first
        facing = (normal * toward).sum(-1) / np.maximum(np.linalg.norm(normal, axis=-1), 1e-12)
        share = 0.5 + 0.5 * facing / np.linalg.norm(toward, axis=-1)
        colors = (np.array(color) * share[:, None]).tolist()
        for i in np.flatnonzero(facing > 0):
            for image in images:
                cv2.fillConvexPoly(image, places[list(faces[i])], colors[i], cv2.LINE_AA, 3)

    def ghost(self, vertices: Array, faces: Sequence[Sequence[int]], color: tuple[int, int, int]) -> None:
        """Draw a translucent closed surface: ``vertices`` [V, 3] m, corners of faces counter-clockwise seen from
        outside."""
        (left, right), (top, bottom) = (span_of(self.project(vertices)[:, i], self.depth.shape[1 - i]) for i in (0, 1))
        if left >= right or top >= bottom:
            return
        window = (slice(top, bottom), slice(left, right))
        hidden_at = self.depth[window]
        nearest, shown = np.full(hidden_at.shape, np.inf), self.front[window].astype(float)
        for face in faces:
            corners = vertices[list(face)]
            normal = np.cross(corners[1] - corners[0], corners[2] - corners[0])
            toward = self.look.eye - corners[0]
            if normal @ toward <= 0:
                continue
            seen_at = self.project(corners)
            pixels = seen_at[:, :2] - (left, top)
            if not np.isfinite(pixels).all() or np.abs(pixels).max() > 1e5:
                continue
            mask = np.zeros(hidden_at.shape, np.uint8)
            cv2.fillConvexPoly(mask, np.rint(8 * pixels).astype(np.int32), 1, cv2.LINE_8, 3)
            rows, columns = mask.nonzero()
            depth = self._plane(normal, -float(normal @ toward), rows + top, columns + left)
            depth = depth.clip(seen_at[:, 2].min(), seen_at[:, 2].max())  # the rim's pixels reach beyond the face
            front = depth < nearest[rows, columns]
            nearest[rows[front], columns[front]] = depth[front]
            shown[rows[front], columns[front]] = shade(color, normal, toward)
        seen = np.isfinite(nearest) & (nearest < hidden_at)
        self.front[window][seen] = np.rint((1 - GHOST) * self.front[window][seen] + GHOST * shown[seen]
                                           ).astype(np.uint8)

    def words(self, place: Array, text: str, color: tuple[int, int, int]) -> None:
        """``text`` at ``place`` [3] m, outlined so that it reads anywhere."""
        (u, v, _), = self.project(np.asarray(place, float)[None])
        if not np.isfinite(u) or max(abs(u), abs(v)) > 1e5:
            return
        size, font = FINER * max(0.35, len(self.depth) / FINER / 900), cv2.FONT_HERSHEY_SIMPLEX
        wide, tall = cv2.getTextSize(text, font, size, FINER)[0]
        at = round(u - wide / 2), round(v + tall / 2)
        for image in (self.front, self.back):
            for dx, dy in OUTLINE:
                around = at[0] + FINER * dx, at[1] + FINER * dy
                cv2.putText(image, text, around, font, size, (0, 0, 0), FINER, cv2.LINE_AA)
            cv2.putText(image, text, at, font, size, color, FINER, cv2.LINE_AA)

    def _plane(self, normal: Array, away: float, rows: Array, columns: Array) -> Array:
        """Depth, m, at pixels, of the plane of points p with ``normal`` . (p - eye) = ``away``."""
        height, width = self.depth.shape
        ways = np.stack([(columns + 0.5 - width / 2) / self.focal, (height / 2 - rows - 0.5) / self.focal,
                         -np.ones(len(rows))], -1)
        return np.asarray(away / (ways @ (self.turn.T @ normal)))

    def done(self) -> Array:
        """The finished picture."""
        return cv2.addWeighted(self.front, 0.7, self.back, 0.3, 0)


def span_of(places: Array, size: int) -> tuple[int, int]:
    """The pixels from the least to the largest of ``places``, within a picture of ``size``; none if none is known."""
    known = places[np.isfinite(places)]
    if not len(known):
        return 0, 0
    low, high = np.clip([np.floor(known.min()) - 1, np.ceil(known.max()) + 2], 0, size)
    return int(low), int(high)


def shade(color: tuple[int, ...], normal: Array, toward: Array) -> Array:
    """``color`` of a face, darker the more it faces away from the eye."""
    return np.array(color) * (0.5 + 0.5 * float(normal @ toward / (np.linalg.norm(normal) * np.linalg.norm(toward))))


def draw_shape(sketch: Sketch, shape: Mapping[str, Any], named: bool = True) -> None:
    """Draw a shape of a task: goals green, regions to avoid red, others grey and dashed. Goals and regions to avoid
    have their names, if ``named``."""
    color = AVOID if shape.get("role") == "avoid" else GOOD if shape.get("role") == "goal" else LINE
    if shape["type"] == "sphere":
        sketch.ball(np.array(shape["center"], float), float(shape["radius"]), color)
    elif shape["type"] == "cylinder":
        draw_cylinder(sketch, shape, color)
    elif shape["type"] == "path":
        sketch.line(np.array(shape["points"], float), color, 1.5)
    elif shape["type"] == "box":
        for a, b in edges(shape["low"], shape["high"]):
            for i in range(0, 24, 2):
                sketch.line(np.array([a + (b - a) * i / 24, a + (b - a) * (i + 1) / 24]), color, 1)
    if named and shape.get("role") in ("goal", "avoid") and shape.get("name"):
        corners = np.array(shape_points([shape])).reshape(-1, 3)
        low, high = corners.min(0), corners.max(0)
        middle = 0.5 * (low + high)
        if shape["type"] == "cylinder":  # its lines would run through it
            middle[2] = high[2] + 0.1
        sketch.words(middle, str(shape["name"]).replace("_", " "), color)


def draw_cylinder(sketch: Sketch, shape: Mapping[str, Any], color: tuple[int, int, int]) -> None:
    """Draw a cylinder's rims and lines between them."""
    x, y, z = np.resize(np.append(np.array(shape["center"], float), 0.0), 3)
    r, tall, sides = float(shape["radius"]), float(shape["height"]), 32
    rim = np.array([(x + r * cos(2 * pi * i / sides), y + r * sin(2 * pi * i / sides), z) for i in range(sides + 1)])
    flat = tall < 0.1 * r  # a disc in the plane
    for lift in (tall,) if flat else (0.0, tall):
        sketch.line(rim + [0, 0, lift], color, 1.5)
    for foot in () if flat else rim[:-1:2]:
        sketch.line(np.linspace(foot, foot + [0, 0, tall], 9), color, 1)


def edges(low: Sequence[float], high: Sequence[float]) -> list[tuple[Array, Array]]:
    """The twelve edges of a box."""
    corners = [np.array([(low, high)[i >> m & 1][m] for m in range(3)], float) for i in range(8)]
    return [(corners[i], corners[j]) for i in range(8) for j in range(i + 1, 8) if bin(i ^ j).count("1") == 1]
