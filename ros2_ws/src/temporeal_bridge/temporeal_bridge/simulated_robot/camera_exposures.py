"""Cameras of a simulated robot: which there are, when they expose, and what the renderer gets.

Pictures are rendered in another process (:mod:`temporeal_bridge.camera_sim`): that takes milliseconds, in which physics
and state must go on. At each exposure the robot's process writes the poses of everything into a socket, and continues.
Where the renderer is late, exposures are lost, as frames of a real camera are.

Part ``cameras`` of a file of extra topics (:mod:`temporeal_bridge.interface.loading`). A camera's pictures are the
signals ``<camera>_rgb`` and ``<camera>_depth``, whose shapes give the size in pixels:

    cameras:
      wrist:                  # one of the model's own, or, with pos, one that is fixed to a body of the model
        latency_s: 0.05       # from the exposure, which is the stamp, to the publication
        fovy_deg: 42.0        # as in docs/how-to/cameras.md: fovy_deg, max_depth, body, pos, quat
        augment: {rgb: {noise: {high: 2}}, depth: {preset: d435}}     # as there; left out: the plain rendering
        renderer: gl          # or warp, which renders small pictures faster; auto: as in training
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import tempfile
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import floor, inf
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml

from temporeal.robots.signals import SignalSpec
from temporeal_bridge.interface.interface import Interface, InterfaceError, PictureTopic, carried_by
from temporeal_bridge.process.children import Process, end, how_ended, start

KINDS = ("rgb", "depth")
RENDERERS = ("gl", "warp", "auto")
OWN = ("latency_s", "augment", "renderer")  # keys of a camera that are not for its renderer
SIZE = ("width", "height", "kinds")  # ... and that its signals give
HEAD = struct.Struct("<Idq")  # of an exposure: which camera, when [s, monotonic], its stamp [ns]
LARGEST = 1 << 16  # bytes of one: qpos of some thousand numbers
LOOKS = "looks.json"  # for the renderer: sizes of an episode's looks by name, in the order of exposures
QUEUE = 64  # exposures that wait in this process: the renderer uses the newest only


@dataclass(frozen=True)
class SimCamera:
    """A simulated camera.

    Args:
        pictures: by kind (rgb, depth), the topic.
        size: rows, columns.
        place: the renderer's options, besides the size.
        latency_s: from exposure to publication.
        augment: by kind, errors (:func:`temporeal.sim.rendering.augmentation.parse_augment`).
        renderer: one of :data:`RENDERERS`.
    """

    name: str
    pictures: Mapping[str, PictureTopic]
    size: tuple[int, int]
    place: Mapping[str, Any]
    latency_s: float
    augment: Mapping[str, Any]
    renderer: str = "gl"

    @property
    def rate_hz(self) -> float:
        """Exposures per second."""
        return next(iter(self.pictures.values())).rate_hz


def cameras_of(interface: Interface) -> tuple[SimCamera, ...]:
    """The cameras of a simulated robot with this interface; InterfaceError where one cannot be simulated."""
    by_name: dict[str, dict[str, PictureTopic]] = {}
    for row in interface.pictures:
        signal = carried_by(row)[0]
        name, _, kind = signal.rpartition("_")
        if kind not in KINDS or row.options["encoding"] == "mono8":
            raise InterfaceError(f"{row.topic}: a simulated camera <camera> gives the signals <camera>_rgb, with three "
                                 f"colours, and <camera>_depth; this is {signal!r} in {row.options['encoding']}")
        if (interface.carried[signal].unit == "m") != (kind == "depth"):
            raise InterfaceError(f"{row.topic}: {signal!r} in {row.options['encoding']} is not {kind}")
        if name not in interface.cameras:
            raise InterfaceError(f"{row.topic}: `cameras` does not say where the simulated camera {name!r} is; it has: "
                                 f"{', '.join(interface.cameras) or 'none'}")
        by_name.setdefault(name, {})[kind] = row
    if unseen := sorted(set(interface.cameras) - set(by_name)):
        raise InterfaceError(f"cameras: no topic carries a picture of {unseen}: <camera>_rgb or <camera>_depth")
    return tuple(sim_camera(name, pictures, interface.cameras[name], interface.carried)
                 for name, pictures in by_name.items())


def sim_camera(
    name: str, pictures: Mapping[str, PictureTopic], raw: Any, specs: Mapping[str, SignalSpec]
) -> SimCamera:
    """One camera from its entry in the file; ``specs`` of its signals."""
    where = f"cameras.{name}"
    if not isinstance(raw, Mapping) or "latency_s" not in raw:
        raise InterfaceError(f"{where} is {raw!r}; a mapping with latency_s is needed")
    if given := sorted(set(raw) & set(SIZE)):
        raise InterfaceError(f"{where} has {given}: the shapes of its signals say that")
    latency, augment = raw["latency_s"], raw.get("augment") or {}
    if isinstance(latency, bool) or not isinstance(latency, (int, float)) or not 0 <= latency < inf:
        raise InterfaceError(f"{where}.latency_s is {latency!r}; a number of seconds from 0 on is needed")
    if not isinstance(augment, Mapping) or set(augment) - set(pictures):
        raise InterfaceError(f"{where}.augment is {augment!r}; a mapping from {' and '.join(pictures)} is needed")
    if (renderer := raw.get("renderer", "gl")) not in RENDERERS:
        raise InterfaceError(f"{where}.renderer is {renderer!r}; legal: {', '.join(RENDERERS)}")
    for what, found in (("size", {specs[f"{name}_{kind}"].shape[:2] for kind in pictures}),
                        ("rate_hz", {row.rate_hz for row in pictures.values()})):
        if len(found) > 1:
            raise InterfaceError(f"{where}: its rgb and its depth have one {what}, got {sorted(found)}; two cameras of "
                                 "one place may differ")
    rows, columns = specs[f"{name}_{next(iter(pictures))}"].shape[:2]
    return SimCamera(name, pictures, (rows, columns), {k: v for k, v in raw.items() if k not in OWN}, float(latency),
                     augment, renderer)


@dataclass(frozen=True, eq=False)
class Exposure:
    """One exposure: number of the camera, when [s, monotonic], stamp [ns]; qpos [nq], then of mocap bodies positions
    [m, 3] and attitudes [m, 4], then what the episode looks like (:data:`Looks`), one after the other."""

    camera: int
    at: float
    stamp: int
    world: np.ndarray

    def pack(self) -> bytes:
        """As bytes."""
        return HEAD.pack(self.camera, self.at, self.stamp) + np.asarray(self.world, dtype="<f8").tobytes()

    @staticmethod
    def of(data: bytes) -> Exposure:
        """The exposure in such bytes."""
        camera, at, stamp = HEAD.unpack_from(data)
        return Exposure(camera, at, stamp, np.frombuffer(data, dtype="<f8", offset=HEAD.size))


Looks = Mapping[str, np.ndarray]
"""Parameters of the pictures that an episode drew, [count] by name (:mod:`temporeal.sim.rendering.appearance`)."""


class ExposureLink(Protocol):
    """From the robot's process to the renderer. Neither end waits for the other."""

    def send(self, exposure: Exposure) -> bool:
        """Send; False: it is lost."""

    def take(self) -> list[Exposure]:
        """Exposures since the last call."""

    def wait(self, seconds: float) -> None:
        """Until one may have arrived."""


