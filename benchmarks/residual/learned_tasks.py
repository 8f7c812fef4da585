"""The tasks of the study of learned bases: their worlds, what is demonstrated and cloned, and who sees what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from temporeal_benchmarks.data.sets import FRONT, WRIST


@dataclass(frozen=True)
class World:
    """One task. All but numbers are words of ``temporeal``.

    Args:
        words: the world with its cameras, of all its runs.
        shown, seen: further ones, of demonstrations and bases, and of residuals.
        demonstrated: how it is demonstrated.
        cloned: what a base is.
        trained: further ones of each learner.
        ladder: numbers of demonstrations that are tried, in this order.
        steps: most control steps of an episode.
        resumes: whether its worlds can be saved.
    """

    words: tuple[str, ...]
    demonstrated: tuple[str, ...]
    cloned: tuple[str, ...]
    ladder: tuple[int, ...]
    steps: int
    trained: Mapping[str, tuple[str, ...]]
    shown: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    resumes: bool = True


SAWYER_CAMERAS = tuple(f"cameras.{name}={{width: 64, height: 64, kinds: [rgb]}}" for name in ("right", "front"))
SAWYER_STEPS = 200


def sawyer(env: str, ladder: tuple[int, ...], *, told: str = "", updates: int = 1000) -> World:
    """A task of Meta-World: pictures, hand and gripper for the base; poses, velocities, differences for the residual.
    ``told``: the goal, where no body draws it. Success alone is paid, so its worlds step without the library's own
    reward."""
    words = ("task=metaworld", f"task.settings.env={env}", f"task.settings.steps={SAWYER_STEPS}",
             "task.settings.reward=success", *SAWYER_CAMERAS)
    read = f"algo.signals=[hand_pos_w,hand_opening,{told}right_rgb,front_rgb]"
    return World(
        words, ("noise=0,0.1,0.2", "lasts=0.035", "tail=10"),
        ("algo=flow", read, "algo.horizon=8", f"algo.updates={updates}", "algo.batch=64",
         "algo.auxiliary=[target_pos_w]"),
        ladder, SAWYER_STEPS, {"resip": ("num_worlds=32",), "resfit": ("num_worlds=8",)},
        shown=("task.settings.see=hand",), seen=("task.settings.see=motion",), resumes=False)


ARM_STEPS = 200  # of 0.04 s, at most
ARM_READ = "joint_pos,grip_pos_w,grip_quat_w,finger_pos"


def franka(task: str, ladder: tuple[int, ...], *, told: str = "", auxiliary: str, more: tuple[str, ...] = (),
           noise: tuple[str, ...] = ()) -> World:
    """A task of the Franka with cameras in front and at the wrist. ``told``: what no picture shows."""
    read = f"algo.signals=[{ARM_READ},{told}front_rgb,wrist_rgb]"
    return World(
        (f"task={task}", FRONT, WRIST, *more), noise,
        ("algo=flow", read, "algo.relative=joint_pos", f"algo.auxiliary=[{auxiliary}]", "algo.keypoints=24",
         "algo.batch=32", "algo.shift=0", "algo.updates=8000"),
        ladder, ARM_STEPS, {"resip": ("num_worlds=64", "threads=1"), "resfit": ("num_worlds=8", "threads=1")})


TASKS: Mapping[str, World] = {
    "push": sawyer("push-v3", (40, 80, 160), told="goal_pos_w,", updates=2000),
    "pick-place": sawyer("pick-place-v3", (40, 80, 160), told="goal_pos_w,", updates=2000),
    "clutter": franka("lift", (100, 200, 400), told="goal_pos_w,", auxiliary="cube_pos_w",
                      more=("task.settings.clutter=3",)),
    "peg": franka("peg", (100, 200, 400), auxiliary="hole_pos_w", noise=("noise=0,0.05,0.1",)),
}
"""Of an open drawer 2 demonstrations were enough for 100 of 100 starts, of a door 4 for 30 of 32: more than a base may
have. 40 of push (2,000) had 15 of 100, 10 and 20 less. 40 of soccer (800 updates) had 4 of 32, 40 of peg-insert-side
(1,000) 3 of 48, 50 of lift among clutter (2,000) 1 of 64: hence the longer ladders and trainings of arms, which nobody
has tried yet."""
