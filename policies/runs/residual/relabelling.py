"""The episodes of ``dataset=FOLDER`` as demonstrations of a residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.residual.opened import Opened

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.transitions import Transitions


@dataclass(frozen=True)
class Count:
    """As many worlds as episodes, of which a base asks no more."""

    num_worlds: int
    action_dim: int


def demonstrations(base: Opened, dataset: Dataset, configuration: Any) -> Transitions:
    """The episodes of ``dataset`` as steps of the residual that corrects ``base``, as its critics see them."""
    from temporeal.policies.data.episodes.layout import is_picture
    from temporeal.policies.data.objective_rewards import by
    from temporeal.policies.data.privileged_view import critic_view
    from temporeal.policies.data.views import transitions
    from temporeal.policies.training.residual.off_policy_relabelling import RelabelledView, at_success
    from temporeal.policies.training.residual.settings import SCRIPTED

    config, task = base.config, base.task
    if config.expert != SCRIPTED and (base.graph is None or hasattr(base.graph, "pictures")):
        raise BadInput(f"dataset: {config.title} reads what is measured in worlds, and its actions in recorded steps "
                       "are not known; those of a run of single commands without pictures and of base.expert=scripted "
                       "are: leave dataset out (algo.base_episodes=100 are demonstrations, too)")
    if config.reward == "formula" and configuration.demonstration_reward == "task":
        raise BadInput("dataset: recorded steps are not paid by base.reward=formula: base.reward=sparse or task, or "
                       "algo.demonstration_reward=data")
    size = task.act.action_dim
    names = tuple(name for name, spec in dataset.interface.signals.items() if not is_picture(spec))
    with bad_input():
        view = RelabelledView(
            critic_view(task, dataset.interface, configuration.privileged), names,
            lambda worlds: base.make(cast("Any", Count(worlds, size))), config.scale, cast("int", task.observe.obs_dim),
            config.condition)
        paid = at_success(task.objective) if config.reward == "sparse" else by(task.objective)
        return transitions(
            dataset, view, reward=view.paid(paid) if configuration.demonstration_reward == "task" else None)
