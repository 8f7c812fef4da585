"""The stages of ``temporeal demo vla``: commands of Temporeal's own, each done once.

What a stage gave is kept in ``stages.json`` with its words. It is done again where its words changed, or an earlier
stage's was done again; a training that was interrupted goes on.
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from temporeal.policies.runs.errors import BAD_INPUT, FAILED, OK, BadInput
from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.handed_over.texts import from_json

RECORD = "stages.json"
FOLDERS = ("eye", "demonstrations", "tuned", "improved", "artifact", "missions")
OURS = (*FOLDERS, "judged-tuned", "judged-improved", RECORD, "summary.json", "report.html")
"""What a demo writes into its folder: all that --overwrite removes."""
INTERFACE = "with_fingers"  # of the arm whose gripper is commanded with its joints


@dataclass(frozen=True)
class Stage:
    """One command.

    Args:
        verb: of ``temporeal``; words: its arguments. folder: what it makes, in the demo's folder.
        gate: whether its exit status 1 says that something is not good enough, and not that it could not be done.
        resumes: whether an interrupted one goes on.
    """

    name: str
    title: str
    verb: str
    words: tuple[str, ...]
    folder: str
    gate: bool = False
    resumes: bool = False

    @property
    def command(self) -> str:
        """As it is typed."""
        return shlex.join(["temporeal", self.verb, *self.words])


def stages_of(options: Any) -> list[Stage]:
    """The stages for the options of the verb."""
    out, seed = options.out, f"seed={options.seed}"
    folder = {name: str(out / name) for name in FOLDERS}
    told = [word for sentence in options.instruction for word in ("--instruction", sentence)]
    judged = ("--episodes", str(options.judged), "--json")
    return [
        Stage("eye", "ground what sees and reads, in rendered scenes", "train", (
            "algo=vla_grounding", "experiment=tabletop", f"algo.frames={options.frames}",
            f"algo.updates={options.updates}", seed, f"out={folder['eye']}", "--json"), "eye", resumes=True),
        Stage("demonstrations", "demonstrations by hand", "data", (
            "generate", "experiment=tabletop", f'task.settings.kinds="{options.kinds}"', "quality=noisy",
            f"episodes={options.episodes}", seed, f"out={folder['demonstrations']}", "--json"), "demonstrations"),
        Stage("tuned", "tune the policy on them", "train", (
            "algo=vla_few_shot", f"algo.policy={folder['eye']}", f"dataset={folder['demonstrations']}",
            "algo.relative=joint_pos", "algo.evaluate_updates=0", seed, f"out={folder['tuned']}", "--json"), "tuned",
            resumes=True),
        Stage("judged-tuned", "judge it", "eval", (
            folder["tuned"], *judged, "--out", str(out / "judged-tuned")), "judged-tuned", gate=True),
        Stage("improved", "improve it by reinforcement on the formulas", "train", (
            "algo=residual", f"algo.policy={folder['tuned']}", "algo.reward=task", "num_worlds=128",
            f"algo.max_seconds={options.seconds:g}", "algo.clock=cpu", seed, f"out={folder['improved']}", "--json"),
            "improved", resumes=True),
        Stage("judged-improved", "judge it", "eval", (
            folder["improved"], *judged, "--out", str(out / "judged-improved")), "judged-improved", gate=True),
        Stage("artifact", "export", "export", (
            folder["improved"], "--out", folder["artifact"], *(["--int8"] if options.int8 else []), "--json"),
            "artifact"),
        Stage("missions", "missions by typed instructions, in real time", "deploy", (
            folder["artifact"], "--sim", f"deploy.interface={INTERFACE}", "--flights", str(options.missions), "--seed",
            str(options.seed), *told, "--out", folder["missions"], "--json"), "missions", gate=True)]


def perform(stage: Stage, out: Path, announce: Callable[[str], None]) -> dict[str, Any]:
    """What the stage gave: from the record, or by doing it now."""
    record = read_record(out)
    number = list(record).index(stage.name) if stage.name in record else len(record)
    before = dict(list(record.items())[:number])
    known = record.get(stage.name)
    if known is not None and known["command"] == stage.command and (out / stage.folder).exists():
        announce(f"{stage.title}: done before, in {known['seconds']:.0f} s")
        return dict(known["figures"])
    write_record(out, before)  # what follows from it is done anew
    announce(f"{stage.title}\n   {stage.command}")
    again = stage.resumes and known is None and (out / stage.folder / "config.yaml").is_file()
    if (out / stage.folder).exists() and not again:
        shutil.rmtree(out / stage.folder)
    began = time.perf_counter()
    figures = output_of(stage, ["resume=true"] if again else [])
    seconds = time.perf_counter() - began
    write_record(out, {**before, stage.name: {"command": stage.command, "seconds": seconds, "figures": figures}})
    announce(f"   {seconds:.0f} s{in_words(figures)}")
    return figures


def output_of(stage: Stage, more: Sequence[str]) -> dict[str, Any]:
    """Run the command in this process: the JSON that it prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        status = import_module(f"temporeal.policies.cli.verbs.{stage.verb}").run([*stage.words, *more])
    found = json.loads(printed.getvalue() or "{}")
    figures: dict[str, Any] = found if isinstance(found, dict) else {}
    tried = stage.gate and bool(figures.get("flights"))  # none was flown: the guard refused what a policy asked for
    if status not in ((OK, FAILED, *((BAD_INPUT,) if tried else ())) if stage.gate else (OK,)):
        raise BadInput(f"{stage.title} failed with exit status {status}: {stage.command}")
    return figures


def in_words(figures: Mapping[str, Any]) -> str:
    """The figures of a stage that are worth a line."""
    if "flights" in figures:
        good = sum(row["verdict"] == "satisfied" for row in figures["flights"])
        return f", {good} of {len(figures['flights'])} satisfied"
    for value in (figures, *figures.values()):
        found = value.get("p_satisfied", value.get("success")) if isinstance(value, Mapping) else None
        if isinstance(found, (int, float)):
            return f", {found:.0%} satisfied"
    return ""


def read_record(out: Path) -> dict[str, dict[str, Any]]:
    """What was done before, by stage, in order; nothing where the record is none of a demo."""
    try:
        found = from_json((out / RECORD).read_bytes(), RECORD)
    except (OSError, Refused):
        return {}
    rows = found.items() if isinstance(found, dict) else ()
    return {str(name): row for name, row in rows if isinstance(row, dict) and isinstance(row.get("command"), str)
            and isinstance(row.get("figures"), dict) and isinstance(row.get("seconds"), (int, float))}


def write_record(out: Path, record: Mapping[str, Any]) -> None:
    """Keep what was done."""
    write_whole(out / RECORD, (json.dumps(record, indent=2, default=str) + "\n").encode())


def clear(out: Path) -> None:
    """Remove an earlier demo's files, and nothing else in the folder."""
    found = {path.name for path in out.iterdir()} if out.is_dir() else set[str]()
    if found - set(OURS):
        raise BadInput(f"{out} has other files than a demo's, {sorted(found - set(OURS))[0]!r} for one: choose another "
                       "folder with --out")
    for name in found:
        shutil.rmtree(out / name) if (out / name).is_dir() else (out / name).unlink()
