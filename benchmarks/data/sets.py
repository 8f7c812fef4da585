"""The datasets of the studies: each is a name and the words of `temporeal data generate` that make it.

    python -m temporeal_benchmarks.data.sets                                  names and commands
    python -m temporeal_benchmarks.data.sets --out outputs/sets lift-mixed    makes it: outputs/sets/lift-mixed-1

The same words and seed give the same numbers. What a set reached is in its metadata (``generated``).
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FRONT = ("cameras.front={width: 64, height: 64, kinds: [rgb], fovy_deg: 30, pos: [1.25, 0.0, 0.75], "
         "quat: [0.6485, 0.2818, 0.2818, 0.6485]}")
"""A camera in front of an arm's table."""
WRIST = "cameras.wrist={width: 64, height: 64, kinds: [rgb]}"
"""The Franka's own at its hand. With the one in front alone, 26 of 200 were lifted in a trial: a hundred demonstrations
show a hundred places of the cube, but thousands of ways to it."""
OWN = {"reach": ("task=reach",), "lift": ("task=lift",), "mission": ("task=waypoints",)}
META_WORLD = {"drawer-open": 150, "door-open": 200, "peg-insert-side": 200}
"""Meta-World's tasks of the studies, and the control steps of an episode: the scripted policies need about half."""
EPISODES = {"reach": 2000, "lift": 1500, "mission": 1000, **dict.fromkeys(META_WORLD, 1000)}
OPERATORS = {"mission": (20_000_000, 8_000_000, 6_000_000, 4_000_000, 2_500_000)}
"""Steps of the trainings (PPO, seed 1) whose policies make the set, the best one first: the expert by hand of the
mission answers the true attitude at gains that no policy of the measured one follows."""
SHAKEN = "severity=0.03"  # the noise of those policies


def _meta_world(name: str, steps: int) -> tuple[str, ...]:
    return "task=metaworld", f"task.settings.env={name}-v3", f"task.settings.steps={steps}"


TASKS: Mapping[str, tuple[str, ...]] = OWN | {name: _meta_world(name, steps) for name, steps in META_WORLD.items()}
QUALITIES = ("medium", "mixed")

OFFLINE = {f"{name}-{quality}": (*words, f"quality={quality}", f"episodes={EPISODES[name]}")
           for name, words in TASKS.items() for quality in QUALITIES}
"""Medium and mixed sets, for offline reinforcement learning against cloning."""
IMITATION = {f"{task}-{seen}": (f"task={task}", "quality=noisy", "episodes=100", *camera)
             for task in ("lift", "push") for seen, camera in (("state", ()), ("pictures", (FRONT, WRIST)))}
"""100 demonstrations of lift and push, from state and from pictures."""
PLAY = {"cube-single-play": ("task=ogbench", "task.settings.env=cube-single-v0", "task.settings.steps=250",
                             "quality=play", "goals=4", "episodes=100"),
        "pointmaze-medium-play": ("task=ogbench", "task.settings.env=pointmaze-medium-v0", "task.settings.steps=250",
                                  "quality=play", "goals=4", "episodes=200"),
        "reach-play": ("task=reach", "quality=play", "goals=4", "episodes=200")}
"""Play, for goal-conditioned learners: OGBench's with its oracles, of a tenth of the size of the library's own sets."""
JUDGING = {"push-medium": ("task=push", "quality=medium", "episodes=800")}
"""What policies are judged by beside the sets that they learn from."""
SETS: Mapping[str, tuple[str, ...]] = {**OFFLINE, **IMITATION, **PLAY, **JUDGING}


def folder_of(name: str, out: Path, seed: int = 1) -> Path:
    """Where a set is."""
    return out / f"{name}-{seed}"


def words_of(name: str, out: Path, seed: int = 1) -> list[str]:
    """The words of `temporeal data generate` that make the set ``name``."""
    if name not in SETS:
        raise ValueError(f"there is no set {name!r}; legal: {', '.join(SETS)}")
    steps = OPERATORS.get(name.rpartition("-")[0], ())
    flown_by = [f"expert={','.join(str(operator_of(name, count, out)) for count in steps)}", SHAKEN] if steps else []
    return [*SETS[name], *flown_by, f"seed={seed}", f"out={folder_of(name, out, seed)}"]


def operator_of(name: str, steps: int, out: Path) -> Path:
    """Where the policy of so many ``steps`` is that flies episodes of the set ``name``."""
    return out / "operators" / f"{name.rpartition('-')[0]}-{steps // 1000}k"


def trained(name: str, out: Path) -> None:
    """Train the operators of the set ``name`` that are not there."""
    from temporeal.policies.runs import training
    from temporeal.policies.runs.settings.compose import compose

    task = name.rpartition("-")[0]
    for steps in OPERATORS.get(task, ()):
        folder = operator_of(name, steps, out)
        if not (folder / "done").exists():
            words = [*TASKS[task], f"algo.total_steps={steps}", "seed=1", f"out={folder}"]
            training.train(compose(words), overwrite=True, quiet=True)
            (folder / "done").touch()


def made(name: str, out: Path, seed: int = 1) -> Path:
    """The folder of the set ``name``, made where it is not there. One that was interrupted is made anew."""
    import shutil

    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.runs.demonstrating.demonstrations import generate, request_of

    folder = folder_of(name, out, seed)
    words = words_of(name, out, seed)
    if folder.exists():
        if "steps" in dict(Dataset.open(folder).interface.about.get("generated") or {}):
            return folder
        shutil.rmtree(folder)
    trained(name, out)
    generate(request_of(words))
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """Print the commands, or make sets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SETS)} (none: print the commands)")
    parser.add_argument("--out", type=Path, default=Path("outputs/sets"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    for name in options.names or SETS:
        if options.names:
            print(made(name, options.out, options.seed))
        else:
            print(f"temporeal data generate {shlex.join(words_of(name, options.out, options.seed))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
