"""Does a policy fly a robot that nobody modelled? Trained nominal, with ranges by hand, or from a flight's posterior.

    python -m temporeal_benchmarks.reality.transfer outputs/transfer                          all that is missing
    python -m temporeal_benchmarks.reality.transfer outputs/transfer --seeds 1 --only posterior  some of it
    python -m temporeal_benchmarks.reality.transfer outputs/try --seeds 1 --episodes 64 --words algo.max_seconds=10

A seed has a hidden robot of its own (``hidden_robot.py``, drawn beforehand from the published ranges). It is flown
once, for 25 s, in simulation with gusts and noise, by a pilot who is tuned to its true parameters, with sines on every
axis; ``temporeal identify --randomization`` reads the log, at 100 Hz, as it reads every log of motors below 250 Hz:
torque to inertia is not identifiable there, and the inertia is drawn as the ranges have it. PPO then learns the mission
``waypoints`` three times, for as long, with the same sensors and steady forces: with the spec's nominal parameters;
with ``configs/randomize/default.yaml``'s ranges; with the posterior (``randomize=FILE``). Each policy flies
``EPISODES`` missions in each of four simulators, whose robots are about the hidden one: our quadrotor at 1 ms (trained
at 5 ms), MuJoCo at 2 ms, gym-pybullet-drones' equations at 250 Hz, crazyflow at 500 Hz. The mission's formula judges.

Its targets are of the worst simulator: how much more of the missions the posterior's policy flies there than the
nominal one's in its own worst, and than that of the ranges; of three seeds the worst is judged. That row says little of
ranges that somebody would choose for this robot: ``default.yaml`` has half the published ranges of ``motor_gain`` and
``tau_down`` (``scale: 0.5``), and hidden robots are of the whole ones (of three, two lie outside of the file's range of
``tau_down`` and one outside of that of ``motor_gain``). What is done is not done again. A seed takes about ten minutes
of a core.

Before it was fixed, one try was seen: seed 1 with 20 s a training, 64 missions each. In their worst simulators nominal
flew 0.27, ranges 0.88 and the posterior 0.98 of them. After it one rule was added, that a robot whose log inspection
calls wrong is drawn anew (seed 3's first one, which no policy had flown; ``hidden_robot.py``). Then three seeds were
run whose identification was told that nothing was missing in a log at 100 Hz; this is not what the command does, and
the posterior's trainings were done again as they are here. Worst simulators of the three were, with that one, 0.998,
0.998 and 0.988 (nominal 0.966, 0.872 and 0.594, ranges 0.998, 0.998 and 0.996, which stand).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from temporeal_benchmarks.data import studies
from temporeal_benchmarks.reality import hidden_robot
from temporeal_benchmarks.rows import Row, at_least

if TYPE_CHECKING:
    from temporeal.policies.evaluate.evaluation import Evaluation
    from temporeal.sim.task import Task
    from temporeal.sim.types import Backend

PART, FEWEST, EPISODES, SECONDS = "transfer", 3, 500, 120
FRESH = 9_000_000  # seed of the missions that judge, beside the trial's own
GAIN = 0.10  # target: above nominal; above ranges by hand it is 0
SUBSTEPS = {"quadrotor": 20, "mujoco": 10, "pybullet-drones": 5, "crazyflow": 10}
"""Of the simulators, in a control step of 20 ms."""
PHYSICS = ("mass", "inertia", "arm", "torque_per_thrust", "tau_up", "tau_down", "drag", "motor_gain", "rate_gain",
           "command_delay")
LEARNER = ("task=waypoints", "algo=ppo", "num_worlds=1024", "processes=1", "algo.total_steps=1000000000",
           f"algo.max_seconds={SECONDS}", "algo.clock=cpu", "algo.threads=1", "algo.gamma=0.995",
           "algo.rollout_steps=64", "algo.epochs=3", "algo.minibatches=16", "algo.desired_kl=0.015",
           "algo.final_kl=0.4")
"""As the base of ``residual/wind_study.py``: ``experiment=demo`` for one process of half its worlds."""
WAYS = ("nominal", "ranges", "posterior")


@dataclass(frozen=True)
class Try:
    """What differs in a try. ``words``: further settings of the trainings."""

    episodes: int = EPISODES
    words: tuple[str, ...] = ()


def words_of(way: str, posterior: Path) -> list[str]:
    """The randomization of a training."""
    if way == "posterior":
        return [f"randomize={posterior}"]
    return ["randomize=default", *(f"randomize.parameters.{name}=null" for name in PHYSICS if way == "nominal")]


def identified(seed: int, folder: Path) -> Path:
    """The randomization from the log of a seed's robot, by the command that users have; made if it is not there."""
    import yaml

    from temporeal.policies.cli.main import main as temporeal

    out, flight = folder / "posterior.yaml", folder / "flight.csv"
    if out.exists():
        return out
    hidden_robot.log(hidden_robot.hidden(seed), flight, seed)
    words = ["identify", str(flight), "--out", str(folder / "identified.yaml"), "--randomization", str(out), "--steps",
             "0", "--threads", "1", "--overwrite"]  # the sampler checks intervals, and changes no number
    if temporeal(words) != 0:
        raise RuntimeError(f"temporeal {' '.join(words)}: refused")
    (folder / "hidden.yaml").write_text(yaml.safe_dump(hidden_robot.hidden(seed).truth))
    return out


