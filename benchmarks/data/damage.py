"""Files of a dataset are damaged at random: what is read afterwards is what was written, or an error that is ours.

A trial copies a set, damages one of its files (cut, bytes changed, a block of zeros, removed, another file's content),
checks it, reads every episode and compares it with what was written, and has the damaged episodes put aside.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from temporeal.policies.data.episodes.checking import check
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.quarantine import quarantine
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.handed_over.files import Refused
from temporeal_benchmarks.data.killed_writer import FACE, episode, same
from temporeal_benchmarks.rows import Row, none_of

TRIALS = 500
EPISODES = 6
OURS = (DataError, Refused)


def cut(rng: random.Random, data: bytes) -> bytes:
    """The end is missing."""
    return data[: rng.randrange(len(data))]


def flip(rng: random.Random, data: bytes) -> bytes:
    """Up to four bits changed."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def zeros(rng: random.Random, data: bytes) -> bytes:
    """A block that was not written."""
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice([1, 16, 512, 4096]))
    return data[:begin] + bytes(end - begin) + data[end:]


DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (cut, flip, zeros)


@dataclass
class Outcome:
    """What came of the trials.

    Args:
        wrong: episodes that were read otherwise than written, and neither reading nor check said so.
        other: errors that are not ours, with the trial's number. ``lost``: good episodes that quarantine lost.
        found: trials whose damage was said.
    """

    wrong: int = 0
    lost: int = 0
    found: int = 0
    other: list[str] = field(default_factory=list)


def made(folder: Path) -> list[Path]:
    """A set of six episodes in three files; its files."""
    shutil.rmtree(folder, ignore_errors=True)
    with DatasetWriter(folder, FACE) as writer:
        writer.add_many(episode(k) for k in range(EPISODES - 2))
        for k in range(EPISODES - 2, EPISODES):
            writer.add(episode(k))
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def spoil(rng: random.Random, folder: Path, files: list[Path]) -> None:
    """Damage one file."""
    path = folder / rng.choice(files)
    if rng.random() < 0.1:
        path.unlink()
    elif rng.random() < 0.1:
        path.write_bytes((folder / rng.choice(files)).read_bytes())
    else:
        path.write_bytes(rng.choice(DAMAGES)(rng, path.read_bytes()))


def trial(number: int, whole: Path, files: list[Path], out: Path, outcome: Outcome) -> None:
    """One damage, and what becomes of the set."""
    folder = out / "trial"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    spoil(random.Random(number), folder, files)
    try:
        findings = check(folder)
        data = Dataset.open(folder)
    except OURS:
        outcome.found += 1
        return
    named = {one.episode for one in findings}
    outcome.found += bool(findings)
    for index in range(data.episodes):
        with suppress(*OURS):
            outcome.wrong += not same(data, index) and index not in named
    if named - {None}:
        quarantine(folder, findings)
        outcome.lost += Dataset.open(folder).episodes != data.episodes - len(named - {None}) or bool(check(folder))


def damaged(out: Path, trials: int, first: int = 0) -> Outcome:
    """Trials from number ``first`` on."""
    files, outcome = made(out / "whole"), Outcome()
    for number in range(first, first + trials):
        try:
            trial(number, out / "whole", files, out, outcome)
        except Exception as error:  # whatever is raised is a finding
            outcome.other.append(f"trial {number}: {type(error).__name__}: {error}")
            print(outcome.other[-1], file=sys.stderr)
    return outcome


def rows(quick: bool, out: Path) -> list[Row]:
    """What was read wrong, what was lost, and errors that are not ours."""
    trials = 30 if quick else TRIALS
    outcome = damaged(out, trials)
    how = f"{trials} damaged files, {outcome.found} of them said"
    return [none_of("data.damage.episodes_wrong_unsaid", outcome.wrong, how),
            none_of("data.damage.good_episodes_lost", outcome.lost, how),
            none_of("data.damage.other_errors", len(outcome.other), "; ".join(outcome.other[:3]) or how)]
