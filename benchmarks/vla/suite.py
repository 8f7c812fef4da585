"""The tabletop suite: how often its experts by hand do each kind, as they are and shaken; how fast its worlds are."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from temporeal.policies.runs.demonstrating.demonstrations import generate, request_of
from temporeal.policies.runs.environments import make_env, make_task
from temporeal.policies.runs.settings.compose import compose
from temporeal.sim.stl.instructions.grammar import KINDS
from temporeal_benchmarks.data.demonstrators import interval
from temporeal_benchmarks.rows import Row, at_least

SEED, EPISODES, LEAST = 11, (32, 100), 0.9
WORLDS, STEPS = 32, 20


def rows(quick: bool, out: Path) -> list[Row]:
    """Shares of fresh episodes that satisfy their instruction's formula; steps and pictures a second of one core."""
    episodes = EPISODES[not quick]
    experts = [of_kind(f"tabletop.{kind}.{quality}", kind, quality, episodes, out / f"{kind}-{quality}")
               for kind in KINDS for quality in ("expert", *(() if quick else ("noisy",)))]
    return [*experts, *speeds()]


def of_kind(name: str, kind: str, quality: str, episodes: int, folder: Path, *words: str) -> Row:
    """One expert. Noise shakes what is executed; the target is the expert's as it is. ``words``: more settings."""
    shutil.rmtree(folder, ignore_errors=True)
    done = generate(request_of(["task=tabletop", f"task.settings.kinds={kind}", f"quality={quality}", *words,
                                f"episodes={episodes}", f"seed={SEED}", "threads=1", f"out={folder}"]))
    shutil.rmtree(folder)
    assert done.success is not None
    share, told = done.success.estimate, interval(done.success.successes, done.success.trials)
    return at_least(name, share, "1", LEAST, told) if quality == "expert" else Row(name, share, "1", peer=told)


def speeds() -> list[Row]:
    """Steps a second of one core without and with the two cameras, all kinds in one batch."""
    found = []
    for name, words in (("steps", ["task=tabletop"]), ("steps_seen", ["experiment=tabletop"])):
        settings = compose([*words, f"num_worlds={WORLDS}", "threads=1"])
        env = make_env(settings, task=make_task(settings))
        action = 0.0 * env.reset().actor[:, : env.action_dim]
        env.step(action)
        began = time.process_time()
        for _ in range(STEPS):
            env.step(action)
        rate = WORLDS * STEPS / (time.process_time() - began)
        found.append(Row(f"tabletop.{name}", rate, "1/s", peer=f"CPU time, {WORLDS} worlds, one thread"))
    return found
