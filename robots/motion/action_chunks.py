"""Action chunks: the commands of the next second that a slow policy gives at once, played at the control rate.

Row k of a chunk is the command for the time ``observed + k * dt``, where ``observed`` is when the policy's observation
was made. However long the inference took, what is played at time t is what the policy meant for t: the steps that have
passed are skipped by construction, and there is no counting of delays. Rows are joined by a monotone cubic, a newer
chunk is faded in, and where the newest one ends there is no command.

What others do, and why this differs:

- ACT (Zhao et al., arXiv 2304.13705, "temporal ensembling"; tonyzhaozh/act, ``imitate_episodes.py``, k = 0.01) runs the
  policy at every step and averages all chunks with weights exp(-0.01 i), i = 0 the oldest: the newest knowledge weighs
  least, and the policy must be as fast as the control loop. Here two chunks meet for ``fade_s``, then the newer one
  rules alone.
- LeRobot's client (huggingface/lerobot, ``src/lerobot/async_inference/configs.py``) replaces the overlap by
  0.3 old + 0.7 new at once: a jump of 0.7 times their difference. Here the weight of the newer chunk grows from 0, with
  a continuous slope.
- RTC (Black et al., arXiv 2506.07339) lets the network itself continue from the steps that will have been executed when
  it is done (weight 1), and bind it less and less to those after (soft mask): better than any fade, and only for
  networks that can be conditioned so. Here its frozen part is ``committed_s``, and the fade stands for the soft mask.

Units are the command's. [K, A]: K steps of A components. Times are s on one monotonic clock. numpy only, no clock here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ROUNDING = 1e-9  # of a step: a time that is a row's but for rounding is that row's


class ChunkError(ValueError):
    """Numbers from which no chunk can be played; the message names number, rule and legal values."""


@dataclass(frozen=True)
class Playing:
    """How chunks are played and asked for.

    Args:
        fade_s: a newer chunk takes over in this time. Where the two differ by D, the fade adds at most
            1.5 D / ``fade_s`` to the speed of the command.
        committed_s: the commands of this time ahead are sent already (trajectories of several points): the fade begins
            after it.
        margin_s: a chunk is asked for this much earlier than the latency alone demands.
        every_s: age of the newest chunk's observation at which the next one is asked for even though the queue is long
            enough; None: half a chunk, as LeRobot's ``chunk_size_threshold`` of 0.5.
    """

    fade_s: float = 0.1
    committed_s: float = 0.0
    margin_s: float = 0.05
    every_s: float | None = None

    def __post_init__(self) -> None:
        for name, lowest in (("fade_s", "above 0"), ("committed_s", "0 or more"), ("margin_s", "above 0"),
                             ("every_s", "0 or more")):
            value = getattr(self, name)
            if name == "every_s" and value is None:
                continue
            if not (isfinite(value) and (value > 0 or (value == 0 and lowest == "0 or more"))):
                raise ChunkError(f"{name} is a time in s, {lowest}; got {value!r}")


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows that can be played; made by :func:`chunk`.

    Args:
        observed: time of the observation behind it.
        begin: time at which row 0 is due.
        dt: time between rows.
        rows, slopes: [K, A], slopes per s.
        hold: [A] components that are not interpolated.
    """

    observed: float
    begin: float
    dt: float
    rows: Array
    slopes: Array
    hold: NDArray[np.bool_]

    @property
    def end(self) -> float:
        """The last row lasts one ``dt``, as every other; nothing follows it."""
        return self.begin + len(self.rows) * self.dt


def chunk(observed: float, rows: Any, dt: float, *, begin: float | None = None, hold: Collection[int] = ()) -> Chunk:
    """A chunk whose row 0 is due at ``begin`` (default: when it was observed).

    ``hold``: components whose rows are steps (quaternions, grippers, switches): values between two rows have no
    meaning.
    """
    values = np.array(rows, dtype=np.float64)
    held = np.zeros(values.shape[1], dtype=bool)
    held[list(hold)] = True
    return Chunk(observed, observed if begin is None else begin, dt, values, slopes(values, dt), held)


