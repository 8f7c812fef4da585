"""What a run of joints is to identification: commands, places, perhaps speeds and efforts, on one even grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import savgol_filter

from temporeal.sim.identification.record import CannotTell, Marks, Numbers

WARM_S = 0.5
"""After which nothing is left of the state that a simulated joint began with: ten times the time constant of a slow
servo."""
SMOOTH_S = 0.1
"""Window of the cubics that places are smoothed by, where inertia and gravity are taken."""
STILL = 0.01
"""rad or m: a joint that moved by less has not moved."""


@dataclass(frozen=True)
class JointRecord:
    """One run of T samples of J joints.

    Args:
        name: for people. digest: SHA-256 of the log. step: of the samples [s]. each: physics steps in one.
        command: [T each, J] setpoints in force in each physics step. place: [T, J]. speed, effort: [T, J]; None: not
            logged. usable: [T] where all was measured. jitter: standard deviation of the times at which commands came
            into force, about those of ``command`` [s].
    """

    name: str
    digest: str
    step: float
    each: int
    command: Numbers
    place: Numbers
    speed: Numbers | None
    effort: Numbers | None
    usable: Marks
    jitter: float = 0.0

    @property
    def seconds(self) -> float:
        """That can be used."""
        return float(self.usable.sum()) * self.step

    @property
    def dt(self) -> float:
        """Physics step [s]."""
        return self.step / self.each

    def smooth(self, derivative: int = 0) -> Numbers:
        """[T, J] places without their noise, or their ``derivative``."""
        window = max(2 * int(round(0.5 * SMOOTH_S / self.step)) + 1, 5)
        if len(self.place) < window:
            return self.place if derivative == 0 else np.zeros_like(self.place)
        return np.asarray(savgol_filter(self.place, window, 3, deriv=derivative, delta=self.step, axis=0))

    def moved(self) -> Marks:
        """[J] whether a joint has, after the beginning of a run."""
        warm, place = int(round(WARM_S / self.step)), self.smooth()
        went = [np.ptp(place[first + warm : end], axis=0) for first, end in self.runs() if end - first > warm]
        return np.asarray(np.max([np.zeros(place.shape[1]), *went], axis=0) > STILL)

    def runs(self) -> list[tuple[int, int]]:
        """First samples and ends of what can be used, without a gap."""
        edges = np.flatnonzero(np.diff(np.concatenate([[0], self.usable.astype(np.int8), [0]])))
        return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def starts(record: JointRecord) -> Marks:
    """[T] where simulated joints are set to what was measured: at the beginning of each run."""
    out = np.zeros(len(record.place), dtype=np.bool_)
    out[[first for first, _ in record.runs()]] = True
    return out


def stretches(record: JointRecord, length: int) -> NDArray[np.int64]:
    """First samples of stretches of ``length``, one after the other, :data:`WARM_S` after the beginning of a run."""
    warm = int(round(WARM_S / record.step))
    found = [np.arange(first + warm, end - length + 1, length) for first, end in record.runs()]
    return np.concatenate(found).astype(np.int64) if found else np.zeros(0, np.int64)


def check(records: Sequence[JointRecord], shortest_s: float) -> None:
    """Refuse what nothing can be identified from."""
    for record in records:
        if record.seconds < shortest_s:
            raise CannotTell(f"{record.name}: {record.seconds:.2g} s in which every source is measured; {shortest_s:g} "
                             "s at least are needed")
    if len({(round(record.step, 6), record.each) for record in records}) > 1:
        raise CannotTell("the logs have grids of different steps: " + ", ".join(
            f"{record.name} {1000 * record.step:.3g} ms" for record in records) + "; identify them one by one")
