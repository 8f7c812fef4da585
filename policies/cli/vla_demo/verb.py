"""``temporeal demo vla``: from demonstrations to missions in words over the nodes, stage by stage."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, add_overwrite, complain, print_json, say
from temporeal.policies.runs.errors import BAD_INPUT, FAILED, OK, BadInput

SUMMARY = "learn to do what a sentence says, improve it in simulation and fly it by typed instructions"
HELP = """\
An arm at a table learns to see, read and act: what sees and reads is grounded in rendered scenes, a
vision-language-action policy is tuned on few demonstrations by hand, improved by reinforcement learning on the
instructions' own formulas, exported as an artifact, and told what to do through the ROS 2 nodes (controller, inference
worker, guard, monitor, simulated robot and cameras, each a process, over DDS). About 40 minutes. Each stage is a
command that is printed; one that was done with the same words is not done again, so that an interrupted demo goes on
where it was.
Writes eye/, demonstrations/, tuned/, improved/, artifact/, missions/, stages.json, summary.json and report.html
(pictures, chunks, verdicts) into outputs/demo-vla or --out.

Exit status: 0 at least 9 of 10 missions satisfied the instruction's formula by the monitor, 1 not, 2 something could
not run.

Example:
  temporeal demo vla
  temporeal demo vla --instruction "reach the red cube" --instruction "go to the blue ball"
  temporeal demo vla --frames 2048 --updates 500 --seconds 60 --missions 4 --out outputs/quick
"""

OUT = Path("outputs/demo-vla")
REQUIRED = 0.9  # of the missions
SENTENCES = (
    "reach the red cube", "push the green cube into the tray", "go to the blue ball",
    "slide the red cube into the tray",
    "move to the yellow cylinder", "push the green cube onto the plate", "reach the green cylinder",
    "shove the blue cube onto the plate", "move the gripper to the red ball", "push the red cube into the tray")
"""Combinations and wordings of training (temporeal.sim.stl.instructions)."""
MORE = ("reach the yellow ball", "go to the red cylinder", "move to the blue cube", "reach the green cube",
        "go to the red ball")
"""The missions are told what of all these the policy learned, in turn."""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("demo vla", HELP)
    p.add_argument("--kinds", default="reach", help="what is learned (%(default)s)")
    p.add_argument("--frames", type=int, default=16384, help="rendered for grounding (%(default)s)")
    p.add_argument("--updates", type=int, default=6000, help="gradient steps of grounding (%(default)s)")
    p.add_argument("--episodes", type=int, default=40, help="demonstrations (%(default)s)")
    p.add_argument("--seconds", type=float, default=600.0, help="of the processor for improving (%(default)s)")
    p.add_argument("--judged", type=int, default=128, help="fresh episodes that judge each policy (%(default)s)")
    p.add_argument("--missions", type=int, default=10, help="real-time missions (%(default)s)")
    p.add_argument("--instruction", action="append", default=[], metavar="SENTENCE",
                   help="what the missions are told, in turn (ten sentences)")
    p.add_argument("--int8", action="store_true", help="export in 8-bit numbers")
    p.add_argument("--seed", type=int, default=1, help="of everything (%(default)s)")
    p.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where to (%(default)s)")
    add_overwrite(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Every stage in order; each prints its command and its figures."""
    options = parser().parse_args(argv)
    check(options)
    from temporeal.policies.cli.deployment.exclusive_folder import held
    from temporeal.policies.cli.vla_demo.page import write_page
    from temporeal.policies.cli.vla_demo.stages import clear, perform, stages_of

    if options.overwrite:
        clear(options.out)
    announce = (lambda text: None) if options.json else say
    began = time.perf_counter()
    with held(options.out, "temporeal demo vla"):
        done = {stage.name: perform(stage, options.out, announce) for stage in stages_of(options)}
        summary = summarize(done, options.out, time.perf_counter() - began)
        page = write_page(options.out, summary)
    if options.json:
        print_json(summary)
    announce(f"\nverdict: {summary['verdict']}, {summary['satisfied']} of {summary['missions']} missions\n"
             f"look at  {page}\ntry      temporeal deploy {options.out / 'artifact'} --sim "
             "deploy.interface=with_fingers --instruction \"reach the red cube\"")
    if summary["missions"] == 0:
        complain(f"temporeal: no mission was flown; logs: {options.out / 'missions'}")
        return BAD_INPUT
    return OK if summary["verdict"] == "satisfied" else FAILED


def check(options: Any) -> None:
    """Refuse what cannot be done before anything slow; sentences, too."""
    from temporeal.policies.cli.deployment.requirements import needs_bridge, needs_training
    from temporeal.policies.runs import run_folders
    from temporeal.policies.runs.errors import bad_input
    from temporeal.sim.stl.instructions.grammar import parse

    for name in ("frames", "updates", "episodes", "judged", "missions", "seconds"):
        if getattr(options, name) < 1:
            raise BadInput(f"--{name} is at least 1, got {getattr(options, name)}")
    kinds = options.kinds.split(",")
    options.instruction = options.instruction or [s for s in (*SENTENCES, *MORE) if parse(s).kind in kinds]
    with bad_input():
        asked = [(sentence, parse(sentence).kind) for sentence in options.instruction]
    if not asked:
        raise BadInput(f"--kinds {options.kinds}: say what its missions are told with --instruction")
    for sentence, kind in asked:
        if kind not in kinds:
            raise BadInput(f"--instruction {sentence!r} asks to {kind}, which --kinds {options.kinds} does not learn")
    needs_bridge()
    needs_training("demo vla")
    run_folders.check_writable(options.out)


def summarize(done: dict[str, dict[str, Any]], out: Path, seconds: float) -> dict[str, Any]:
    """The figures of ``summary.json``."""
    from temporeal.robots.atomic_files import write_whole

    flights = done["missions"].get("flights", [])
    satisfied = sum(row["verdict"] == "satisfied" for row in flights)
    good = bool(flights) and satisfied >= REQUIRED * len(flights)
    summary = {"verdict": "satisfied" if good else "violated", "missions": len(flights), "satisfied": satisfied,
               "required": REQUIRED, "seconds": seconds, "stages": done}
    write_whole(out / "summary.json", (json.dumps(summary, indent=2, allow_nan=False, default=str) + "\n").encode())
    return summary
