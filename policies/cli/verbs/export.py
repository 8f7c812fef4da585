"""``temporeal export``: write the artifact, prove it, publish it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from temporeal.policies.cli.console import Parser, add_json, add_overrides, print_json, say
from temporeal.policies.runs.errors import OK, BadInput

if TYPE_CHECKING:
    from temporeal.robots.artifact.runtime import Artifact

SUMMARY = "write a run's policy as one self-testing artifact"
HELP = """\
Traces signals -> observation -> network -> command into policy.onnx, records a golden trace in the environment that
the policy was trained in, writes manifest.json (signals, commands, rate, limits, formula, settings, versions, digests)
and replays the golden trace. The folder appears complete and proven, or not at all.

A model.zip that stable-baselines3 saved (PPO, A2C, SAC, TD3, DDPG) is exported likewise; such a file can run code when
it is loaded, so take only those of people you trust. Say by settings what it was trained on: the task always, its
settings, backend and randomize (none) where they were not the defaults; and --normalize FILE, or --no-normalize if
there was no VecNormalize and the file does not show it.

With --sign the artifact is signed: what runs with --trust takes no other (docs/reference/security.md). --make-key makes
the two keys, KEY.pem to sign with and KEY.pem.pub to trust.

Example:
  temporeal export outputs/train/waypoints-ppo-1 --out outputs/artifact
  temporeal export --make-key team.pem
  temporeal export outputs/train/waypoints-ppo-1 --out outputs/artifact --sign team.pem
  temporeal export model.zip task=hover task.settings.history=4 --normalize statistics.pkl --out outputs/artifact
"""


def next_step(out: Path, robot: str) -> str:
    """What to do with the artifact in ``out``: a robot without ROS 2 interfaces can only be judged so far."""
    from temporeal.robots.spec import load_robot

    if load_robot(robot).ros is not None:
        return f"next: temporeal deploy {out} --sim"
    return f"next: temporeal eval {out} (deploy needs a ROS 2 interface, ros.yaml, which robot {robot!r} has not yet)"


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("export", HELP)
    p.add_argument("run", type=Path, nargs="?", metavar="RUN",
                   help="folder of a run, or a model.zip of stable-baselines3")
    add_overrides(p)
    p.add_argument("--out", type=Path, metavar="FOLDER", help="folder of the artifact (RUN/artifact)")
    statistics = p.add_mutually_exclusive_group()
    statistics.add_argument("--normalize", type=Path, metavar="FILE",
                            help="what VecNormalize.save wrote")
    statistics.add_argument("--no-normalize", dest="normalize", action="store_const", const=False,
                            help="the model was trained without VecNormalize")
    keys = p.add_mutually_exclusive_group()
    keys.add_argument("--sign", type=Path, metavar="KEY.pem", help="sign the artifact with this secret key (Ed25519)")
    keys.add_argument("--make-key", type=Path, metavar="KEY.pem",
                      help="write a new secret key, and the public one to KEY.pem.pub; nothing is exported")
    p.add_argument("--name", help="name in the manifest (the task's)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Export one run, or one model."""
    options = parser().parse_intermixed_args(argv)
    from temporeal.policies.runs import errors, run_folders

    if options.make_key is not None:
        return new_key(options)
    if options.run is None:
        raise BadInput("name what to export: the folder of a run, or a model.zip of stable-baselines3")
    from temporeal.policies.export.writer import refuse_other_folder
    from temporeal.robots.artifact.signature import secret_key, sign

    if options.sign is not None:
        with errors.bad_input():
            secret_key(options.sign)  # a key that cannot sign is told now, not when the artifact is made
    is_model = options.run.is_file() and options.run.suffix == ".zip"
    out: Path = options.out or (options.run.with_suffix("") if is_model else options.run / "artifact")
    check_words(is_model, options.run, options.overrides, options.normalize)
    if not is_model:
        run_folders.load_run(options.run)
    run_folders.check_writable(out.parent)
    with errors.bad_input():
        refuse_other_folder(out)
    try:
        if is_model:
            artifact = of_model(options.run, out, options.overrides, options.normalize, options.name)
        else:
            artifact = of_run(options.run, out, options.name)
        if options.sign is not None:
            with errors.bad_input():
                sign(out, options.sign)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}; what was there before is untouched") from error
    proof = artifact.self_test()
    manifest = artifact.manifest
    if options.json:
        print_json({"artifact": out, "robot": manifest.robot, "rate_hz": manifest.rate_hz, "formula": manifest.formula,
                    "signals": [s.name for s in manifest.signals], "commands": [c.name for c in manifest.commands],
                    "self_test": {"max_error": proof.max_error, "steps": proof.steps},
                    "signed": options.sign is not None})
    else:
        reads, gives = ", ".join(s.name for s in manifest.signals), ", ".join(c.name for c in manifest.commands)
        say(f"{out}: {manifest.robot}, {manifest.rate_hz:g} Hz, reads {reads}, gives {gives}\n"
            f"self-test: {proof.steps} steps, largest difference {proof.max_error:.1e} of a range\n"
            + (f"signed with {options.sign}\n" if options.sign else "") + next_step(out, manifest.robot))
    return OK


