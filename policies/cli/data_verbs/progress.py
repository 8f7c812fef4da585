"""``temporeal data progress``: how well a learned model of progress judges the episodes of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, counter, print_json, say
from temporeal.policies.cli.specs.dataset_options import add_formula, formula_given
from temporeal.policies.runs.errors import OK, BadInput

if TYPE_CHECKING:
    import numpy as np

    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.evaluate.progress_models import Judged, Summary

SUMMARY = "how well a model of progress judges episodes: order, verdicts, formula"
HELP = """\
Judges a model of progress (temporeal train algo=vlac, gvl, q_progress, contrastive_goals, vptr, attribution) by the
episodes of a dataset: those that it held out, where the set is the one that it learned from, else all.

  VOC            rank correlation of value and time until the task is done, over the successes: does it know what
                 comes first? (Done: when the objective of the set's own task first calls it a success.)
  negative rate  share of the steps in which the value fell
  AUC            chance that a success ends with a greater value than a failure
  agreement      rank correlation of the last value with the robustness of the task's formula, or of --formula
  called done    of a classifier (algo=success_classifier): successes and failures that it calls done

Example:
  temporeal data progress outputs/train/push-vlac-1 demos/push
  temporeal data progress outputs/train/push-vlac-1 demos/push --all --out values.png --json
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of the model's run")
    parser.add_argument("folder", type=Path, metavar="SET", help="the dataset's folder")
    parser.add_argument("--all", action="store_true", help="judge by episodes that it learned from, too")
    add_formula(parser, "what the values should agree with")
    parser.add_argument("-o", "--out", type=Path, metavar="PICTURE", help="draw all values (.png, .svg, .pdf)")
    add_json(parser)


def run(options: Any) -> int:
    """Print the figures."""
    from temporeal.policies.cli.data_verbs.plot import check_picture
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.evaluate.progress_models import judged, summary
    from temporeal.policies.runs.progress import load_progress, unseen

    if options.out:
        check_picture(options.out)
    model, data = load_progress(options.run), Dataset.open(options.folder)
    episodes = list(range(data.episodes)) if options.all else unseen(options.run, data)
    if not episodes:
        raise BadInput(f"{options.folder}: the model learned from all {data.episodes} episodes and held none out "
                       "(algo.hold_out=0): judge it by another set, or by these with --all")
    show, found = counter("episodes"), []
    for one in judged(model, data, episodes, *by_formula(options, data)):
        found.append(one)
        show(len(found), len(episodes))
    if options.out:
        draw(options.out, found)
    figures = summary(found)
    if options.json:
        print_json({"run": options.run, "dataset": options.folder, **figures.to_json(), **called_done(model, found),
                    "episodes": [one.to_json() for one in found]})
    else:
        say("\n".join([*lines(figures), *calls(called_done(model, found), figures)]))
    return OK


def called_done(model: Any, found: Sequence[Judged]) -> dict[str, Any]:
    """How many successes and failures a classifier calls done, by its own threshold; nothing of another model."""
    from temporeal.policies.training.progress_models.thresholds import score

    if (chosen := getattr(model, "chosen", None)) is None:
        return {}
    called = [one.success for one in found if score(one.values, chosen.in_a_row, stays=True) >= chosen.value]
    return {"called_done": {"threshold": chosen.value, "in_a_row": chosen.in_a_row, "successes": called.count(1.0),
                            "failures": called.count(0.0)}}


def calls(counts: dict[str, Any], figures: Summary) -> list[str]:
    """The same in words."""
    return [f"{'called done':14} {one['successes']} of {figures.successes} successes, {one['failures']} of "
            f"{figures.failures} failures: {one['in_a_row']} samples in a row from {one['threshold']:.4g} on"
            for one in counts.values()]


def by_formula(options: Any, data: Dataset) -> tuple[np.ndarray | None, np.ndarray | None]:
    """[E] robustness of the formula of the options, or of the set's own task, and the samples at which that was done;
    None where there is none."""
    from temporeal.policies.data.curation.robustness import judge, table_of
    from temporeal.policies.runs.offline import task_of
    from temporeal.policies.runs.progress import done_at

    task, (formula, semantics) = task_of(data), formula_given(options, table_of(data))
    done = None if task is None else done_at(data, task)
    if formula is None and task is not None and done is not None:
        formula = task.formula
    return None if formula is None else judge(formula, table_of(data), semantics).robustness, done


def lines(figures: Summary) -> list[str]:
    """The figures in words."""
    rows = (("VOC", figures.voc, f"over {figures.successes} successes", figures.voc_failures),
            ("", figures.voc_whole, "with what they recorded after the task was done", None),
            ("negative rate", figures.negative_rate, "of their steps", figures.negative_rate_failures),
            ("AUC", figures.auc, f"against {figures.failures} failures, by last values", None),
            ("", figures.auc_greatest, "by greatest values", None),
            ("agreement", figures.agreement, "of last values with the formula's robustness", None))
    return [f"{name:14} {number(value)} {of}{'' if bad is None else f'; of failures {number(bad)}'}"
            for name, value, of, bad in rows]


def number(value: float) -> str:
    """A figure; a dash where there is none."""
    return "-" if value != value else f"{value:.3f}"


def draw(path: Path, found: list[Judged]) -> None:
    """The values of all episodes over time, successes and failures in their colours."""
    from matplotlib.figure import Figure

    from temporeal.policies.data.curation.plotting import COLOURS

    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.add_subplot(xlabel="sample", ylabel="progress", ylim=(-0.02, 1.02))
    for one in found:
        axes.plot(one.values, lw=0.8, color=COLOURS[None if one.success != one.success else bool(one.success)])
    figure.savefig(path, dpi=110)
