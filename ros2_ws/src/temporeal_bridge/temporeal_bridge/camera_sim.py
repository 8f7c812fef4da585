"""Simulated cameras in a process of their own: renders the exposures of a simulated robot and publishes the pictures.

It is started by :mod:`temporeal_bridge.robot_sim`, and ends with it. A picture is stamped with its exposure and
published ``latency_s`` later, or as soon as it is rendered. Exposures that arrive while another picture of the same
camera is rendered are lost, except the newest. OpenGL renders, on the GPU of its driver or, by Mesa, on CPU threads, at
a low priority: a picture may be late, a state may not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.process.command_line import parser
from temporeal_bridge.process.node import run
from temporeal_bridge.simulated_robot.camera_exposures import (
    LOOKS,
    Exposure,
    ExposureLink,
    SimCamera,
    SocketExposures,
    cameras_of,
)
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Endpoint, QoS, Transport

AUTORESET = 1 << 16  # mjDSBL_AUTORESET
NICE = 5  # as of an inference worker: a picture may be late, a state may not
# reliable, as drivers of cameras publish (realsense-ros, constants.h: SYSTEM_DEFAULT): it matches every subscription
PUBLISHED = QoS(depth=2)

Render = Callable[[np.ndarray, int], Mapping[str, np.ndarray]]
"""``render(world, frame)``: pictures by kind, of an exposure's world; ``frame`` is the key of random errors."""


class CameraSim:
    """Renders exposures and publishes the pictures.

    Args:
        renders: by camera, in the order of ``cameras``.
        link: the source of exposures.
    """

    def __init__(
        self, transport: Transport, cameras: Sequence[SimCamera], renders: Sequence[Render], link: ExposureLink
    ) -> None:
        self.transport, self.cameras, self.renders, self.link = transport, cameras, renders, link
        self.endpoints: list[dict[str, Endpoint]] = [
            {kind: transport.advertise(row.topic, row.type, PUBLISHED) for kind, row in camera.pictures.items()}
            for camera in cameras]
        self.waiting: dict[int, Exposure] = {}  # by camera, the newest that is not rendered
        self.ready: deque[tuple[float, Endpoint, bytes]] = deque()  # when, where, what
        self.frames, self.lost, self.late = [0] * len(cameras), 0, 0
        self.took: deque[float] = deque(maxlen=10_000)  # s for a picture
        while self.link.take():  # from before there was a camera
            pass

    @property
    def done(self) -> bool:
        """Whether the robot's process has ended."""
        return bool(getattr(self.link, "ended", False))

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        if self.waiting:
            return self.transport.monotonic()
        return min((at for at, _, _ in self.ready), default=inf)

    def wait(self, seconds: float) -> None:
        """Until an exposure arrives; nothing is read from the bus."""
        self.link.wait(seconds)
        self.transport.wait(0.0)

    def step(self) -> None:
        """Publish what is due, take in exposures, render one picture."""
        self._publish()
        for exposure in self.link.take():
            self.lost += exposure.camera in self.waiting
            self.waiting[exposure.camera] = exposure
        if self.waiting:
            self._render(self.waiting.pop(min(self.waiting, key=lambda number: self.waiting[number].at)))
            self._publish()

    def _render(self, exposure: Exposure) -> None:
        begun = self.transport.monotonic()
        camera, frames = self.cameras[exposure.camera], ("world", f"{self.cameras[exposure.camera].name}_optical_frame")
        pictures = self.renders[exposure.camera](exposure.world, self.frames[exposure.camera])
        self.frames[exposure.camera] += 1
        due = exposure.at + camera.latency_s
        for kind, row in camera.pictures.items():
            message = STATE_CODECS[row.codec].encode(
                {f"{camera.name}_{kind}": pictures[kind]}, exposure.stamp, frames, row.options)
            self.ready.append((due, self.endpoints[exposure.camera][kind], messages.encode(row.type, message)))
        self.took.append(self.transport.monotonic() - begun)
        self.late += self.transport.monotonic() > due

    def _publish(self) -> None:
        now = self.transport.monotonic()
        for item in [item for item in self.ready if item[0] <= now]:
            self.ready.remove(item)
            self.transport.publish(item[1], item[2])

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {"node": "camera_sim", "pictures": {c.name: n for c, n in zip(self.cameras, self.frames)},
                "lost": self.lost, "late": self.late,
                "render_ms": 1e3 * float(np.median(self.took)) if self.took else None}


