"""An evaluation with its rollout, the seed of evaluations, and the reference that a task tracks."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch

from temporeal.policies.evaluate.evaluation import Evaluation, Reference
from temporeal.policies.evaluate.pairs import Pairs
from temporeal.policies.evaluate.rollout import Rollout
from temporeal.sim.task import Task

EVALUATION_SEED = 0x5EED_0000
"""Added to a training seed: the episodes of an evaluation are drawn from streams that training never saw."""


class Judged(NamedTuple):
    """An evaluation with its rollout, and the wall time of the rollout, s; of a policy that corrects a base: its
    episodes beside the base's."""

    evaluation: Evaluation
    rollout: Rollout
    seconds: float
    pairs: Pairs | None = None


def reference_of(task: Task) -> Reference | None:
    """The position to hold over time, if the task has one: a reference module, or the constant ``home``."""
    module = getattr(task.observe, "reference", None)
    if module is not None:
        module = copy.deepcopy(module).cpu()  # an environment on a GPU took the task's there

        def moving(seconds: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                position: np.ndarray = module(torch.as_tensor(seconds, dtype=torch.float32)).numpy()
            return position

        return moving
    home = task.constants.get("home")
    if "base_pos_w" not in task.schema or np.shape(home) != (3,):
        return None  # a posture, say, of an arm
    return lambda seconds: np.broadcast_to(np.asarray(home, float), (*seconds.shape, 3))
