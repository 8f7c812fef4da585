"""Simulated cameras, seen from the simulated robot: which there are, when they expose, and what they are told then.

Pictures are rendered in a process of their own (:mod:`temporeal_bridge.camera_sim`): that takes milliseconds, in which
the physics and the state must go on. At each exposure the robot's process writes where everything is into a socket, and
thinks no more of it: where the renderer is late, exposures are lost, as frames of a real camera are.

The part ``cameras`` of a file of extra topics (:mod:`temporeal_bridge.interface.loading`); a camera's pictures are the signals
``<camera>_rgb`` and ``<camera>_depth``, whose shapes say how many pixels it has:

    cameras:
      wrist:                  # one of the model's own, or, with pos, one that is fixed to a body of the model
        latency_s: 0.05       # from the exposure, which is the stamp, to when the picture is published
        fovy_deg: 42.0        # these as in docs/how-to/cameras.md: fovy_deg, max_depth, body, pos, quat
        augment: {rgb: {noise: {high: 2}}, depth: {preset: d435}}     # left out: what is rendered. See there, too
"""

from __future__ import annotations

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
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import Interface, InterfaceError, PictureTopic
from temporeal_bridge.process.children import Process, end, how_ended, start

KINDS = ("rgb", "depth")
OWN = ("latency_s", "augment")  # keys of a camera that its renderer knows nothing of
SIZE = ("width", "height", "kinds")  # ... and that the signals say
HEAD = struct.Struct("<Idq")  # of an exposure: which camera, when [s, monotonic], its stamp [ns]
LARGEST = 1 << 16  # bytes of one: qpos of some thousand numbers
QUEUE = 64  # exposures that wait in this process: the renderer wants the newest only


@dataclass(frozen=True)
class SimCamera:
    """A simulated camera.

    Args:
        pictures: by kind (rgb, depth), the topic.
        size: rows, columns.
        place: where it is: what a renderer is told of it beside its size.
        latency_s: from exposure to publication.
        augment: by kind, errors (:func:`temporeal.sim.rendering.augmentation.parse_augment`).
    """

    name: str
    pictures: Mapping[str, PictureTopic]
    size: tuple[int, int]
    place: Mapping[str, Any]
    latency_s: float
    augment: Mapping[str, Any]

    @property
    def rate_hz(self) -> float:
        """Exposures per second."""
        return next(iter(self.pictures.values())).rate_hz


def cameras_of(interface: Interface) -> tuple[SimCamera, ...]:
    """The cameras that a simulated robot with this interface has; InterfaceError where one cannot be simulated."""
    by_name: dict[str, dict[str, PictureTopic]] = {}
    for row in interface.pictures:
        signal = STATE_CODECS[row.codec].signals(row.options)[0]
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
    """One camera from the file's words; ``specs`` of its signals."""
    where = f"cameras.{name}"
    if not isinstance(raw, Mapping) or "latency_s" not in raw:
        raise InterfaceError(f"{where} is {raw!r}; a mapping with latency_s is needed")
    if said := sorted(set(raw) & set(SIZE)):
        raise InterfaceError(f"{where} has {said}: the shapes of its signals say that")
    latency, augment = raw["latency_s"], raw.get("augment") or {}
    if isinstance(latency, bool) or not isinstance(latency, (int, float)) or not 0 <= latency < inf:
        raise InterfaceError(f"{where}.latency_s is {latency!r}; a number of seconds from 0 on is needed")
    if not isinstance(augment, Mapping) or set(augment) - set(pictures):
        raise InterfaceError(f"{where}.augment is {augment!r}; a mapping from {' and '.join(pictures)} is needed")
    for what, found in (("size", {specs[f"{name}_{kind}"].shape[:2] for kind in pictures}),
                        ("rate_hz", {row.rate_hz for row in pictures.values()})):
        if len(found) > 1:
            raise InterfaceError(f"{where}: its rgb and its depth have one {what}, got {sorted(found)}; two cameras of "
                                 "one place may differ")
    rows, columns = specs[f"{name}_{next(iter(pictures))}"].shape[:2]
    return SimCamera(name, pictures, (rows, columns), {k: v for k, v in raw.items() if k not in OWN}, float(latency),
                     augment)


@dataclass(frozen=True, eq=False)
class Exposure:
    """What a camera sees: number of the camera, when [s, monotonic], stamp [ns]; qpos [nq], and of mocap bodies their
    positions [m, 3] and attitudes [m, 4], one after the other."""

    camera: int
    at: float
    stamp: int
    world: np.ndarray

    def pack(self) -> bytes:
        """As bytes."""
        return HEAD.pack(self.camera, self.at, self.stamp) + np.asarray(self.world, dtype="<f8").tobytes()

    @staticmethod
    def of(data: bytes) -> Exposure:
        """What such bytes say."""
        camera, at, stamp = HEAD.unpack_from(data)
        return Exposure(camera, at, stamp, np.frombuffer(data, dtype="<f8", offset=HEAD.size))