def trial(way: str, seed: int, out: Path, how: Try) -> dict[str, Any]:
    """Train one way and judge in all simulators. Seconds are of the processor; None of what was there, if in part."""
    from temporeal_benchmarks.vla.rl_study import timed

    posterior = identified(seed, out / "robots" / str(seed))
    words = [*LEARNER, *words_of(way, posterior), *how.words, f"seed={seed}"]
    folder, train_s = timed(words, out / "runs" / way / str(seed))
    return {"train_cpu_s": train_s, "simulators": {
        name: told(flown(folder, name, seed, how.episodes)) for name in SUBSTEPS}}


def flown(folder: Path, simulator: str, seed: int, episodes: int) -> Evaluation:
    """Missions of the policy in ``folder`` by the hidden robot of ``seed``."""
    from temporeal.policies.evaluate.evaluation import evaluate
    from temporeal.policies.evaluate.rollout import rollout
    from temporeal.policies.runs import environments
    from temporeal.policies.runs.settings.compose import override
    from temporeal.policies.runs.trained import load_trained, trained_policy
    from temporeal.sim.env import Env
    from temporeal.sim.env_config import EnvConfig

    found = load_trained(folder)
    settings = override(found.settings, ["randomize=default", f"task.settings.substeps={SUBSTEPS[simulator]}"])
    usual = settings["randomize"]
    drawn = {**{name: usual["parameters"][name] for name in ("force_w", "torque_b")},
             **hidden_robot.missions(hidden_robot.hidden(seed))}
    policy = trained_policy(found, settings, environments.make_task(settings))
    backend = made(simulator, policy.task, episodes)
    env = Env(policy.task, backend, EnvConfig(
        FRESH + 100 * seed + list(SUBSTEPS).index(simulator), drawn, usual["sensors"]))
    try:
        return evaluate(rollout(env, policy.act(env)), policy.task.formula, delays=0)
    finally:
        backend.close()


def made(simulator: str, task: Task, worlds: int) -> Backend:
    """The worlds of a simulator."""
    from temporeal.sim.backend_factory import BackendConfig, make_backend
    from temporeal_benchmarks.reality.simulators.crazyflow import Crazyflow
    from temporeal_benchmarks.reality.simulators.pybullet_drones import PybulletDrones

    foreign = {each.name: each for each in (PybulletDrones, Crazyflow)}
    if simulator in foreign:
        return foreign[simulator](task.scene, worlds, task.control_dt / task.substeps)
    return make_backend(task, BackendConfig(simulator, worlds, threads=1))


