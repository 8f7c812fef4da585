"""A PPO learner that begins as another run's policy, on a robot or task that changed: all of it goes on, or a part.

    algo.adapt=RUN                      all weights go on from those of RUN
    algo.adapt=RUN algo.adapters=4      its layers are frozen, changes of rank 4 are learned beside them
    algo.adapt=RUN algo.modulate=true   its layers are frozen, a scale of each of their outputs is learned

Numbers that the old policy did not read have the weight 0 at first, so the policy begins as the old one, bit for bit.
Its normalizer is frozen with it: drifting statistics would be a change that nobody learned. The critic is new.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from temporeal.policies.nets.actor import Actor, FeedForwardActor, RecurrentActor
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.ppo_state import Learner, PPOConfig
from temporeal.policies.training.warm_starts.adapters import AdaptedAdam, layers_of
from temporeal.policies.training.warm_starts.by_name import new_numbers, vector_of, widened

FIRST = {FeedForwardActor: "net.0.weight", RecurrentActor: "encoder.0.0.weight"}
"""The weights that read the observation."""
SHAPE = ("actor_hidden", "activation", "memory")
"""Settings that both networks must share."""


@dataclass(frozen=True)
class WarmStart:
    """The policy that a learner begins as.

    Args:
        run: the folder, for errors.
        columns: int64 [M], of each number that the new task shows the one that the policy read
            (:func:`temporeal.policies.training.warm_starts.by_name.correspondence`).
        digest: of its weights and normalization. began: that of the policy that it began as; "": none, or not known.
    """

    run: str
    actor: Actor
    normalizer: Normalizer
    config: PPOConfig
    columns: Tensor
    digest: str = ""
    began: str = ""


def begin(learner: Learner, warm: WarmStart | None) -> None:
    """Make ``learner``, before its first iteration, what its settings say (``adapt``)."""
    config = learner.config
    if not config.adapt:
        if config.adapters or config.modulate:
            raise SettingsError("algo.adapters and algo.modulate change the policy of a run: algo.adapt=RUN")
        return
    if warm is None:
        raise SettingsError(f"algo.adapt={config.adapt}: only `temporeal train algo=ppo` begins with another run's "
                            "policy; algo.adapt=\"\"")
    check(learner, warm)
    learner.began = warm.digest
    take_weights(learner, warm)
    take_statistics(learner, warm)
    if config.adapters or config.modulate:
        layers = layers_of(learner.actor)
        frozen = {id(value) for layer in layers for value in layer.parameters()}
        own = [*learner.actor.parameters(), *learner.critic.parameters()]
        learner.optimizer = AdaptedAdam(  # type: ignore[assignment]
            layers, [value for value in own if id(value) not in frozen], config.learning_rate, rank=config.adapters,
            modulate=config.modulate, seed=learner.seed, eps=1e-5)


def check(learner: Learner, warm: WarmStart) -> None:
    """Refuse policies that cannot go on here, by the names of what differs."""
    config = learner.config
    if type(learner.actor) not in FIRST or type(warm.actor) is not type(learner.actor):
        raise SettingsError(f"algo.adapt={warm.run}: its policy is a {type(warm.actor).__name__}, this one is to be a "
                            f"{type(learner.actor).__name__}; both must be one of "
                            f"{', '.join(kind.__name__ for kind in FIRST)}")
    told = [f"algo.{name}={here} here, {before} there" for name in SHAPE
            if (before := plain(getattr(warm.config, name))) != (here := plain(getattr(config, name)))]
    if told:
        raise SettingsError(f"algo.adapt={warm.run} has another network: {'; '.join(told)}")
    if len(warm.actor.log_std) != len(learner.actor.log_std):
        raise SettingsError(f"algo.adapt={warm.run}: its policy gives {len(warm.actor.log_std)} numbers, this task "
                            f"takes {len(learner.actor.log_std)}")
    if config.modulate and not config.adapters and (new := new_numbers(warm.columns)):
        raise SettingsError(f"algo.modulate=true alone never reads what is new, and {len(new)} numbers are: "
                            "algo.adapters=4")


def plain(value: object) -> object:
    """Lists and tuples alike."""
    return list(value) if isinstance(value, (list, tuple)) else value


@torch.no_grad()
def take_weights(learner: Learner, warm: WarmStart) -> None:
    """The policy's, in place: compiled functions and the optimizer hold views of them."""
    state, first = warm.actor.state_dict(), FIRST[type(learner.actor)]
    state = {**state, first: widened(state[first], warm.columns)}
    for name, value in learner.actor.state_dict().items():
        value.copy_(state[name])


@torch.no_grad()
def on_this_task(warm: WarmStart) -> tuple[Normalizer, FeedForwardActor]:
    """Normalizer and actor of a feed-forward policy as they read what this task shows; new numbers are not read."""
    size, state = len(warm.columns), warm.actor.state_dict()
    first = FIRST[FeedForwardActor]
    weights = {**state, first: widened(state[first], warm.columns)}
    layers = [value for name, value in weights.items() if name.startswith("net.") and name.endswith("weight")]
    actor = FeedForwardActor(size, len(state["log_std"]), [len(value) for value in layers[:-1]],
                             warm.config.activation, warm.config.init_std)
    actor.load_state_dict(weights)
    normalizer = Normalizer(size, limit=warm.normalizer.limit)
    for name in ("mean", "var", "shift", "scale"):
        getattr(normalizer, name).copy_(vector_of(getattr(warm.normalizer, name), warm.columns,
                                                  getattr(normalizer, name)))
    normalizer.count.copy_(warm.normalizer.count)
    return normalizer, actor


def take_statistics(learner: Learner, warm: WarmStart) -> None:
    """The policy's; of numbers that are new, those of the first observations."""
    own = learner.normalizer
    own.update(moments(learner.obs.actor))
    for name in ("mean", "var", "shift", "scale"):
        getattr(own, name).copy_(vector_of(getattr(warm.normalizer, name), warm.columns, getattr(own, name)))
    own.count.copy_(warm.normalizer.count)
    own.freeze()


