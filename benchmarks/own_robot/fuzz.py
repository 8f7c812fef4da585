"""Seeded fuzzing of what is handed over: artifacts, runs, manifests, recordings, YAML and tables.

    rows(10_000, seed=0, out=folder)      # resumes what is in the folder

Case i of a seed is always the same. Each is read in a process that watches it (:mod:`.fuzzing.watch`): no code may run,
nothing outside may be opened, nothing but an error of the project's may leave, within 1 GiB and 2 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from temporeal_benchmarks.own_robot.fuzzing import seeds
from temporeal_benchmarks.own_robot.fuzzing.watch import MEMORY, SECONDS
from temporeal_benchmarks.rows import Row, at_least, at_most, none_of

CASES = 10_000
BATCH = 400  # cases of one process: what leaks shows, and what ends a process costs little
WRONG = ("code run", "outside", "traceback", "slow", "memory", "ended its process")


def rows(count: int = CASES, *, seed: int = 0, out: Path) -> list[Row]:
    """The figures of ``count`` cases; those that ``out`` has from before are not read again."""
    found = results(count, seed, out)
    name = "own_robot.fuzz"
    counts = Counter(wrong.partition(":")[0] for seen in found for wrong in seen["wrong"])
    refused = sum(str(seen["outcome"]).startswith("refused") for seen in found)
    return [
        at_least(f"{name}.cases", len(found), "1", count, f"seed {seed}: artifacts, runs, manifests, bags, YAML"),
        Row(f"{name}.refused", refused, "1"), Row(f"{name}.read", sum(s["outcome"] == "read" for s in found), "1"),
        *(none_of(f"{name}.{wrong.replace(' ', '_')}", counts[wrong], first(found, wrong)) for wrong in WRONG),
        at_most(f"{name}.most_memory", max(s["memory"] for s in found) / 2**20, "MiB", MEMORY / 2**20, "of a process"),
        at_most(f"{name}.slowest", max(s["seconds"] for s in found), "s", SECONDS, "of a case")]


def first(found: Sequence[dict[str, Any]], wrong: str) -> str | None:
    """The first case of a fault, in words."""
    return next((f"case {s['number']} ({s['kind']}): {text}" for s in found for text in s["wrong"]
                 if text.startswith(wrong)), None)


def results(count: int, seed: int, out: Path) -> list[dict[str, Any]]:
    """What cases 0 to ``count`` did; each is kept in ``out`` as soon as it is known."""
    out.mkdir(parents=True, exist_ok=True)
    kept = out / f"fuzz-{seed}.jsonl"
    known = {seen["number"]: seen for seen in read(kept) if seen["number"] < count}
    examples = seeds.build(out / "examples")
    with kept.open("a") as file:
        missing = [number for number in range(count) if number not in known]
        while missing:
            for seen in batch(examples, out, seed, missing[:BATCH]):
                known[seen["number"]] = seen
                file.write(json.dumps(seen) + "\n")
                file.flush()
            missing = [number for number in missing if number not in known]
    return [known[number] for number in sorted(known)]


def read(file: Path) -> list[dict[str, Any]]:
    """The cases that are known; a line that was not written whole counts for nothing."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def batch(examples: Path, out: Path, seed: int, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
    """What the cases did in a process of their own. One that ends the process is the last."""
    command = [sys.executable, "-m", "temporeal_benchmarks.own_robot.fuzzing.worker", str(examples), str(out / "work"),
               str(seed), *map(str, numbers)]
    done = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            yield json.loads(line)
            done += 1
        words = process.stderr.read()[-2000:]
    if done == 0 and process.returncode == 1:
        raise RuntimeError(f"the fuzzing process failed before its first case:\n{words}")
    if done < len(numbers):
        why = f"ended its process: status {process.returncode}: {words[-300:]}"
        yield {"kind": "", "number": numbers[done], "outcome": why, "seconds": 0.0, "memory": 0, "wrong": [why]}


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]), seed=int(sys.argv[2]), out=Path(sys.argv[3])):
        print(row)
