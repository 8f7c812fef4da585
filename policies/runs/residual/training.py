"""A run that corrects a base: its worlds, what it keeps of the base, and how its policy is judged on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs import offline, run_folders
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.residual import scheduled
from temporeal.policies.runs.residual.acting import corrected_act
from temporeal.policies.runs.residual.copies import require_same
from temporeal.policies.runs.residual.opened import Opened
from temporeal.policies.runs.residual.opening import config_of, open_base
from temporeal.policies.runs.residual.paying import check_reward
from temporeal.policies.runs.settings.compose import PRESET
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs.bases import JUDGES
from temporeal.policies.training.residual.settings import PRESETS

if TYPE_CHECKING:
    from temporeal.policies.training.residual.worlds import ResidualEnv
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

LEARNERS = ("ppo", "sac", "td3")
"""Modules of the learners whose policy is a function of what the worlds show."""


def check_learner(settings: Mapping[str, Any], module: ModuleType) -> None:
    """Refuse a learner that cannot correct a base, and settings that are for one without it, before anything slow."""
    config, algo = config_of(settings), settings["algo"]
    if not config.given:
        if (preset := algo.get(PRESET)) in PRESETS:
            raise BadInput(f"algo={preset} corrects a base, and there is none: base.policy=RUN, or "
                           f"base.expert=scripted; to learn from nothing: algo={algo['name']}")
        return
    scheduled.check_learner(settings)
    name = module.__name__.rpartition(".")[2]
    if name not in LEARNERS:
        takes = f". algo={algo['name']} goes on from the run that algo.policy=RUN names" if "policy" in algo else ""
        raise BadInput(f"{config.title}: algo={algo['name']} corrects no base; those that do learn single steps by "
                       f"what worlds show: {', '.join((*PRESETS, *LEARNERS))}, rlpd{takes}. Chunks are corrected whole "
                       "by algo=residual algo.policy=RUN")
    if settings["processes"] > 1 or settings["device"] != "cpu":
        raise BadInput(f"processes={settings['processes']} device={settings['device']}: a base is corrected in one "
                       "process, on the cpu")
    if algo.get("value_range") is not None and config.reward != "sparse":
        raise BadInput(f"base.reward={config.reward} with algo.value_range={list(algo['value_range'])}: targets are "
                       "cut to returns of 1 at success, and others would be cut off: base.reward=sparse, or "
                       "algo.value_range=null")
    check_apart(run_folders.run_folder(settings), config.policy)


def reading_episodes(settings: Mapping[str, Any]) -> list[str]:
    """Words for learners that correct a base and take a dataset, too; none where no base is given."""
    return ["resfit", *(name for name in LEARNERS if name != "ppo"), "rlpd"] if config_of(settings).given else []


def check_apart(folder: Path, policy: str) -> None:
    """Refuse a run's ``folder`` that is its base's, or inside it, or around it: the run would overwrite its base."""
    here, base = folder.resolve(), Path(policy).resolve()
    if policy and (here.is_relative_to(base) or base.is_relative_to(here)):
        raise BadInput(f"out={folder} is the folder of base.policy={policy}, or one inside the other: a run and what "
                       "it corrects need folders of their own: out=<folder>")


def opened(settings: Settings, task: Task) -> Opened | None:
    """The base of a training; that of a resumed run is the copy in its folder, as it was. None: there is none."""
    if not config_of(settings).given:
        return None
    scheduled.check_view(settings, task)
    check_reward(settings, task)
    folder = run_folders.run_folder(settings)
    if not (run_folders.resumes(settings) and run_folders.is_run(folder)):
        return open_base(settings, task, at=scheduled.exported(settings))
    run_folders.check_same(run_folders.read_run(folder), settings)
    base = open_base(settings, task, folder)
    require_same(base, folder)
    return base


def worlds(base: Opened, env: Env) -> ResidualEnv:
    """The worlds of ``env`` with the base in them."""
    from temporeal.policies.training.chunk_rl.rewards import make_reward
    from temporeal.policies.training.residual.worlds import ResidualEnv

    config = base.config
    sparse = config.reward == "sparse"
    if sparse and env.capabilities.curriculum is not None:
        raise BadInput("base.reward=sparse ends episodes at success, which a curriculum would not be told: "
                       "curriculum=none, or base.reward=formula")
    with bad_input():
        paid = None if config.reward == "task" else make_reward(config.reward, env, None, 1)
        env.rendering = env.rendering and (config.pictures or hasattr(base.graph, "pictures"))
        return ResidualEnv(cast("Any", env), base.make(env), config.scale, condition=config.condition, reward=paid,
                           end_at_success=sparse, pictures=config.pictures)


def evaluation(settings: Settings, base: Opened) -> Callable[..., Mapping[str, float]]:
    """``evaluate(actor, normalizer, episodes)`` of the corrected policy, on episodes that are neither the training's
    nor those of ``temporeal eval``."""
    from temporeal.policies.evaluate.full_horizon import to_full_horizon
    from temporeal.policies.training.residual.graphs import Residual

    config, apart = base.config, {**settings, "seed": settings["seed"] + JUDGES}
    return offline.evaluation(apart, to_full_horizon(base.task), lambda actor, normalizer, env: corrected_act(
        base, Residual(normalizer, actor, config.scale, config.condition), env))
