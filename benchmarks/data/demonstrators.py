"""How often experts by hand do their tasks and how fast they are; Meta-World's scripted policies in our worlds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from temporeal.sim.stl.analysis.binomial import clopper_pearson
from temporeal_benchmarks.rows import Row, at_least, not_measured

TARGETS = {"reach": 0.95, "lift": 0.95, "push": 0.95, "waypoints": 0.95}
OTHERS = ("peg", "drawer", "arm_track", "joint_target", "hold", "hover", "track")
SEED, EPISODES = 11, (32, 256)
META_WORLD = 0.984  # mean success of the scripted policies in the library itself, over five episodes of each task
FRESH, LONGEST, SOME = 5, 500, 6  # episodes of each of its tasks, their steps, tasks of a quick run


def rows(quick: bool, out: Path) -> list[Row]:
    """Shares of fresh episodes that satisfy the formula, and steps a second of CPU time."""
    found: list[Row] = []
    for task in (*TARGETS, *(() if quick else OTHERS)):
        found += of_task(task, EPISODES[not quick], out / task)
    return [*found, *meta_world(quick)]


def of_task(task: str, episodes: int, folder: Path) -> list[Row]:
    """One expert."""
    from temporeal.policies.runs.demonstrating.demonstrations import generate, request_of

    shutil.rmtree(folder, ignore_errors=True)
    words = [f"task={task}", "quality=expert", f"episodes={episodes}", f"seed={SEED}", "threads=1", f"out={folder}"]
    began = time.process_time()
    done = generate(request_of(words))
    rate = Row(f"expert.{task}.steps", done.steps / (time.process_time() - began), "1/s", peer="CPU time, one thread")
    assert done.success is not None
    share, told = done.success.estimate, interval(done.success.successes, done.success.trials)
    name = f"expert.{task}.satisfied"
    target = TARGETS.get(task)
    return [Row(name, share, "1", peer=told) if target is None else at_least(name, share, "1", target, told), rate]


def interval(good: int, of: int) -> str:
    """The 95 % interval in words."""
    low, high = clopper_pearson(good, of, 0.95)
    return f"{good} of {of}, 95 % [{low:.3f}, {high:.3f}]"


def meta_world(quick: bool) -> Iterator[Row]:
    """Its scripted policies through our worlds: the mean success is the library's own within the interval."""
    names = ("metaworld.satisfied", "metaworld.steps")
    try:
        from temporeal.sim.adapters import meta_world as library

        tasks = library.names()
    except ModuleNotFoundError as error:
        yield not_measured(names[0], "1", META_WORLD, f"{error.name} is not installed: temporeal[foreign-tasks]")
        return
    good, rates = 0, []
    chosen = tasks[:: len(tasks) // SOME] if quick else tasks
    for env in chosen:
        won, rate = played(env)
        good, rates = good + won, [*rates, rate]
    trials = FRESH * len(chosen)
    low, high = clopper_pearson(good, trials, 0.95)
    yield Row(names[0], good / trials, "1", f"{META_WORLD} within the interval", interval(good, trials),
              None if quick else bool(low <= META_WORLD <= high))
    yield Row(names[1], float(np.median(rates)), "1/s",
              peer=f"{min(rates):.0f} to {max(rates):.0f}, CPU time, {FRESH} worlds")


def played(env: str) -> tuple[int, float]:
    """Successes of the scripted policy in :data:`FRESH` episodes of ``env``, and steps a second of CPU time."""
    import torch

    from temporeal.sim.adapters import meta_world as library

    worlds, act = library.Sawyer(env, FRESH), library.expert(library.make(env=env), FRESH)
    states = np.stack([worlds.reset(world, 1000 + world)["state"] for world in range(FRESH)])
    won, count, began = np.zeros(FRESH, bool), 0, time.process_time()
    for _ in range(LONGEST):
        actions = act({"state": torch.as_tensor(states).float()}, torch.ones(FRESH)).numpy()
        for world in np.flatnonzero(~won):
            found = worlds.step(int(world), actions[world])
            states[world], won[world], count = found["state"], found["success"] > 0.5, count + 1
        if won.all():
            break
    return int(won.sum()), count / (time.process_time() - began)
