"""``temporeal export``: write the artifact, prove it, publish it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from policies.cli.console import OK, BadInput, Parser, add_json, print_json, say

SUMMARY = "write a run's policy as one self-testing artifact"
HELP = """\
Traces signals -> observation -> network -> command into policy.onnx, records a golden trace in the environment that
the policy was trained in, writes manifest.json (signals, commands, rate, limits, formula, settings, versions, digests)
and replays the golden trace. The folder appears complete and proven, or not at all.

Example:
  temporeal export outputs/train/waypoints-ppo-1 --out outputs/artifact
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("export", HELP)
    p.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    p.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the artifact (RUN/artifact)")
    p.add_argument("--name", help="name in the manifest (the task's)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Export one run."""
    options = parser().parse_intermixed_args(argv)
    from policies.cli import runs
    from policies.evaluate.handover import export_policy
    from policies.export.artifact import refuse_foreign

    settings = runs.load_run(options.run)
    out = options.out or options.run / "artifact"
    runs.check_writable(out.parent)
    with runs.bad_input():
        refuse_foreign(out)
    task = runs.make_task(settings)
    graph = runs.load_graph(settings, options.run, task)
    env = runs.make_env(settings, task=runs.make_task(settings), num_worlds=1, compiled=False)
    try:
        with runs.bad_input():
            artifact = export_policy(graph, task, out, env, training=settings, seed=settings["seed"], name=options.name)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}; what was there before is untouched") from error
    proof = artifact.self_test()
    manifest = artifact.manifest
    if options.json:
        print_json({"artifact": out, "robot": manifest.robot, "rate_hz": manifest.rate_hz, "formula": manifest.formula,
                    "signals": [s.name for s in manifest.signals], "commands": [c.name for c in manifest.commands],
                    "self_test": {"max_error": proof.max_error, "steps": proof.steps}})
    else:
        reads, gives = ", ".join(s.name for s in manifest.signals), ", ".join(c.name for c in manifest.commands)
        say(f"{out}: {manifest.robot}, {manifest.rate_hz:g} Hz, reads {reads}, gives {gives}\n"
            f"self-test: {proof.steps} steps, largest difference {proof.max_error:.1e} of a range\n"
            f"next: temporeal deploy {out} --sim")
    return OK