def new_key(options: Any) -> int:
    """Write a pair of keys and say what each is for."""
    from temporeal.policies.runs import errors
    from temporeal.robots.artifact.signature import make_key

    if options.run is not None or options.overrides:
        raise BadInput("--make-key makes a key and exports nothing: give it alone, then export with --sign")
    try:
        with errors.bad_input():
            public = make_key(options.make_key)
    except OSError as error:
        raise BadInput(f"{options.make_key} cannot be written: {error.strerror or error}") from error
    if options.json:
        print_json({"secret": options.make_key, "public": public})
    else:
        say(f"{options.make_key}: secret, signs (temporeal export RUN --sign {options.make_key}); keep it off robots\n"
            f"{public}: public, for robots (temporeal deploy ARTIFACT --trust {public})")
    return OK


def check_words(is_model: bool, run: Path, words: Sequence[str], normalize: Path | Literal[False] | None) -> None:
    """Settings and statistics are of a model; a run has its own. A model's task must be named."""
    if not is_model and (words or normalize is not None):
        given = " ".join(words) or ("--no-normalize" if normalize is False else f"--normalize {normalize}")
        raise BadInput(f"{given}: a run is exported as it was trained; settings are for a model.zip, and {run} is none")
    if is_model and not any(word.startswith("task=") for word in words):
        raise BadInput(f"{run} does not say what it was trained on: name the task, as in "
                       f"temporeal export {run} task=hover")


def of_run(run: Path, out: Path, name: str | None) -> Artifact:
    """The artifact of a run of ours."""
    from temporeal.policies.export.policy import export_policy
    from temporeal.policies.runs import environments, errors, run_folders, trained

    settings = run_folders.load_run(run)
    task = environments.make_task(settings)
    here = {**settings, "device": "cpu"}  # an artifact runs on a CPU, wherever the run was trained
    graph = trained.load_graph(here, run, task)
    env = environments.make_env(here, task=trained.shown_to(graph, task), num_worlds=1, compiled=False)
    with errors.bad_input():
        return export_policy(graph, task, out, env, training=settings, seed=settings["seed"], name=name)


def of_model(
    model: Path, out: Path, words: Sequence[str], normalize: Path | Literal[False] | None, name: str | None
) -> Artifact:
    """The artifact of a model that stable-baselines3 saved, trained on what ``words`` say."""
    from temporeal.policies.runs import errors
    from temporeal.policies.runs.settings.compose import compose

    bare = [] if any(word.startswith("randomize=") for word in words) else ["randomize=none"]
    settings = compose([*bare, *words])
    with errors.bad_input():
        from temporeal.policies.export.external_policies import export_sb3
        from temporeal.sim.adapters.worlds import recipe

        made = recipe(
            settings["task"]["name"], backend=settings["backend"]["name"],
            randomize=settings["randomize"].get("parameters"), sensors=settings["randomize"].get("sensors"),
            **(settings["task"].get("settings") or {}))
        return export_sb3(model, out, made, normalize=normalize, seed=settings["seed"], name=name)