class ExposureLine(Protocol):
    """From the robot's process to the renderer. Neither end waits for the other."""

    def send(self, exposure: Exposure) -> bool:
        """Whether it is on its way; else it is lost."""

    def take(self) -> list[Exposure]:
        """Those that have come."""

    def wait(self, seconds: float) -> None:
        """Until one may have come."""


class MemoryLine:
    """:class:`ExposureLine` within a process, for tests."""

    def __init__(self) -> None:
        self.queue: deque[Exposure] = deque(maxlen=QUEUE)

    def send(self, exposure: Exposure) -> bool:
        """See :class:`ExposureLine`."""
        self.queue.append(exposure)
        return True

    def take(self) -> list[Exposure]:
        """See :class:`ExposureLine`."""
        return [self.queue.popleft() for _ in range(len(self.queue))]

    def wait(self, seconds: float) -> None:
        """See :class:`ExposureLine`."""


class SocketEnd:
    """One end of an :class:`ExposureLine` between processes: a datagram socket, of a pair. ``ended``: the robot's
    process is no more."""

    def __init__(self, end: socket.socket) -> None:
        self.socket, self.ended = end, False
        end.setblocking(False)

    def send(self, exposure: Exposure) -> bool:
        """See :class:`ExposureLine`."""
        try:
            self.socket.send(exposure.pack())
        except OSError:  # full: the renderer is late; or it has ended, which the shutter finds
            return False
        return True

    def take(self) -> list[Exposure]:
        """See :class:`ExposureLine`."""
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
        """See :class:`ExposureLine`."""
        select.select([self.socket], [], [], max(seconds, 0.0))


class Shutter:
    """Opens the eyes of a simulated robot at their rates.

    Args:
        cameras: in the order by which exposures number them.
        line: to the renderer.
        body: what has MuJoCo's ``data``.
    """

    def __init__(self, cameras: tuple[SimCamera, ...], line: ExposureLine, body: Any) -> None:
        self.cameras, self.line, self.body = cameras, line, body
        self.frames, self.lost = [-1] * len(cameras), 0
        self.renderer: Process | None = None

    def reset(self) -> None:
        """Time begins anew."""
        self.frames = [-1] * len(self.cameras)

    def expose(self, time: float, at: float, stamp: int) -> None:
        """What is due at ``time`` [s since the reset], which is ``at`` [s, monotonic]: it is as true as the physics."""
        for number, camera in enumerate(self.cameras):
            frame = floor(time * camera.rate_hz + 1e-6)
            if frame > self.frames[number]:
                self.frames[number] = frame
                data = self.body.data
                world = np.concatenate([np.ravel(x) for x in (data.qpos, data.mocap_pos, data.mocap_quat)])
                self.lost += not self.line.send(Exposure(number, at, stamp, world))

    def check(self) -> None:
        """RuntimeError where the renderer has ended: it has said why."""
        if self.renderer is not None and self.renderer.poll() is not None:
            raise RuntimeError(f"no more pictures: {how_ended(self.renderer)}")

    def close(self) -> None:
        """End the renderer."""
        if self.renderer is not None:
            end([self.renderer])


def content(interface: Interface, resolve: Any) -> dict[str, Any]:
    """The cameras alone as a file of extra topics; ``resolve``: a topic's full name, remapped."""
    names = [STATE_CODECS[row.codec].signals(row.options)[0] for row in interface.pictures]
    signals = {name: {"shape": list(spec.shape), "unit": spec.unit, "frame": spec.frame, "dtype": spec.dtype}
               for name in names for spec in (interface.carried[name],)}
    rows = [{**asdict(row), "topic": resolve(row.topic)} for row in interface.pictures]
    return {"definitions": {}, "signals": signals, "states": [], "pictures": rows, "cameras": dict(interface.cameras)}


def open_shutter(interface: Interface, body: Any, resolve: Any, words: list[str]) -> Shutter | None:
    """The shutter of a robot's cameras, and the process that renders what it exposes; None without cameras.

    ``body`` has MuJoCo's ``model``, which the process gets as it is; ``words``: the options that tell it robot and bus.
    """
    import mujoco

    found = cameras_of(interface)
    if not found:
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shutter = Shutter(found, SocketEnd(ours), body)
    folder = Path(tempfile.mkdtemp(prefix="temporeal-cameras-"))  # the renderer removes it, once it has read it
    mujoco.mj_saveModel(body.model, os.fspath(folder / "model.mjb"))
    (folder / "signals.yaml").write_text(yaml.safe_dump(content(interface, resolve)))
    shutter.renderer = start("camera_sim", [*words, "--folder", str(folder), "--exposures", str(theirs.fileno())],
                             pass_fds=(theirs.fileno(),))
    theirs.close()
    return shutter
