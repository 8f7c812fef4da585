"""What a residual corrects, and how: the settings ``base`` of a run. ``configs/config.yaml`` has the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from temporeal.policies.training.errors import SettingsError

SCRIPTED, SERVED = "scripted", "served"
REWARDS = ("task", "sparse", "formula")
PRESETS = ("resip", "resfit")
"""Words for algo= that are for correcting a base."""
KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("policy", "expert", "model", "map", "reward"), (str,)), "execute": (int, type(None)),
    "scale": (int, float), "condition": (bool,), "pictures": (bool,), "transfer": (bool,)}
"""What the settings are."""


@dataclass(frozen=True)
class BaseConfig:
    """Settings of a base. Without policy and expert there is none.

    Args:
        policy: folder of the run or of the artifact whose policy is corrected.
        expert: ``scripted``: the task's controller by hand; ``served``: a pretrained model of another library, in a
            process of its own. ``model``: its folder; ``map``: the file that connects it.
        execute: control steps of a chunk that are played before the next; None: as the base was trained.
        scale: of the residual, in units of the action, which fills -1 to 1; 0: the base, bit for bit.
        condition: whether the residual sees the base's action beside the observation.
        reward: task, sparse or formula (:mod:`temporeal.policies.training.chunk_rl.rewards`). With sparse an episode
            that succeeds is over.
        pictures: whether the residual, too, sees what the cameras show.
        transfer: whether the base may be of another task or robot, where what it reads and commands is the same.
    """

    policy: str = ""
    expert: str = ""
    model: str = ""
    map: str = ""
    execute: int | None = None
    scale: float = 0.3
    condition: bool = True
    reward: str = "task"
    pictures: bool = False
    transfer: bool = False

    def __post_init__(self) -> None:
        if self.policy and self.expert:
            raise SettingsError("one base is corrected, not 2: base.policy and base.expert are given")
        if self.transfer and not self.policy:
            raise SettingsError("base.transfer=true is for the policy of another task or robot: base.policy=RUN")
        if self.expert not in ("", SCRIPTED, SERVED):
            raise SettingsError(f"base.expert={self.expert}: {SCRIPTED}, the task's controller by hand, or {SERVED}, a "
                                "pretrained model; a trained policy is named by base.policy=RUN")
        if bool(self.model) != bool(self.map) or (self.model and self.expert != SERVED):
            raise SettingsError(f"base.expert={SERVED}, base.model and base.map belong together: a pretrained model's "
                                "folder, and the file that connects it (docs/how-to/pretrained-models.md)")
        if self.reward not in REWARDS:
            raise SettingsError(f"base.reward={self.reward}: one of {', '.join(REWARDS)}")
        if not (isfinite(self.scale) and 0.0 <= self.scale <= 2.0):
            raise SettingsError(f"base.scale={self.scale}: from 0 to 2, the whole range of an action")
        if self.execute is not None and self.execute < 1:
            raise SettingsError(f"base.execute={self.execute}: at least 1 control step, or null: as it was trained")

    @property
    def given(self) -> bool:
        """Whether there is a base."""
        return bool(self.policy or self.expert)

    @property
    def title(self) -> str:
        """Which it is, in the words of the settings."""
        if self.expert == SERVED:
            return f"base.model={self.model}"
        return f"base.expert={self.expert}" if self.expert else f"base.policy={self.policy}"


def base_config(settings: Mapping[str, Any]) -> BaseConfig:
    """The part ``base`` of ``settings``; runs of before it have none."""
    held = settings.get("base") or {}
    if not isinstance(held, Mapping):
        raise SettingsError(f"base={held!r}: a group of settings")
    legal = [each.name for each in fields(BaseConfig)]
    for name, value in held.items():
        if name not in legal:
            raise SettingsError(f"base.{name}: there is no such setting; legal: {', '.join(legal)}")
        if not isinstance(value, KINDS[name]) or (isinstance(value, bool) and bool not in KINDS[name]):
            raise SettingsError(f"base.{name}={value!r}: expected {' or '.join(k.__name__ for k in KINDS[name])}")
    return BaseConfig(**held)
