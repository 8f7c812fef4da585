"""Times of samples that must increase by one period each."""

from __future__ import annotations

import numpy as np

from temporeal.policies.data.episodes.interface import DataError

UNEVEN = 0.05  # of a period, by which a time may be off, as for traces (docs/reference/traces.md)


def rate_of(times: np.ndarray, where: str) -> float:
    """Samples per second, by the usual step of ``times`` [T] s."""
    steps = np.diff(times)
    step = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0  # a step back is the episode's own mistake
    if not step > 0 or not np.isfinite(step):
        raise DataError(f"{where}: its times do not increase: nothing says how many samples a second has")
    return float(f"{1.0 / step:.6g}")


def check_times(times: np.ndarray, period: float) -> None:
    """``times`` [T] s increase by ``period`` each; a :class:`DataError` names the first that does not."""
    steps = np.diff(times)
    wrong = np.flatnonzero(~(np.abs(steps - period) <= UNEVEN * period))
    if not len(wrong):
        return
    back = np.flatnonzero(steps <= 0)  # whatever the period is
    wrong = back if len(back) else wrong
    k = int(wrong[0])
    step = float(steps[k])
    why = ("is not a number" if not np.isfinite(step) else "goes back" if step < 0 else "repeats" if step == 0 else
           "leaves a gap" if step > period else "comes early")
    raise DataError(f"index {k + 1}: the time {times[k + 1]:g} s {why} after {times[k]:g} s; one sample each "
                    f"{period:g} s is needed")
