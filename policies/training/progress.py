"""Progress of a long run: a live table on a terminal, plain lines elsewhere, TensorBoard on request, and read back."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

from temporeal.robots.handed_over.files import inside

Metrics = Mapping[str, float]
Logger = Callable[[int, Metrics], None]
"""Takes the environment steps done and the figures of one iteration."""


CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.monotonic, "cpu": time.process_time}
"""What ``max_seconds`` counts: time that passes, or time that this process computes (all its threads together)."""


def clock(seconds: float) -> str:
    """``m:ss`` or ``h:mm:ss``."""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def done_of(metrics: Metrics) -> dict[str, str]:
    """What was done and how fast: environment steps, or updates of a learner from data."""
    if "updates" in metrics:
        return {"updates": f"{metrics['updates'] / 1e3:.1f} k", "rate": f"{metrics['rate']:.0f}/s"}
    steps, rate = metrics["steps"], metrics["rate"]
    return {"steps": f"{steps / 1e6:.2f} M" if steps >= 1e6 else f"{steps / 1e3:.1f} k",
            "rate": f"{rate / 1e3:.0f} k/s" if rate >= 1e4 else f"{rate:.0f}/s"}


def summary(metrics: Metrics) -> dict[str, str]:
    """The main figures as text, in order; missing ones are left out."""
    out = {**done_of(metrics), "elapsed": clock(metrics["seconds"]), "left": clock(metrics["eta"])}
    for name, text in (("return", "{:.2f}"), ("length", "{:.0f}"), ("success", "{:.1%}"),
                       ("evaluated_success", "{:.1%}"), ("robustness", "{:.2f}"),
                       ("reward", "{:.3f}"), ("std", "{:.2f}"), ("kl", "{:.4f}"), ("learning_rate", "{:.1e}"),
                       ("explained", "{:.2f}")):
        if name in metrics:
            out[name.replace("_", " ")] = text.format(metrics[name])
    return out


class Lines:
    """One plain line per ``every`` seconds (a log file, a pipe, CI)."""

    def __init__(self, title: str, every: float = 5.0, stream: TextIO | None = None) -> None:
        self.title, self.every, self.stream = title, every, stream
        self.due = 0.0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, metrics: Metrics) -> None:
        if time.monotonic() < self.due and metrics["eta"] > 0:
            return
        self.due = time.monotonic() + self.every
        text = "  ".join(f"{k} {v}" for k, v in summary(metrics).items())
        print(f"{self.title}: {text}", file=self.stream or sys.stdout, flush=True)


class Live:
    """A bar and a table that are redrawn in place (rich)."""

    def __init__(self, title: str) -> None:
        from rich.live import Live as RichLive

        self.title = title
        self.live = RichLive(refresh_per_second=4, transient=False)

    def __enter__(self) -> Live:
        self.live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.live.__exit__(*error)

    def __call__(self, metrics: Metrics) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        items = summary(metrics)
        for _ in items:
            table.add_column(justify="right")
        table.add_row(*(f"[dim]{k}[/]" for k in items))
        table.add_row(*items.values())
        bar = ProgressBar(total=1.0, completed=min(1.0, metrics["fraction"]), width=60)
        self.live.update(Group(f"[bold]{self.title}[/]", bar, table))


Progress = Lines | Live


def show(title: str) -> Progress:
    """The live table where standard output is a terminal and rich is installed, else plain lines."""
    if sys.stdout.isatty():
        try:
            return Live(title)
        except ImportError:
            pass  # rich only makes it prettier
    return Lines(title)


class tensorboard(AbstractContextManager["tensorboard"]):
    """A logger that writes TensorBoard events to ``folder``."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoard logging needs the package tensorboard: pip install tensorboard") from error
        self.writer = SummaryWriter(str(folder))

    def __call__(self, steps: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, steps)

    def __exit__(self, *_: object) -> None:
        self.writer.close()


LARGEST_EVENTS = 1 << 28  # bytes of a file of events that is read: a week of figures is a tenth of it


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What :class:`tensorboard` wrote to ``folder``: by name, (environment steps, value) in order.

    Where a run was resumed, later files replace what earlier ones say of the same steps. ValueError: a file cannot be
    read, or is larger than :data:`LARGEST_EVENTS`. Nothing without the folder, or without the package.
    """
    try:
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
    except ImportError:
        return {}
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(path for path in folder.glob("events.out.tfevents.*") if path.is_file()):
        inside(folder, file)
        if file.stat().st_size > LARGEST_EVENTS:
            raise ValueError(f"{file.name} has {file.stat().st_size:,} bytes; {LARGEST_EVENTS:,} at most are read")
        own: dict[str, list[tuple[int, float]]] = {}
        try:
            events = [Event.FromString(raw) for raw in RawEventFileLoader(str(file)).Load()]
        except Exception as error:  # foreign bytes raise what they like
            raise ValueError(f"{file.name} cannot be read: {error}") from error
        if not events and file.stat().st_size:  # its first record is longer than the file
            raise ValueError(f"{file.name} cannot be read: it begins with no event")
        for event in events:
            for value in event.summary.value:
                own.setdefault(value.tag, []).append((event.step, value.simple_value))
        for name, rows in own.items():
            found[name] = [row for row in found.get(name, []) if row[0] < rows[0][0]] + rows
    return found
