"""A study of frozen encoders: our own against ImageNet's maps and MiniLM's sentences, where they might be worth it.

    python -m temporeal_benchmarks.vla.encoders_study outputs/encoders                        all that is missing
    python -m temporeal_benchmarks.vla.encoders_study outputs/small --seeds 1 --updates 600 --episodes 64      a try

Policies that differ in nothing but their encoders are cloned from the same few demonstrations, and judged by fresh
episodes: of what training gives (``seen``), of wordings that it never gives, and with the front camera elsewhere, or
with another light on another table (``randomize=look_shifted``). ``plain``: our own encoders without the changes of
light and words that frozen ones go without in training, because their results are computed once. Needs the extra
``encoders``. What is done is not done again, and a training that was stopped goes on; a folder is of one size.

One core, a seed: demonstrations 15 s, training 2 to 6 minutes an arm, judging 2: 25 minutes; 3 seeds: 1.3 hours.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from temporeal.policies.runs.errors import BadInput
from temporeal.robots.atomic_files import write_whole
from temporeal_benchmarks.data import studies
from temporeal_benchmarks.rows import Row
from temporeal_benchmarks.vla.metaworld_study import command
from temporeal_benchmarks.vla.rl_study import run

FEWEST, SEED, PART = 3, 5000, "encoders-study"
REPEATED = ("algo.light=0", "algo.word_dropout=0")
ARMS: Mapping[str, tuple[str, ...]] = {
    "own": (), "plain": REPEATED, "imagenet": ("algo.image_encoder=imagenet", "algo.light=0"),
    "minilm": ("algo.text_encoder=minilm", "algo.word_dropout=0"),
    "both": ("algo.image_encoder=imagenet", "algo.text_encoder=minilm", *REPEATED)}
VIEWS = ("seen", "wordings", "camera", "light")
TRAINED = ("algo=vla", "algo.relative=joint_pos", "algo.evaluate_updates=0")


@dataclass(frozen=True)
class Size:
    """What a study costs. The default is the study; others are tries.

    Args:
        kinds: of instructions. demonstrations: of all kinds. updates: of each training. episodes: fresh ones.
    """

    kinds: str = "reach"
    demonstrations: int = 20
    updates: int = 1500
    episodes: int = 256


def trained(arm: str, seed: int, size: Size, out: Path) -> Path:
    """The run of an arm."""
    dataset = out / "sets" / f"{size.kinds}-{size.demonstrations}-{seed}"
    if not (dataset / "meta" / "info.json").exists():
        command("data", "generate", "experiment=tabletop", f"task.settings.kinds='{size.kinds}'", "quality=noisy",
                f"episodes={size.demonstrations}", f"seed={seed}", f"out={dataset}", "--json")
    return run([*TRAINED, *ARMS[arm], f"algo.updates={size.updates}", f"dataset={dataset}", f"seed={seed}"],
               out / "runs" / str(seed) / arm)


def judge(view: str, folder: Path, size: Size, seed: int) -> dict[str, Any]:
    """Fresh episodes that satisfy their sentence's formula."""
    from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
    from temporeal.policies.runs.trained import load_trained

    found = load_trained(folder)
    share = evaluate_on(found, shown(found.settings, view), found.settings["backend"]["name"],
                        EvaluationConfig(size.episodes, seed=SEED + seed)).evaluation.satisfied
    return {"successes": share.successes, "trials": share.trials, "low": share.low, "high": share.high}


def shown(settings: Mapping[str, Any], view: str) -> dict[str, Any]:
    """The settings of a run, as ``view`` shows its task."""
    from temporeal.policies.runs.settings.compose import override

    if view in ("seen", "wordings"):
        return override(dict(settings), ["task.settings.split=held_out_wordings"] if view == "wordings" else [])
    found = override(dict(settings), ["randomize=look_shifted"])
    looks = found["randomize"]["appearance"]
    found["randomize"] = {**found["randomize"], "appearance": {
        name: value for name, value in looks.items() if name.startswith("camera.") == (view == "camera")}}
    return found


def require_same_size(out: Path, size: Size) -> None:
    """Refuse a folder of another size: it is written there before a training begins."""
    file, asked = out / "size.json", asdict(size)
    if not (studies.read(out) or (out / "runs").exists()):
        write_whole(file, json.dumps(asked).encode())
    there = json.loads(file.read_text()) if file.exists() else {}
    if different := [f"{key}={there.get(key, 'unknown')}, not {asked[key]}" for key in asked
                     if there.get(key) != asked[key]]:
        raise BadInput(f"{out} holds a study of another size ({'; '.join(different)}): name another folder")


def chosen(arms: str) -> list[str]:
    """The arms that a text such as ``own,plain`` names."""
    found = arms.split(",")
    if wrong := [arm for arm in found if arm not in ARMS]:
        raise argparse.ArgumentTypeError(f"no such arm: {', '.join(map(repr, wrong))}; of {', '.join(ARMS)}")
    return found


def study(out: Path, seeds: int = FEWEST, size: Size = Size(), arms: Sequence[str] = tuple(ARMS)) -> None:
    """Make the trials that are missing."""
    require_same_size(out, size)
    import torch

    torch.set_num_threads(1)
    for seed, arm in ((seed, arm) for seed in range(1, seeds + 1) for arm in arms):
        names = {view: f"{arm}/{view}/{seed}" for view in VIEWS}
        missing = {view: name for view, name in names.items() if name not in studies.read(out)}
        if not missing:
            continue
        began = time.process_time()
        folder = trained(arm, seed, size, out)
        cost = time.process_time() - began  # near 0 where it was trained before
        for view, name in missing.items():
            found = {**judge(view, folder, size, seed), "size": asdict(size), "train_cpu_s": cost}
            print(name, json.dumps(studies.add(out, name, found)), flush=True)


def judged(trials: Mapping[str, studies.Trial]) -> list[Row]:
    """The mean over the seeds of each arm and view; nothing is demanded."""
    found = list[Row]()
    for arm in ARMS:
        for view in VIEWS:
            mine = [each["successes"] / each["trials"] for name, each in trials.items()
                    if name.startswith(f"{arm}/{view}/")]
            row = f"vla.encoders.{arm}.{view}"
            if len(mine) < FEWEST:
                found.append(studies.missing(row, "1", None, PART, f"{len(mine)} of {FEWEST} seeds", "vla"))
            else:
                found.append(Row(row, sum(mine) / len(mine), "1",
                                 peer=f"{len(mine)} seeds: {min(mine):.2f} to {max(mine):.2f}"))
    return found


def main(argv: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=FEWEST)
    parser.add_argument("--arms", type=chosen, default=list(ARMS), help=f"of {', '.join(ARMS)}")
    parser.add_argument("--kinds", default=Size.kinds)
    for name in ("demonstrations", "updates", "episodes"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Size, name))
    options = parser.parse_args(argv)
    size = Size(options.kinds, options.demonstrations, options.updates, options.episodes)
    try:
        require_same_size(options.out, size)
    except BadInput as error:
        parser.error(str(error))
    study(options.out, options.seeds, size, options.arms)
    for row in judged(studies.read(options.out)):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
