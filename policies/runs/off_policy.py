"""Off-policy evaluation of runs: what their policies would achieve, from episodes that another policy made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from temporeal.policies.runs import chunks, environments, trained
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.run_folders import load_run
from temporeal.policies.runs.tuning_runs import graphs

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.policies.data.curation.robustness import Table
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.transitions import Transitions
    from temporeal.policies.evaluate.ope.estimates import Estimate
    from temporeal.policies.evaluate.ope.evaluator import Evaluator, OPEConfig, Policy
    from temporeal.policies.evaluate.ope.formula_on_steps import FormulaOnSteps
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.stl.language.conventions import Semantics
    from temporeal.sim.stl.language.propositional import Formula
    from temporeal.sim.task import Task

DATA = "data"
"""The gate's parent is the policy that made the data."""


@dataclass(frozen=True)
class Asked:
    """What is asked of a dataset.

    Args:
        returns: the return of the data's rewards; else P(satisfied).
        formula: whose satisfaction is judged, with its semantics; None: ``success`` of the data, and the task's own
            formula where that is unknown.
        estimators: names of :data:`temporeal.policies.evaluate.ope.evaluator.ESTIMATORS`.
        parent: of the gate: the folder of a run, or "data", the policy that made the data; "": no gate.
    """

    estimators: tuple[str, ...]
    returns: bool = False
    formula: tuple[Formula, Semantics] | None = None
    parent: str = ""


@dataclass(frozen=True)
class Estimated:
    """Estimates by run, then by estimator.

    Args:
        of_the_data: of the policy that made the data: what it earned.
        parent: of the gate's parent by estimator; empty without a gate.
    """

    of_the_data: Estimate
    runs: dict[str, dict[str, Estimate]]
    parent: dict[str, Estimate]


def evaluate(folders: Sequence[Path], dataset: Dataset, asked: Asked, config: OPEConfig) -> Estimated:
    """Estimate the value of every run's policy from the episodes of ``dataset``."""
    judges: list[tuple[Evaluator, Policy]] = []
    parents = [Path(asked.parent)] if asked.parent not in ("", DATA) else []
    for folder in (*folders, *parents):
        judges.append(_judge(folder, dataset, asked, config, [evaluator for evaluator, _ in judges]))
    first = judges[0][0]
    if asked.parent == DATA:
        parent = {name: first.of_the_data(name) for name in asked.estimators}
    else:
        parent = {}
    found = [{name: evaluator.estimate(policy, name) for name in asked.estimators} for evaluator, policy in judges]
    if parents:
        parent = found.pop()
    return Estimated(first.of_the_data(), {str(folder): each for folder, each in zip(folders, found)}, parent)


def _judge(
    folder: Path, dataset: Dataset, asked: Asked, config: OPEConfig, before: Sequence[Evaluator]
) -> tuple[Evaluator, Policy]:
    """The policy of a run, and the evaluator of the data as it sees them: one of ``before`` that sees the same."""
    import torch

    from temporeal.policies.evaluate.ope.evaluator import Evaluator

    settings = load_run(folder)
    if chunks.gives_chunks(settings):
        raise BadInput(f"{folder}: algo={settings['algo']['name']} gives chunks of commands, and single steps of a "
                       "dataset do not say which chunk they belong to: judge it in simulation (temporeal eval)")
    task = environments.make_task(settings)
    graph = graphs.load_graph(settings, folder, task)
    policy = policy_of(graph, folder)
    with bad_input():
        data, formula = _steps(dataset, trained.shown_to(graph, task), asked)
    same = next((e for e in before if torch.equal(e.plain.obs, data.obs) and torch.equal(e.plain.reward, data.reward)),
                None)
    return same or Evaluator(data, config, formula=formula), policy


def policy_of(graph: PolicyGraph, folder: Path) -> Policy:
    """The deterministic policy of a run on raw observations; one with memory cannot be asked about single steps."""
    if graph.carried:
        raise BadInput(f"{folder}: its policy has memory ({', '.join(graph.carried)}), and single steps of a dataset "
                       "do not say what is in it: judge it in simulation (temporeal eval)")

    def policy(obs: Tensor) -> Tensor:
        rows = obs.reshape(-1, obs.shape[-1])
        return graph.decide(rows, {})[0].clamp(-1.0, 1.0).reshape(*obs.shape[:-1], -1)

    return policy


def _steps(dataset: Dataset, task: Task, asked: Asked) -> tuple[Transitions, FormulaOnSteps | None]:
    """The steps of the dataset, with what is judged as their reward; and the formula on them, if its signals are
    there."""
    import torch

    from temporeal.policies.data.curation.robustness import judge, table_of
    from temporeal.policies.data.views import task_view, transitions
    from temporeal.policies.evaluate.ope.formula_on_steps import on_steps
    from temporeal.policies.evaluate.ope.judged_data import satisfied
    from temporeal.sim.stl.language.conventions import RTAMT

    def nothing(signals: Mapping[str, Tensor], actions: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(actions.shape[:2]), torch.zeros(actions.shape[:2], dtype=torch.bool)

    data = transitions(dataset, task_view(task), reward=None if asked.returns else nothing)
    if asked.returns:
        return data, None
    (formula, semantics), table = asked.formula or (task.formula, RTAMT), table_of(dataset)
    if asked.formula is None and all(record.success is not None for record in dataset.records):
        known = signals_known(formula, table)
        return satisfied(data), on_steps(formula, semantics, table, data) if known else None
    flags = torch.from_numpy(judge(formula, table, semantics).verdicts > 0).float()
    return satisfied(data, flags), on_steps(formula, semantics, table, data)


def signals_known(formula: Formula, table: Table) -> bool:
    """Whether the dataset holds all that the formula reads."""
    from temporeal.policies.data.curation.robustness import TIME
    from temporeal.sim.stl.language.queries import signals_in

    return all(name in table.signals or name == TIME.name for name in signals_in(formula))
