"""Warp on torch's devices and streams; and work of many small kernels, recorded once as a CUDA graph and launched as a
whole (on a CPU it just runs)."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
import warp as wp


def start() -> None:
    """Start Warp without its banner, its line per compiled module, and its warning that there is no CUDA driver.

    The warning comes from C at the first start: other text on stderr is passed on.
    """
    wp.config.log_level = max(wp.config.log_level, wp.LOG_WARNING)
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        stderr = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            wp.init()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        kept.seek(0)
        lines = kept.read().decode(errors="replace").splitlines(keepends=True)
    sys.stderr.writelines(line for line in lines if "NVIDIA CUDA driver" not in line)


def warp_device(device: torch.device) -> wp.Device:
    """Warp's name of ``device``."""
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device}: torch sees no NVIDIA GPU here. Install torch with CUDA and a driver "
                         "(temporeal doctor says what is there), or take device=cpu, which is for checks: backend "
                         "mujoco is several times faster on a CPU")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    start()
    try:
        return wp.device_from_torch(device)
    except Exception as error:
        raise ValueError(f"Warp cannot use device {device}: {error}") from error


class Place:
    """A device, as Warp and as torch know it."""

    def __init__(self, device: torch.device) -> None:
        self.device = warp_device(device)
        self.torch_device = torch.device(wp.device_to_torch(self.device))
        self._streams: dict[int, wp.Stream] = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Warp's device, and torch's stream of it: what one writes the other reads in order."""
        if self.torch_device.type == "cpu":
            with wp.ScopedDevice(self.device):
                yield
        else:
            with wp.ScopedDevice(self.device), wp.ScopedStream(self._stream()):
                yield

    def _stream(self) -> wp.Stream:
        """The stream on which torch works now."""
        stream = torch.cuda.current_stream(self.torch_device)
        if stream.cuda_stream not in self._streams:
            self._streams[stream.cuda_stream] = wp.stream_from_torch(stream)  # type: ignore[no-untyped-call]
        return self._streams[stream.cuda_stream]


place = cache(Place)
"""The place of a :class:`torch.device`, made once."""


class Graphs(Place):
    """Recorded work on one device.

    The arrays that the work reads and writes must stay where they are: after one of them was replaced, :meth:`drop`.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._graphs: dict[Hashable, wp.Graph] = {}

    def run(self, key: Hashable, work: Callable[[], None], rehearse: Callable[[Callable[[], None]], None]) -> None:
        """Do ``work``: on a GPU by the graph recorded under ``key``.

        ``rehearse(work)`` does it once without lasting effects: kernels are compiled and loaded before recording.
        """
        if self.torch_device.type == "cpu":
            with self.scope():
                work()
            return
        if key not in self._graphs:
            with self.scope():
                rehearse(work)
            self._graphs[key] = self._record(work)
        wp.capture_launch(self._graphs[key], stream=self._stream())

    def _record(self, work: Callable[[], None]) -> wp.Graph:
        """On a stream of its own: CUDA records nothing on the default stream."""
        wp.synchronize_device(self.device)
        gc.collect()
        collecting = gc.isenabled()
        gc.disable()  # memory freed while recording would break the graph
        try:
            with wp.ScopedDevice(self.device), wp.ScopedStream(wp.Stream(self.device)):
                with wp.ScopedCapture(device=self.device) as capture:
                    work()
        finally:
            if collecting:
                gc.enable()
        return capture.graph

    def drop(self) -> None:
        """Record everything again at the next run. Waits for running work, which reads the old arrays."""
        if self._graphs:
            wp.synchronize_device(self.device)
        self._graphs.clear()

    @property
    def recorded(self) -> tuple[Hashable, ...]:
        """Keys of the graphs at hand."""
        return tuple(self._graphs)