def renderer(camera: SimCamera, model: Any, looks: Mapping[str, int] | None = None) -> Render:
    """Renders ``camera`` in ``model``; a RuntimeError says what to install. ``looks``: sizes of the parameters of the
    pictures at the end of each exposure, by name."""
    try:
        import torch

        from temporeal.sim.rendering.augmentation import parse_augment
        from temporeal.sim.rendering.cameras import parse_cameras
        from temporeal.sim.rendering.rig import Rig
    except ImportError as error:
        raise RuntimeError(f"{error}: simulated cameras need what `pip install '.[train,cameras]'` brings") from error
    rows, columns = camera.size
    words = {**camera.place, "width": columns, "height": rows, "kinds": list(camera.pictures)}
    model.opt.disableflags &= ~AUTORESET  # of physics, which is not stepped here; the renderer warp does not know it
    rig = Rig(model, 1, parse_cameras({camera.name: words}), renderer=camera.renderer)
    augment = parse_augment({f"{camera.name}_{kind}": plan for kind, plan in camera.augment.items()})
    nq, moved, sizes = model.nq, 3 * model.nmocap, dict(looks or {})
    ends = np.cumsum([nq, moved, model.nmocap * 4, *sizes.values()])[:-1]
    world, episode = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)

    def render(state: np.ndarray, frame: int) -> dict[str, np.ndarray]:
        qpos, pos, quat, *drawn = (torch.from_numpy(np.array(x, dtype=np.float32)) for x in np.split(state, ends))
        if sizes:
            rig.set_params(world, {name: value[None] for name, value in zip(sizes, drawn)})
        images = rig.render(qpos[None], pos.reshape(1, -1, 3), quat.reshape(1, -1, 4))
        if camera.augment:
            images = augment(images, 0, world, episode, frame)
        return {kind: images[f"{camera.name}_{kind}"][0].numpy() for kind in camera.pictures}

    nothing = np.zeros(nq + 7 * model.nmocap + sum(sizes.values()))
    render(nothing, 0)  # the first one takes longest: before anybody waits for it
    return render


def of(
    transport: Transport, interface: Interface, model: Any, link: ExposureLink, looks: Mapping[str, int] | None = None
) -> CameraSim:
    """The node for all cameras of ``interface`` in MuJoCo's ``model``; ``looks``: see :func:`renderer`."""
    cameras = cameras_of(interface)
    return CameraSim(transport, cameras, [renderer(camera, model, looks) for camera in cameras], link)


def make(args: argparse.Namespace, transport: Transport) -> CameraSim:
    """The node from its command line."""
    import mujoco

    link = SocketExposures(socket.socket(fileno=args.exposures))
    model = mujoco.MjModel.from_binary_path(os.fspath(args.folder / "model.mjb"))
    interface = load_interface(load_robot(args.robot), args.interface, args.folder / "signals.yaml")
    looks = json.loads((args.folder / LOOKS).read_text())
    shutil.rmtree(args.folder)
    return of(transport, interface, model, link, looks)


def step_back() -> None:
    """Drop the priority inherited from the robot's process, which may be real-time."""
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(NICE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    step_back()  # before the middleware and OpenGL start their threads
    options = parser("camera_sim", "Simulated cameras of a robot_sim, which starts this node itself.")
    options.add_argument("--folder", type=Path, required=True, help="model.mjb and signals.yaml of the simulated robot")
    options.add_argument("--exposures", type=int, required=True, help="descriptor of the socket that it writes to")
    return run(options, arguments, make, "camera_sim.json")


if __name__ == "__main__":
    sys.exit(main())