class InProcessExposures:
    """:class:`ExposureLink` within a process, for tests."""

    def __init__(self) -> None:
        self.queue: deque[Exposure] = deque(maxlen=QUEUE)

    def send(self, exposure: Exposure) -> bool:
        """See :class:`ExposureLink`."""
        self.queue.append(exposure)
        return True

    def take(self) -> list[Exposure]:
        """See :class:`ExposureLink`."""
        return [self.queue.popleft() for _ in range(len(self.queue))]

    def wait(self, seconds: float) -> None:
        """See :class:`ExposureLink`."""


class SocketExposures:
    """One end of an :class:`ExposureLink` between processes: a datagram socket, of a pair. ``ended``: the robot's
    process has ended."""

    def __init__(self, end: socket.socket) -> None:
        self.socket, self.ended = end, False
        end.setblocking(False)

    def send(self, exposure: Exposure) -> bool:
        """See :class:`ExposureLink`."""
        try:
            self.socket.send(exposure.pack())
        except OSError:  # full: the renderer is late; or it has ended, which the shutter notices
            return False
        return True

    def take(self) -> list[Exposure]:
        """See :class:`ExposureLink`."""
        out = list[Exposure]()
        with suppress(BlockingIOError):
            while len(out) < QUEUE:
                data = self.socket.recv(LARGEST)
                if not data:
                    self.ended = True
                    break
                out.append(Exposure.of(data))
        return out

    def wait(self, seconds: float) -> None:
        """See :class:`ExposureLink`."""
        select.select([self.socket], [], [], max(seconds, 0.0))