def slopes(rows: Array, dt: float) -> Array:
    """Slopes [K, A] of the monotone cubic through ``rows`` [K, A]: between two rows it never leaves their range.

    Inner rows: the harmonic mean of the two neighbouring differences, 0 where they differ in sign (F. N. Fritsch,
    J. Butland, SIAM Journal on Scientific and Statistical Computing 5, 1984, equidistant): at most twice the smaller
    one, so that the curve is monotone (F. N. Fritsch, R. E. Carlson, SIAM Journal on Numerical Analysis 17, 1980: at
    most three times) and nowhere more than twice as steep as the rows. First row: the first difference. Last row: 0, a
    chunk that runs out ends at rest.
    """
    out = np.zeros_like(rows)
    if len(rows) > 1:
        step = np.diff(rows, axis=0) / dt
        a, b = step[:-1], step[1:]
        same = a * b > 0
        out[1:-1] = np.where(same, 2.0 * a * b / np.where(same, a + b, 1.0), 0.0)
        out[0] = step[0]
    return out


def sample(c: Chunk, t: float) -> Array:
    """The command [A] of one chunk at ``t``: its first row before it begins, its last row after it ends (for blends).
    """
    s = (t - c.begin) / c.dt
    k = int(min(max(s + ROUNDING, 0.0), len(c.rows) - 1))
    if s <= 0.0 or k == len(c.rows) - 1:
        at: Array = c.rows[k].copy()
        return at
    u = max(s - k, 0.0)
    low, high = c.rows[k], c.rows[k + 1]
    rise = u * u * (3.0 - 2.0 * u)
    bend = u * (1.0 - u) * c.dt * ((1.0 - u) * c.slopes[k] - u * c.slopes[k + 1])
    between = np.clip(low + rise * (high - low) + bend, np.minimum(low, high), np.maximum(low, high))  # not by rounding
    out: Array = np.where(c.hold, low, between)
    return out


@dataclass(frozen=True, eq=False)
class Plan:
    """The chunk in force, and the plan that it replaces from ``since`` on (None: there is none).

    Args:
        started: start of the current playback without a gap.
    """

    chunk: Chunk
    started: float
    since: float = -inf
    fade_s: float = 0.0
    before: Plan | None = None


def weight(plan: Plan, t: float) -> float:
    """Weight 0..1 of the newest chunk at ``t``: 3 x^2 - 2 x^3, with slope 0 at both ends and at most 1.5."""
    if plan.before is None:
        return 1.0
    x = min(max((t - plan.since) / plan.fade_s, 0.0), 1.0)
    return x * x * (3.0 - 2.0 * x)


def blended(plan: Plan, t: float) -> Array:
    """The command [A] at ``t``, also after the plan's end (then its last row).

    Held components come from the newest chunk from ``since`` on.
    """
    w = weight(plan, t)
    if plan.before is None or w >= 1.0:
        return sample(plan.chunk, t)
    old, new = blended(plan.before, t), sample(plan.chunk, t)
    out: Array = np.where(plan.chunk.hold, new if t >= plan.since else old, old + w * (new - old))
    return out


def command(plan: Plan | None, t: float) -> Array | None:
    """The command [A] at ``t``; None without a chunk and after the end of the newest one."""
    return None if plan is None or t >= plan.chunk.end else blended(plan, t)


def joined(plan: Plan | None, new: Chunk, now: float, playing: Playing) -> Plan:
    """``plan`` with ``new`` taking over; chunks whose fade is complete are dropped."""
    if plan is None:
        return Plan(new, now)
    started = plan.started if now < plan.chunk.end else now
    return Plan(new, started, now + playing.committed_s, playing.fade_s, settled(plan, now))


