"""Latencies of several rounds as rows: each round against its own bare ping."""

from __future__ import annotations

from statistics import median

import numpy as np

from temporeal_benchmarks.deployment.latency_flight import Round
from temporeal_benchmarks.priority import load
from temporeal_benchmarks.rows import Row, at_least, at_most, not_measured

ENOUGH = 200  # commands and pings of a round that counts
LASTING = 0.5  # of the rounds, chosen: with fewer that count nothing is judged
ABOVE_MS = {"p50": (0.5, 0.3), "p99": (0.99, 1.0)}  # quantile, and target of what is above the bare ping
PICTURES_SHARE = 0.9  # of the pictures that are due, chosen: with fewer there is no camera beside it to speak of
CAMERA = "deploy.camera.p99 with a 640x480 camera at 30 Hz that is read, over p99 without"
CAMERA_RATIO = 2.0  # target


def lasting(found: list[Round]) -> list[Round]:
    """The rounds with enough of both to count."""
    return [one for one in found if min(map(len, (one.found, one.bare))) >= ENOUGH]


def middle(quantile: float, found: list[Round]) -> tuple[float, float, float]:
    """Medians over the rounds [s] of a quantile: of commands, of bare pings, of the difference within a round."""
    pairs = [(float(np.quantile(one.found, quantile)), float(np.quantile(one.bare, quantile))) for one in found]
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(a - b for a, b in pairs)


def compared(plain: list[Round], rounds: int, seconds: float) -> list[Row]:
    """Rows of latency: medians over the rounds, each round against its own bare ping."""
    counted = lasting(plain)
    taken = f"{len(counted)} of {rounds} rounds of {seconds:g} s"
    if len(counted) < LASTING * rounds or not counted:
        why = f"{taken} lasted, the machine had no time for the others; {load()}"
        return [not_measured(f"deploy.latency.{name} above the bare ping", "ms", most, why)
                for name, (_, most) in ABOVE_MS.items()]
    remark = f"{taken}, {sum(len(one.found) for one in counted)} commands, {load()}"
    rows = []
    for name, (quantile, most) in ABOVE_MS.items():
        ours, bare, above = (1e3 * x for x in middle(quantile, counted))
        rows += [Row(f"deploy.latency.{name}", ours, "ms", None, remark), Row(f"deploy.bare_ping.{name}", bare, "ms"),
                 at_most(f"deploy.latency.{name} above the bare ping", above, "ms", most, taken)]
    for part, name in enumerate(("controller", "guard")):
        took = [float(np.median(one.parts[:, part])) for one in counted if len(one.parts)]
        rows.append(Row(f"deploy.latency.p50 in the {name}", 1e3 * median(took) if took else None, "ms"))
    return rows


def beside_camera(plain: list[Round], with_camera: list[Round], read: int, due: float) -> list[Row]:
    """Rows of the camera. Of ``due`` pictures its reader decoded ``read``: where that is too few there was no camera
    to speak of, and its cost is not measured."""
    pictures = f"{read} of {due:.0f} pictures of 640x480 at 30 Hz; {load()}"
    decoded = at_least("deploy.camera.pictures decoded by a reader beside", read / due if due else 0.0, "1",
                       PICTURES_SHARE, pictures)
    plain, with_camera = lasting(plain), lasting(with_camera)
    if not decoded.ok or not plain or not with_camera:
        why = f"only {pictures}" if not decoded.ok else f"no round lasted, the machine had no time for it; {load()}"
        return [decoded, not_measured(CAMERA, "1", CAMERA_RATIO, why)]
    ours, theirs = middle(0.99, plain)[0], middle(0.99, with_camera)[0]
    return [decoded, Row("deploy.camera.p99", 1e3 * theirs, "ms"), at_most(CAMERA, theirs / ours, "1", CAMERA_RATIO)]


def late_row(segments: list[np.ndarray], period: float, seconds: float) -> Row:
    """Cycles whose command came more than half a period late, as a share of all cycles that were due.

    ``segments``: of each stretch of flight when it began, when each command arrived, and when it ended [s]. A gap
    counts as often as it has cycles without a command, so that a robot that hears nothing is late in each of them.
    """
    gaps = np.concatenate([np.diff(segment) for segment in segments]) if segments else np.zeros(0)
    late = np.floor(gaps / period - 0.5).clip(min=0.0).sum()
    commands = sum(len(segment) - 2 for segment in segments)
    name, most, due = f"deploy.late cycles at {1 / period:g} Hz", 0.001, seconds / period
    if commands <= 0:
        return not_measured(name, "1", most, f"no command came in {seconds:g} s; {load()}")
    return at_most(name, float(late / due), "1", most,
                   f"{commands} commands in {seconds:g} s, {load()}; the target is for an idle machine")