class Shutter:
    """Exposes the cameras of a simulated robot at their rates.

    Args:
        cameras: in the order by which exposures number them.
        link: to the renderer.
        body: has MuJoCo's ``data``.
        looks: the present episode's, always of the same names and sizes.
    """

    def __init__(
        self, cameras: tuple[SimCamera, ...], link: ExposureLink, body: Any, looks: Looks | None = None
    ) -> None:
        self.cameras, self.link, self.body, self.looks = cameras, link, body, looks or {}
        self.frames, self.lost = [-1] * len(cameras), 0
        self.renderer: Process | None = None

    def reset(self) -> None:
        """Time begins again."""
        self.frames = [-1] * len(self.cameras)

    def expose(self, time: float, at: float, stamp: int) -> None:
        """The exposures due at ``time`` [s since the reset], which is ``at`` [s, monotonic]; they are true, without
        latency."""
        for number, camera in enumerate(self.cameras):
            frame = floor(time * camera.rate_hz + 1e-6)
            if frame > self.frames[number]:
                self.frames[number] = frame
                data = self.body.data
                world = np.concatenate([
                    np.ravel(x) for x in (data.qpos, data.mocap_pos, data.mocap_quat, *self.looks.values())])
                self.lost += not self.link.send(Exposure(number, at, stamp, world))

    def check(self) -> None:
        """RuntimeError where the renderer has ended, with its last words."""
        if self.renderer is not None and self.renderer.poll() is not None:
            raise RuntimeError(f"no more pictures: {how_ended(self.renderer)}")

    def close(self) -> None:
        """End the renderer."""
        if self.renderer is not None:
            end([self.renderer])


def content(interface: Interface, resolve: Any) -> dict[str, Any]:
    """The cameras alone as a file of extra topics; ``resolve``: a topic's full name, remapped."""
    names = [carried_by(row)[0] for row in interface.pictures]
    signals = {name: {"shape": list(spec.shape), "unit": spec.unit, "frame": spec.frame, "dtype": spec.dtype}
               for name in names for spec in (interface.carried[name],)}
    rows = [{**asdict(row), "topic": resolve(row.topic)} for row in interface.pictures]
    return {"definitions": {}, "signals": signals, "states": [], "pictures": rows, "cameras": dict(interface.cameras)}


def open_shutter(
    interface: Interface, body: Any, resolve: Any, words: list[str], looks: Looks | None = None
) -> Shutter | None:
    """The shutter of a robot's cameras, and the process that renders its exposures; None without cameras.

    ``body`` has MuJoCo's ``model``, of which the process gets a copy; ``words``: its options for robot and bus;
    ``looks``: an episode's, of the names and sizes that all have.
    """
    import mujoco

    found = cameras_of(interface)
    if not found:
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shutter = Shutter(found, SocketExposures(ours), body, looks)
    folder = Path(tempfile.mkdtemp(prefix="temporeal-cameras-"))  # the renderer removes it, once it has read it
    mujoco.mj_saveModel(body.model, os.fspath(folder / "model.mjb"))
    (folder / "signals.yaml").write_text(yaml.safe_dump(content(interface, resolve)))
    sizes = {name: int(np.size(value)) for name, value in shutter.looks.items()}
    (folder / LOOKS).write_text(json.dumps(sizes))
    shutter.renderer = start("camera_sim", [*words, "--folder", str(folder), "--exposures", str(theirs.fileno())],
                             pass_fds=(theirs.fileno(),))
    theirs.close()
    return shutter
