"""``temporeal data info``: what is in a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, print_json, say
from temporeal.policies.runs.errors import OK

SUMMARY = "what is in a dataset: signals, action, rate, episodes, success, instructions"
HELP = """\
Prints what a dataset holds: its interface and hash, episodes, samples, success, instructions. A set of LeRobot's own is
read as well; what its files do not say is named.

Example:
  temporeal data info demos
  temporeal data info demos --json
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the dataset's folder")
    add_json(parser)


def run(options: Any) -> int:
    """Print it."""
    from temporeal.policies.data.episodes.dataset import Dataset

    facts = described(Dataset.open(options.folder))
    if options.json:
        print_json(facts)
        return OK
    say(f"{facts['folder']}: {facts['episodes']} episodes, {facts['samples']} samples at {facts['rate_hz']:g} Hz "
        f"({facts['seconds']:.0f} s), robot {facts['robot']}{', a foreign set' if facts['foreign'] else ''}")
    for name, told in facts["signals"].items():
        say(f"  {name:24} {told['dtype']} {told['shape']} {told['unit']} {told['frame']}".rstrip())
    action = facts["action"]
    say(f"  action: {action['name']} [{action['size']}] {action['unit']}")
    say(f"success: {facts['succeeded']} of {facts['judged']} judged; hash {facts['digest'][:12]}; "
        f"simulator {facts['simulator'] or 'unknown'}")
    for language, count in facts["instructions"].items():
        say(f"  {count:6} x {language or '(no instruction)'}")
    if facts["unknown"]:
        say(f"unknown: {facts['unknown']}")
    return OK


def described(dataset: Any) -> dict[str, Any]:
    """Figures and words about a dataset."""
    from collections import Counter

    face, judged = dataset.interface, [one.success for one in dataset.records if one.success is not None]
    return {
        "folder": dataset.folder, "foreign": dataset.foreign, "robot": face.robot, "task": face.task,
        "rate_hz": face.rate_hz, "episodes": dataset.episodes, "samples": dataset.samples,
        "seconds": dataset.samples / face.rate_hz, "digest": face.digest(), "simulator": face.simulator,
        "signals": {name: {"dtype": spec.dtype, "shape": list(spec.shape), "unit": spec.unit, "frame": spec.frame,
                           "column": dataset.signals[name]} for name, spec in face.signals.items()},
        "action": {"name": face.action.name, "size": face.action.size, "unit": face.action.unit,
                   "components": face.action.components},
        "task_action": face.task_action, "succeeded": sum(judged), "judged": len(judged),
        "instructions": dict(Counter(one.language for one in dataset.records).most_common(20)),
        "unknown": face.about.get("unknown", ""), "about": face.about}
