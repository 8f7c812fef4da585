"""What it costs to write a dataset: episode by episode, many at once, and step by step; and to open a large one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal_benchmarks.data.sampling import STATE, episodes
from temporeal_benchmarks.rows import Row

STEPS = 100


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rows(quick: bool, out: Path) -> list[Row]:
    """Milliseconds of an episode, microseconds of a step, seconds to open."""
    shutil.rmtree(out, ignore_errors=True)
    singles, many = (5, 100) if quick else (50, 5000)
    some = list(episodes(STATE, 50, STEPS))
    with DatasetWriter(out / "single", STATE) as writer:
        each = seconds(lambda: [writer.add(one) for one in islice(some, singles)]) / singles
        stepped = seconds(lambda: streamed(writer, some)) / STEPS
    with DatasetWriter(out / "many", STATE) as writer:
        together = seconds(lambda: writer.add_many(some[k % len(some)] for k in range(many))) / many
    how = f"of {STEPS} steps and 20 numbers in 4 signals"
    return [Row("data.writing.add_ms", 1e3 * each, "ms", peer=f"an episode {how}, on disk when it returns"),
            Row("data.writing.add_many_ms", 1e3 * together, "ms", peer=f"an episode {how}, of {many}"),
            Row("data.writing.step_us", 1e6 * stepped, "us", peer="a step of an open episode, checked"),
            Row("data.writing.open_s", seconds(lambda: Dataset.open(out / "many")), "s", peer=f"{many} episodes")]


def streamed(writer: DatasetWriter, some: list[Episode]) -> None:
    """One episode step by step; it is dropped."""
    one = some[0]
    writer.begin()
    for k in range(STEPS):
        writer.step({name: values[k] for name, values in one.signals.items()}, one.action[k], reward=one.reward[k])
    writer.discard()
