"""``temporeal export``: write the artifact, self-test it, publish it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from temporeal.policies.cli.console import Parser, add_json, add_overrides, add_overwrite, print_json, say
from temporeal.policies.runs.errors import OK, BadInput, bad_input
from temporeal.policies.runs.settings import own_tasks

if TYPE_CHECKING:
    from temporeal.robots.artifact.manifest import Manifest
    from temporeal.robots.artifact.runtime import Artifact

SUMMARY = "write a run's policy as one self-testing artifact"
HELP = """\
Traces signals -> observation -> network -> command into policy.onnx, records a golden trace in the environment that the
policy was trained in, writes manifest.json (signals, commands, rate, limits, formula, settings, versions, digests) and
replays the golden trace. The folder appears complete and tested, or not at all.

Also exports a model.zip that stable-baselines3 saved (PPO, A2C, SAC, TD3, DDPG). Loading such a file can run code: load
only files of people you trust. Settings say what it was trained on: always the task, and its settings, backend and
randomize (none) where they were not the defaults. Give --normalize FILE, or --no-normalize if there was no VecNormalize
and the file does not show it.

A policy that reads an instruction keeps its vocabulary in the artifact and is told when it is deployed, or for good:
instruction="push the red cube into the tray" makes the sentence a constant. --int8 makes products of 8-bit numbers, and
writes what that costs into the manifest.

--drift trained writes into a quadrotor's artifact what it was trained for (thrust per mass, lags, drag, as the run drew
them), and the monitor says in flight when the machine is another one. --drift identified.yaml: what temporeal identify
found of this one (docs/how-to/drift.md).

A policy for any formula (algo=generalist) is exported with the judge of its missions, judge.onnx, once its training is
finished (docs/how-to/typing-missions.md).

A classifier of success (algo=success_classifier) is written as a folder that `temporeal actor` takes: success=FOLDER.

--sign signs the artifact; commands with --trust refuse any other (docs/how-to/signing.md). --make-key makes the two
keys, KEY.pem to sign with and KEY.pem.pub to trust.

