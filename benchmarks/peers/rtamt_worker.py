"""The process of rtamt: what it can be asked."""

from __future__ import annotations

import logging
import sys
import time
import typing
from typing import Any

from temporeal_benchmarks.peers.process import seconds_of, serve

# ANTLR 4.7 imports typing.io, which Python 3.13 no longer has; what it takes from there is in typing
sys.modules.setdefault("typing.io", typing)

import rtamt  # type: ignore[import-not-found]  # noqa: E402

Signals = dict[str, list[float]]
"""Values by signal name, one per sample."""


def specification(text: str, names: list[str], period_ms: int, online: bool = False) -> Any:
    """``text``, with windows in seconds, over float signals ``names`` sampled each ``period_ms``."""
    kind = rtamt.StlDiscreteTimeOnlineSpecification if online else rtamt.StlDiscreteTimeOfflineSpecification
    spec = kind()
    for name in names:
        spec.declare_var(name, "float")
    spec.spec = text
    spec.set_sampling_period(period_ms, "ms")
    spec.parse()
    return spec


def robustness(spec: Any, signals: Signals) -> list[float]:
    """Robustness at each sample. ``evaluate`` may append to the lists that it is given, so that it gets copies."""
    length = len(next(iter(signals.values())))
    data = {"time": list(range(length)), **{name: list(values) for name, values in signals.items()}}
    return [float(value) for _, value in spec.evaluate(data)]


def evaluate(text: str, worlds: list[Signals], period_ms: int, declare: bool = True) -> list[list[float]]:
    """Robustness of each world at each sample; without ``declare`` the text declares its signals itself."""
    spec = specification(text, list(worlds[0]) if declare else [], period_ms)
    return [robustness(spec, signals) for signals in worlds]


def raw(text: str, signals: Signals, period_ms: int) -> dict[str, Any]:
    """What ``evaluate`` of rtamt returns and what it leaves in the lists that it is given."""
    spec = specification(text, list(signals), period_ms)
    values = spec.evaluate({"time": list(range(len(next(iter(signals.values()))))), **signals})
    return {"values": [float(value) for _, value in values], "signals": signals}


kept: dict[str, tuple[Any, list[Signals]]] = {}


def prepare(key: str, text: str, worlds: list[Signals], period_ms: int) -> None:
    """Keep a parsed formula and signals under ``key``, for :func:`run`."""
    kept[key] = specification(text, list(worlds[0]), period_ms), worlds


def run(key: str) -> float:
    """Processor time [s] to evaluate what :func:`prepare` kept, without parsing and without copying lists."""
    spec, worlds = kept[key]
    length = len(next(iter(worlds[0].values())))

    def once() -> float:
        data = [{"time": list(range(length)), **{n: list(v) for n, v in signals.items()}} for signals in worlds]
        begin = time.process_time()
        for signals in data:
            spec.evaluate(signals)
        return time.process_time() - begin

    return seconds_of(once)


monitors: dict[str, tuple[Any, int]] = {}


def monitor(key: str, text: str, names: list[str], period_ms: int) -> None:
    """Begin an online monitor, for :func:`updates`."""
    spec = specification(text, names, period_ms, online=True)
    spec.pastify()
    monitors[key] = spec, 0


def updates(key: str, signals: Signals) -> list[float]:
    """Processor time [s] of each update of a monitor with the next samples."""
    spec, begun = monitors[key]
    seconds = []
    samples = [list(zip(signals, values)) for values in zip(*signals.values())]
    for i, sample in enumerate(samples):
        begin = time.process_time()
        spec.update(begun + i, sample)
        seconds.append(time.process_time() - begin)
    monitors[key] = spec, begun + len(samples)
    return seconds


def monitored(text: str, signals: Signals, period_ms: int) -> list[float]:
    """What an online monitor says after each sample."""
    spec = specification(text, list(signals), period_ms, online=True)
    spec.pastify()
    samples = [list(zip(signals, values)) for values in zip(*signals.values())]
    return [float(spec.update(i, sample)) for i, sample in enumerate(samples)]


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve([evaluate, raw, prepare, run, monitor, updates, monitored])
