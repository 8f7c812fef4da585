"""Learning curves come from the events of the run, resumed or not; a broken file is an error, not an empty plot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.evaluate.report.charts import POINTS, curve
from temporeal.policies.evaluate.report.learning import curves_of, learning_markup
from temporeal.policies.training.progress import scalars, tensorboard


def write(folder: Path, name: str, steps: range, value: float) -> None:
    """Events of one process, under a name that sorts as given."""
    with tensorboard(folder / "new") as log:
        for step in steps:
            log(step, {"success": value, "reward": float(step), "rate": 1e6})
    (written,) = (folder / "new").iterdir()
    written.rename(folder / f"events.out.tfevents.{name}")


def test_a_resumed_run_continues_its_curves(tmp_path: Path) -> None:
    write(tmp_path, "1", range(0, 50, 10), 0.0)
    write(tmp_path, "2", range(30, 60, 10), 1.0)  # from the checkpoint at step 30 on
    assert scalars(tmp_path)["success"] == [(0, 0), (10, 0), (20, 0), (30, 1), (40, 1), (50, 1)]
    drawn = curves_of(tmp_path)
    assert [c.title for c in drawn] == ["Success", "Reward of a step, mean"]  # the rate is no learning curve
    page = learning_markup(drawn)
    assert page.count("<svg") == page.count("polyline") == 2 and "Learning curves" in page


def test_a_run_without_events_has_no_curves(tmp_path: Path) -> None:
    assert curves_of(tmp_path / "none") == [] and learning_markup([]) == ""


def test_a_file_that_is_none_of_events_is_named(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(bytes(range(256)) * 8)
    with pytest.raises(ValueError, match=r"events\.out\.tfevents\.1 cannot be read"):
        curves_of(tmp_path)


def test_a_long_curve_is_averaged_and_stays_in_the_picture() -> None:
    steps = np.arange(5000.0)
    drawn = curve(1e3 * steps, np.sin(steps), title="t", across="steps")
    points = drawn.partition('points="')[2].partition('"')[0].split()
    assert len(points) == POINTS and "2 M" in drawn
    assert all(0 <= float(x) <= 560 and 0 <= float(y) <= 190 for x, y in (p.split(",") for p in points))