Example:
  temporeal export outputs/train/waypoints-ppo-1 --out outputs/artifact
  temporeal export outputs/train/tabletop-vla-1 --out outputs/vla --int8
  temporeal export outputs/train/waypoints-ppo-1 --drift trained
  temporeal export --make-key team.pem
  temporeal export outputs/train/waypoints-ppo-1 --out outputs/artifact --sign team.pem
  temporeal export model.zip task=hover task.settings.history=4 --normalize statistics.pkl --out outputs/artifact
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("export", HELP)
    p.add_argument("run", type=Path, nargs="?", metavar="RUN",
                   help="folder of a run, or a model.zip of stable-baselines3")
    add_overrides(p)
    p.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the artifact (RUN/artifact)")
    statistics = p.add_mutually_exclusive_group()
    statistics.add_argument("--normalize", type=Path, metavar="FILE", help="the file that VecNormalize.save wrote")
    statistics.add_argument("--no-normalize", dest="normalize", action="store_const", const=False,
                            help="the model was trained without VecNormalize")
    keys = p.add_mutually_exclusive_group()
    keys.add_argument("--sign", type=Path, metavar="KEY.pem", help="sign the artifact with this secret key (Ed25519)")
    keys.add_argument("--make-key", type=Path, metavar="KEY.pem",
                      help="write a new secret key, and the public one to KEY.pem.pub; nothing is exported")
    p.add_argument("--int8", action="store_true", help="products in 8-bit numbers, of policies that give chunks")
    p.add_argument("--drift", default="", metavar="trained|FILE", help="watch flights for another machine than the one "
                   "that the run was trained for, or than an identified.yaml (quadrotors)")
    p.add_argument("--name", help="name in the manifest (the task's)")
    add_overwrite(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Export one run, or one model."""
    options = parser().parse_intermixed_args(argv)
    if options.make_key is not None:
        return new_key(options)
    if options.run is None:
        raise BadInput("name what to export: the folder of a run, or a model.zip of stable-baselines3")
    is_model = options.run.is_file() and options.run.suffix == ".zip"
    take_instruction(options, is_model)
    out: Path = options.out or (options.run.with_suffix("") if is_model else options.run / "artifact")
    check(options, is_model, out)
    if not is_model and learns_progress(options.run):
        return classifier(options, out)
    artifact = exported(options, is_model, out)
    if options.json:
        print_json(figures(artifact, out, options.sign is not None))
    else:
        say(describe(artifact, out, options.sign))
    return OK


def learns_progress(run: Path) -> bool:
    """Whether what the run learned judges, and gives no commands."""
    from temporeal.policies.runs import progress, run_folders

    return progress.learns_progress(run_folders.read_run(run)["algo"]["name"])


def classifier(options: Any, out: Path) -> int:
    """Export a classifier of success, which actors take as ``success=FOLDER``."""
    from temporeal.policies.runs.exporting import export_classifier

    if options.sign is not None or options.int8 or options.instruction or options.name or options.drift:
        raise BadInput("--sign, --int8, --drift, --name and instruction=... are for policies; this run's model judges")
    found = export_classifier(options.run, out)
    seen, chosen = found.learned, found.chosen
    if options.json:
        print_json({"artifact": out, "robot": seen.robot, "rate_hz": seen.rate_hz, "signals": list(found.names),
                    "threshold": chosen.to_json()})
    else:
        say(f"{out}: {seen.robot}, {seen.rate_hz:g} Hz, reads {', '.join(found.names)}; done are {chosen.in_a_row} "
            f"samples in a row from {chosen.value:.4g} on\nnext: temporeal actor success={out} ...")
    return OK


INSTRUCTION = "instruction="


def take_instruction(options: Any, is_model: bool) -> None:
    """Take the sentence out of the settings: it is text with spaces, and a setting of the artifact, not of the run."""
    said = [word.removeprefix(INSTRUCTION) for word in options.overrides if word.startswith(INSTRUCTION)]
    if said and (is_model or len(said) > 1 or not said[0].strip()):
        raise BadInput(f"{INSTRUCTION}{said[-1]}: one sentence for a run, as in instruction=\"push the red cube into "
                       "the tray\"")
    if is_model and options.int8:
        raise BadInput("--int8 is for runs whose policies give chunks")
    if is_model and options.drift:
        raise BadInput("--drift is for runs, which say what they were trained for; a model.zip does not")
    options.overrides = [word for word in options.overrides if not word.startswith(INSTRUCTION)]
    options.instruction = said[0] if said else ""


def check(options: Any, is_model: bool, out: Path) -> None:
    """Refuse what cannot be exported before anything slow."""
    from temporeal.policies.runs import run_folders
    from temporeal.policies.runs.replacing import refuse_to_replace
    from temporeal.robots.artifact.loading import refuse_other_folder
    from temporeal.robots.artifact.signature import secret_key

    if options.sign is not None:
        with bad_input():
            secret_key(options.sign)
    if options.drift not in ("", "trained") and not Path(options.drift).is_file():
        raise BadInput(f"--drift {options.drift}: trained, or the file of an identification (temporeal identify)")
    check_overrides(is_model, options.run, options.overrides, options.normalize)
    if not is_model:
        run_folders.read_run(options.run)
    run_folders.check_writable(out.parent)
    with bad_input():
        refuse_other_folder(out)
    refuse_to_replace(options.out, options.overwrite)


def check_overrides(is_model: bool, run: Path, words: Sequence[str], normalize: Path | Literal[False] | None) -> None:
    """Settings and statistics are for a model; a run has its own. A model's task must be named, and a run's where it is
    a file of the user's."""
    if not is_model and len(words) == 1 and own_tasks.is_task_file(words[0]) and normalize is None:
        return
    if not is_model and (words or normalize is not None):
        given = " ".join(words) or ("--no-normalize" if normalize is False else f"--normalize {normalize}")
        raise BadInput(f"{given}: a run is exported as it was trained; settings are for a model.zip, and {run} is none")
    if is_model and not any(word.startswith("task=") for word in words):
        raise BadInput(f"{run} does not say what it was trained on: name the task, as in "
                       f"temporeal export {run} task=hover")


def exported(options: Any, is_model: bool, out: Path) -> Artifact:
    """Write the artifact, and sign it if asked to."""
    from temporeal.policies.runs import exporting
    from temporeal.robots.artifact.signature import sign

    if is_model:
        artifact = exporting.export_model(options.run, out, options.overrides, options.normalize, options.name)
    else:
        file = options.overrides[-1].removeprefix("task=") if options.overrides else None
        artifact = exporting.export_run(options.run, out, options.name, file, instruction=options.instruction,
                                        int8=options.int8, drift=options.drift)
    if options.sign is not None:
        with exporting.writable(out), bad_input():
            sign(out, options.sign)
    return artifact


def figures(artifact: Artifact, out: Path, signed: bool) -> dict[str, Any]:
    """What --json prints."""
    proof, manifest = artifact.self_test(), artifact.manifest
    return {"artifact": out, "robot": manifest.robot, "rate_hz": manifest.rate_hz, "formula": manifest.formula,
            "signals": [s.name for s in manifest.signals], "commands": [c.name for c in manifest.commands],
            "self_test": {"max_error": proof.max_error, "steps": proof.steps}, "signed": signed, **additions(manifest)}


def additions(manifest: Manifest) -> dict[str, Any]:
    """The instruction, the 8-bit numbers, the drift and the formulas of an artifact that has them."""
    from dataclasses import asdict

    told, int8 = manifest.instruction, manifest.int8
    words = {} if told is None else {"instruction": {
        "signal": told.signal, "words": len(told.words), "length": told.length, "digest": told.digest,
        "grammar": told.grammar, "fixed": told.fixed}}
    parts = {"int8": int8, "drift": manifest.drift, "formulas": manifest.formulas}
    return words | {name: asdict(part) for name, part in parts.items() if part is not None}


def describe(artifact: Artifact, out: Path, key: Path | None) -> str:
    """The artifact in a few lines, and the next step."""
    proof, manifest = artifact.self_test(), artifact.manifest
    reads, gives = ", ".join(s.name for s in manifest.signals), ", ".join(c.name for c in manifest.commands)
    return (f"{out}: {manifest.robot}, {manifest.rate_hz:g} Hz, reads {reads}, gives {gives}\n"
            f"self-test: {proof.steps} steps, largest difference {proof.max_error:.1e} of a range\n"
            + in_words(manifest)
            + (f"signed with {key}\n" if key else "") + next_step(out, manifest))


def in_words(manifest: Manifest) -> str:
    """Lines about instruction, 8-bit numbers, drift and formulas."""
    from temporeal.robots.spec import load_robot

    told, int8 = manifest.instruction, manifest.int8
    lines = [] if told is None else [
        f"does {told.fixed!r}, and nothing else" if told.fixed else
        f"is told what to do: {len(told.words)} words, {told.length} in a sentence at most"]
    if int8 is not None:
        lines.append(f"int8: {int8.tensors} products; commands differ from float32 by {int8.rms_difference:.1e} of "
                     f"their range (rms), {int8.max_difference:.1e} at most")
    if manifest.drift is not None:
        low, _, high = (100 * (each - 1) for each in manifest.drift.ratio)
        lines.append(f"drift: flights are compared with {manifest.drift.source}; thrust per mass {low:+.0f} to "
                     f"{high:+.0f} %")
    if manifest.formulas is not None:
        of = manifest.formulas
        lines.append(f"flies any formula of places about {of.position}, up to {of.horizon_s:g} s, within {of.keep}; of "
                     f"formulas that it never saw {100 * of.validation:.0f} % were satisfied")
        lines.append("that share and its forecast are of the simulator under the randomization of its training"
                     if of.randomized else "note: that share and its forecast are of the simulator without noise, "
                     "latency and randomization, whatever it trained with")
        if load_robot(manifest.robot).ros is not None and not (manifest.training.get("randomize") or {}).get("sensors"):
            lines.append("note: it was trained without noise and latency; for a machine train it with "
                         "randomize=default, or that of its robot")
    return "".join(f"{line}\n" for line in lines)


def next_step(out: Path, manifest: Manifest) -> str:
    """The next command; a robot without ROS 2 interfaces can only be evaluated."""
    from temporeal.robots.spec import load_robot

    robot, told = manifest.robot, manifest.instruction
    if load_robot(robot).ros is not None:
        words = "" if told is None or told.fixed else ' --instruction "..."'
        words = words if manifest.formulas is None else " --formula mission.yaml"
        return f"next: temporeal deploy {out} --sim{interface_for(manifest)}{words}"
    return f"next: temporeal eval {out} (deploy needs a ROS 2 interface, ros.yaml, which robot {robot!r} does not have)"


def interface_for(manifest: Manifest) -> str:
    """The setting that names an interface with the artifact's command, where the robot's usual one has none."""
    from importlib.util import find_spec

    from temporeal.robots.spec import load_robot

    if find_spec("temporeal_bridge") is None:
        return ""
    from temporeal_bridge.interface.loading import load_interface

    usual, command = load_interface(load_robot(manifest.robot)), manifest.commands[0].name
    others = [] if command in usual.commands else list(usual.offers.get(command, ()))
    return f" deploy.interface={others[0]}" if others else ""


def new_key(options: Any) -> int:
    """Write a pair of keys and say what each is for."""
    from temporeal.robots.artifact.signature import make_key

    if options.run is not None or options.overrides:
        raise BadInput("--make-key makes a key and exports nothing: give it alone, then export with --sign")
    try:
        with bad_input():
            public = make_key(options.make_key)
    except OSError as error:
        raise BadInput(f"{options.make_key} cannot be written: {error.strerror or error}") from error
    if options.json:
        print_json({"secret": options.make_key, "public": public})
    else:
        say(f"{options.make_key}: secret, signs (temporeal export RUN --sign {options.make_key}); keep it off robots\n"
            f"{public}: public, for robots (temporeal deploy ARTIFACT --trust {public})")
    return OK
