"""``temporeal data relabel``: rewards from a formula or a task, and goals in hindsight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, counter
from temporeal.policies.cli.specs.dataset_options import add_formula, add_out, formula_given, written
from temporeal.policies.runs.errors import OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.data.curation.robustness import Table
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.episodes.episode import Episode
    from temporeal.sim.stl.language.propositional import Formula
    from temporeal.sim.task import Objective

SUMMARY = "rewards from a formula or a task, goals in hindsight: a log becomes a task"
HELP = """\
Writes the episodes of a dataset with other rewards into a new one. The rewards are those of the functions that tasks
train with, run over the recorded samples; where they terminate, the episode ends.

With --formula the reward is progress over its decomposition (--reward progress): the way to the next timed subgoal,
hits, what must be kept, completion; or that of one of the baselines. Success is then the formula's own verdict.
--state adds the signal that such a reward depends on besides the samples (hits, stage, times): without it, or a task
whose observation has it, the reward is not a function of what a learner sees. With task=NAME (and its settings) the
reward is that task's.

--goal GOAL=ACHIEVED replaces a goal signal by what was achieved at the end of the episode (hindsight), before the
reward is computed; --keep writes the episodes with their own goals, too.

Example:
  temporeal data relabel logs --formula mission.stl --state formula_state --out paid
  temporeal data relabel play --goal goal_pos_w=cube_pos_w --keep task=lift --out paid
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("words", nargs="+", metavar="SET [task=NAME ...]",
                        help="the dataset's folder; a task and its settings, whose reward it is")
    add_out(parser)
    add_formula(parser, "what the reward is of")
    parser.add_argument("--reward", default="progress", metavar="NAME",
                        help="progress, terminal_robustness, tau_mdp or f_mdp (%(default)s)")
    parser.add_argument("--weights", default="{}", metavar="JSON", help="""coefficients of it: '{"done": 10}'""")
    parser.add_argument("--state", default="", metavar="SIGNAL", help="add the formula's state as this signal")
    parser.add_argument("--goal", metavar="GOAL=ACHIEVED", help="goals in hindsight")
    parser.add_argument("--keep", action="store_true", help="with --goal: the episodes with their own goals, too")
    add_json(parser)


def run(options: Any) -> int:
    """Write the episodes."""
    from dataclasses import replace

    from temporeal.policies.data.curation.copying import own_interface, write
    from temporeal.policies.data.curation.relabeling import state_signal
    from temporeal.policies.data.curation.robustness import table_of
    from temporeal.policies.data.episodes.dataset import Dataset

    folder, *words = options.words
    data = Dataset.open(Path(folder))
    table = table_of(data)
    formula, semantics = formula_given(options, table)
    check_options(options, words)
    objective, reads = the_objective(options, words, formula, table)
    interface = own_interface(data)
    if options.state:
        interface = replace(interface, signals={**interface.signals,
                                                options.state: state_signal(objective, options.state)})
    count = data.episodes * (2 if options.keep else 1)
    write(options.out, interface, Relabeling(data, objective, reads, formula, semantics, options), said(options, words),
          counter("episodes"), count)
    written(options, {"out": options.out, "episodes": count})
    return OK


def check_options(options: Any, words: Sequence[str]) -> None:
    """A formula or a task, and options that belong to it."""
    if bool(options.formula) == bool(words):
        raise BadInput("give --formula, or task=NAME: whose reward is it?")
    if words and (options.state or options.weights != "{}" or options.reward != "progress"):
        raise BadInput("--reward, --weights and --state are those of a --formula; a task's reward is a setting of it: "
                       "task.reward.NAME=VALUE")
    if options.keep and not options.goal:
        raise BadInput("--keep is for --goal")
    if options.goal and not all(options.goal.partition("=")[::2]):
        raise BadInput(f"--goal {options.goal}: write GOAL=ACHIEVED, such as goal_pos_w=cube_pos_w")


def the_objective(
    options: Any, words: Sequence[str], formula: Formula | None, table: Table
) -> tuple[Objective, list[str]]:
    """The objective, and the signals that it may read."""
    from temporeal.policies.cli.specs.spec_file import read_json
    from temporeal.policies.data.curation.relabeling import objective_of, read_by

    if formula is not None:
        steps = int(table.lengths.max(initial=2)) - 1
        coefficients = read_json(options.weights, "--weights is no JSON")
        return (objective_of(formula, table.dt, steps, table.signals, options.reward, coefficients),
                read_by(formula, table.signals))
    from temporeal.policies.runs.environments import make_task
    from temporeal.policies.runs.settings.compose import compose

    task = make_task(compose(words))
    if abs(task.control_dt - table.dt) > 1e-6 * table.dt:
        raise BadInput(f"{table.source} has a sample each {table.dt:g} s, task {task.name!r} each "
                       f"{task.control_dt:g} s")
    return task.objective, read_by(None, table.signals)


class Relabeling:
    """The episodes of ``data`` with their new rewards, in their order; with ``--keep`` each twice."""

    def __init__(self, data: Dataset, objective: Objective, reads: list[str], formula: Formula | None, semantics: Any,
                 options: Any) -> None:
        self.data, self.objective, self.reads, self.options = data, objective, reads, options
        self.formula, self.semantics = formula, semantics

    def __iter__(self) -> Iterator[Episode]:
        from temporeal.policies.data.curation.copying import originals
        from temporeal.policies.data.curation.relabeling import SOME, hindsight

        goal, _, achieved = (self.options.goal or "").partition("=")
        for first in range(0, self.data.episodes, SOME):
            some = list(originals(self.data, range(first, min(first + SOME, self.data.episodes))))
            if goal:
                with_goals = [hindsight(episode, goal, achieved) for episode in some]
                some = [e for pair in zip(some, with_goals) for e in pair] if self.options.keep else with_goals
            yield from self.relabeled(some)

    def relabeled(self, episodes: list[Episode]) -> list[Episode]:
        """Some episodes, with their rewards."""
        from temporeal.policies.data.curation.relabeling import relabeled, rewarded
        from temporeal.policies.data.curation.robustness import judge, table_of_episodes

        table = table_of_episodes(episodes, self.data.interface, str(self.data.folder))
        actions = [e.action[:, :0] if e.policy_action is None else e.policy_action for e in episodes]
        found = dict(rewarded(self.objective, table, actions, self.reads, bool(self.options.state)))
        good = None if self.formula is None else judge(self.formula, table, self.semantics).verdicts > 0
        return [relabeled(episode, found[k], None if good is None else bool(good[k]), self.options.state)
                for k, episode in enumerate(episodes)]


def said(options: Any, words: Sequence[str]) -> str:
    """What was done, for the new set's ``about``."""
    of = " ".join(words) if words else f"formula {options.formula}, reward {options.reward}"
    return f"relabel of {Path(options.words[0]).name}: {of}{f', goal {options.goal}' if options.goal else ''}"
