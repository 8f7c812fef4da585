"""How far a study is: what a trial may take, what runs now, when all will be done."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from temporeal.policies.evaluate.suite import catalog
from temporeal.policies.evaluate.suite.averages import Trial
from temporeal.policies.evaluate.suite.catalog import METHODS
from temporeal.policies.training.progress import clock
from temporeal_benchmarks.stl_study.items import Item

HUNG = 20.0  # times its budget of CPU time: a trial that takes so long by the clock hangs; a busy machine is no fault
SPARE = 3600.0  # s beyond that, for what is not in the budget
QUICK_LIMIT, QUICK_TRIAL = 570.0, 90.0  # s: of all that a quick study starts, of one trial at most
GIVEN_UP = "given up after"  # begin of the reason of a trial that took too long
AROUND = 15.0  # s that a trial takes beside its budget, before one was seen
WIDTH = 100  # of the line that is drawn on a terminal


@dataclass
class Progress:
    """How far the trials are, and when they will be done."""

    items: Sequence[Item]
    at_once: int = 1
    deadline: float | None = None  # of the monotonic clock
    took: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)  # of the monotonic clock, by number
    over: set[int] = field(default_factory=set)

    def limit(self, item: Item) -> float:
        """Seconds that ``item`` may take; 0 where it should not be started any more."""
        if self.deadline is None:
            return HUNG * item.budget_s + SPARE
        left = self.deadline - time.monotonic()
        return min(left, QUICK_TRIAL) if left > self.expected(item) else 0.0

    def cut_short(self, found: Trial) -> bool:
        """Whether a trial that failed was in a hurry: there is a deadline, and it has passed, or the trial was given up
        by the wall's clock, while what it was promised is CPU time."""
        return self.deadline is not None and (
            time.monotonic() >= self.deadline or str(found.get("reason")).startswith(GIVEN_UP))

    def expected(self, item: Item) -> float:
        """Seconds: as the same method took on this system; else its budget, and what there is to do besides."""
        own = self.took.get((item.system, item.method))
        parts = 2 if METHODS[item.method].kind == catalog.MODEL else 1  # it is trained, then it plans
        return fmean(own) if own else parts * item.budget_s + AROUND

    def left(self) -> float:
        """Seconds until all are done."""
        now = time.monotonic()
        spent = {number: now - began for number, began in list(self.began.items())}  # others begin meanwhile
        each = [max(self.expected(item) - spent.get(number, 0.0), 0.0)
                for number, item in enumerate(self.items) if number not in self.over]
        return max([sum(each) / self.at_once, *each])

    def begin(self, number: int) -> None:
        """Trial ``number`` begins."""
        self.began[number] = time.monotonic()

    def draw(self) -> None:
        """What runs and how long it will take, on a terminal."""
        if sys.stderr.isatty():
            now = time.monotonic()
            running = ", ".join(f"{self.items[number].name} {clock(now - began)}"
                                for number, began in list(self.began.items()) if number not in self.over)
            text = f"  [{len(self.over)}/{len(self.items)}] {running}; all in {clock(self.left())}"
            print(f"\r{text[:WIDTH]:{WIDTH}}", end="", file=sys.stderr, flush=True)

    def done(self, number: int, text: str) -> None:
        """Say what came of trial ``number``."""
        item, seconds = self.items[number], time.monotonic() - self.began[number]
        self.took.setdefault((item.system, item.method), []).append(seconds)
        self.over.add(number)
        start = f"\r{'':{WIDTH}}\r" if sys.stderr.isatty() else ""
        print(f"{start}  [{len(self.over)}/{len(self.items)}] {item.title}: {text}, {seconds:.0f} s; "
              f"{clock(self.left())} left", file=sys.stderr, flush=True)