def settled(plan: Plan, now: float) -> Plan:
    """``plan`` without the chunks that no longer matter from ``now`` on."""
    if plan.before is None or now >= plan.since + plan.fade_s:
        return Plan(plan.chunk, plan.started)
    return replace(plan, before=settled(plan.before, now))


def begin_of(plan: Plan | None, observed: float, now: float) -> float:
    """When row 0 of a chunk is due that arrives ``now``: at its observation, but not before the current playback
    started.

    If the observation was made while nothing was played (at the start, in a gap), the chunk begins now: the policy has
    not moved the robot since, so that there is nothing to skip.
    """
    if plan is None or observed >= plan.chunk.end:
        return now
    return max(observed, plan.started)


@dataclass(frozen=True)
class Refusal:
    """Why a chunk is not used: one of :data:`REFUSALS`, and a sentence with the numbers."""

    code: str
    text: str


REFUSALS = ("shape", "not finite", "future", "duplicate", "reordered", "late", "unknown")


def refusal(
    rows: Any, observed: float, now: float, *, steps: int, size: int, dt: float, newest: float,
    asked: Collection[float],
) -> Refusal | None:
    """Why ``rows``, computed from the observation at ``observed``, cannot be used ``now``; None if they can.

    Args:
        steps, size: K and A that the policy declares.
        newest: observation time of the newest chunk used; -inf without one.
        asked: times of the observations sent in this mission.
    """
    values = np.asarray(rows)
    if values.shape != (steps, size) or values.dtype.kind != "f":
        return Refusal("shape", f"the chunk is {values.dtype} {values.shape}, needed are numbers {(steps, size)}")
    if not np.isfinite(values).all():
        step, component = np.argwhere(~np.isfinite(values))[0].tolist()
        return Refusal("not finite", f"the chunk has {values[step, component]} in step {step}, component {component}")
    if not observed <= now:
        return Refusal("future", f"the chunk is of an observation {observed - now:.3f} s from now")
    if observed == newest:
        return Refusal("duplicate", "a chunk of this observation is in use already")
    if observed < newest:
        return Refusal("reordered", f"the chunk's observation is {newest - observed:.3f} s older than the one in use")
    if observed + steps * dt <= now:
        return Refusal("late", f"the chunk of {steps * dt:g} s came {now - observed:.3f} s after its observation")
    if observed not in asked:
        return Refusal("unknown", f"the chunk is of an observation {now - observed:.3f} s ago that was not sent")
    return None


@dataclass
class Latency:
    """The newest ``window`` times [s] from observation to chunk."""

    window: int = 20
    seconds: deque[float] = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = deque(maxlen=self.window)

    def add(self, seconds: float) -> None:
        """Record one latency."""
        self.seconds.append(seconds)

    @property
    def most(self) -> float:
        """The largest latency, 0 before the first. Planned with, because asking early costs an inference, late a stop.
        """
        return max(self.seconds, default=0.0)

    @property
    def p95(self) -> float:
        """95 % quantile; 0 before the first."""
        return float(np.quantile(self.seconds, 0.95)) if self.seconds else 0.0


def due(
    now: float, *, end: float, newest: float, asked: float, latency: float, length_s: float, playing: Playing
) -> bool:
    """Whether to ask for a chunk now.

    True if the plan's ``end`` is so near that, with ``latency`` and margin, a fade would no longer fit before it; if
    the ``newest`` used observation is older than ``every_s``; and without a plan (``end`` = -inf). An observation that
    was ``asked`` about and is unanswered is replaced by a newer one only when its answer is overdue: a slow or
    restarted worker then begins with current data.
    """
    every = 0.5 * length_s if playing.every_s is None else playing.every_s
    ahead = latency + playing.margin_s + playing.committed_s + playing.fade_s
    needed = now >= end - ahead or now >= newest + every
    return needed and (asked <= newest or now >= asked + latency + playing.margin_s)