def told(evaluation: Evaluation) -> dict[str, Any]:
    """Of an evaluation, what is kept: the share with its exact interval, and which clause is the first to fail."""
    share = evaluation.satisfied
    worst = max(evaluation.clauses, key=lambda each: each.first_to_fail)
    return {"successes": share.successes, "trials": share.trials, "low": round(share.low, 4),
            "high": round(share.high, 4), "worst_clause": worst.label if worst.first_to_fail else "",
            "first_to_fail": worst.first_to_fail}


def study(out: Path, seeds: int = FEWEST, how: Try = Try(), only: str = "") -> None:
    """Make the trials that are missing, of those whose names have the part ``only``."""
    import torch

    torch.set_num_threads(1)
    for seed in range(1, seeds + 1):
        for way in WAYS:
            name = f"{way}/{seed}"
            if only in name and name not in studies.read(out):
                print(name, json.dumps(studies.add(out, name, trial(way, seed, out, how))), flush=True)


def worst_of(trial_: studies.Trial) -> float:
    """P(satisfied) in the simulator where it is least."""
    return min(float(each["successes"] / each["trials"]) for each in trial_["simulators"].values())


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """The worst seed's gain over nominal and over ranges by hand; each way's worst simulator, and where it fails."""
    seeds = [seed for seed in range(1, FEWEST + 1) if all(f"{way}/{seed}" in trials for way in WAYS)]
    if len(seeds) < FEWEST:
        there = f"{len(seeds)} of {FEWEST} seeds"
        return [studies.missing(f"reality.transfer.{name}", "1", target, PART, there, "reality")
                for name, target in (("above_nominal", GAIN), ("above_ranges", 0.0))]
    worst = {way: [worst_of(trials[f"{way}/{seed}"]) for seed in seeds] for way in WAYS}
    found = list[Row]()
    for name, other, target in (("above_nominal", "nominal", GAIN), ("above_ranges", "ranges", 0.0)):
        gains = [ours - theirs for ours, theirs in zip(worst["posterior"], worst[other])]
        each = ", ".join(f"{ours:.3f} and {theirs:.3f}" for ours, theirs in zip(worst["posterior"], worst[other]))
        found.append(at_least(f"reality.transfer.{name}", min(gains), "1", target,
                              f"worst simulator's share of missions, posterior less {other}; the worst of {len(seeds)} "
                              f"seeds ({each}); mean {mean(gains):.3f}"))
    return [*found, *(row for way in WAYS for row in rows_of(way, [trials[f"{way}/{seed}"] for seed in seeds]))]


def rows_of(way: str, own: Sequence[studies.Trial]) -> list[Row]:
    """Of one way: by simulator the worst seed's share, its interval and the clause that fails first the most."""
    return [Row(f"reality.transfer.{way}.{name}", min(each["successes"] / each["trials"] for each in found), "1",
                peer="; ".join(said(each) for each in found))
            for name in own[0]["simulators"] for found in [[trial_["simulators"][name] for trial_ in own]]]


def said(each: Mapping[str, Any]) -> str:
    """One simulator's result."""
    failing = f", first to fail ({each['first_to_fail']}): {each['worst_clause']}" if each["worst_clause"] else ""
    return f"{each['successes']} of {each['trials']} [{each['low']:.3f}, {each['high']:.3f}]{failing}"


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=FEWEST)
    parser.add_argument("--only", default="", help="part of the names of the trials to make")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh ones that judge, in each simulator")
    parser.add_argument("--words", nargs="*", default=[], help="other settings of the trainings, for tries")
    options = parser.parse_args(argv)
    study(options.out, options.seeds, Try(options.episodes, tuple(options.words)), options.only)
    for row in judged(studies.read(options.out)):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
