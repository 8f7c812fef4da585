"""``temporeal data``: datasets of episodes. Each word is a module of ``policies/cli/data_verbs``.

A word's module has ``SUMMARY`` (one line), ``HELP`` (text with an example), ``add(parser)`` for its options and
``run(options) -> exit status``; a word that Python keeps for itself has an underscore behind it (``import_.py``).
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from temporeal.policies.cli.console import Parser, say
from temporeal.policies.runs.errors import BAD_INPUT, OK, BadInput, bad_input
from temporeal.robots.registry import guess

SUMMARY = "datasets of episodes: check, import, record, generate, filter"
HELP = """\
Datasets are folders in LeRobotDataset v3's layout (Parquet and MP4), read by LeRobot, too.

{words}

`temporeal data WORD --help` explains a word, with an example. docs/reference/datasets.md says what is in a folder.

Example:
  temporeal data info demos
  temporeal data check demos --quarantine
"""
PACKAGE = "temporeal.policies.cli.data_verbs"
FOLDER = Path(__file__).parents[1] / "data_verbs"


def words() -> dict[str, str]:
    """Each word and the name of its module. Lists files, imports nothing."""
    found = sorted(path.stem for path in FOLDER.glob("*.py") if "\nSUMMARY = " in path.read_text())
    return {name.rstrip("_"): name for name in found}


def summary(name: str) -> str:
    """The line of a module, read and not imported: help answers at once, whatever the modules need."""
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    lines = [node.value.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(
        node.value, ast.Constant) and [getattr(target, "id", "") for target in node.targets] == ["SUMMARY"]]
    return str(lines[0]) if lines else ""


def load(word: str, *more: str) -> ModuleType:
    """The module of a word; the error for an unknown one lists the known ones. ``more``: what stood behind it."""
    known = words()
    if word not in known:
        raise BadInput(f"data {' '.join((word, *more))}: no such word; {guess(word, known)}known: {', '.join(known)}; "
                       "see temporeal data --help")
    return importlib.import_module(f"{PACKAGE}.{known[word]}")


def completions() -> list[str]:
    """Words."""
    return list(words())


def text() -> str:
    """The verb's help."""
    width = max(map(len, words()))
    return HELP.format(words="\n".join(f"  {word:{width}}  {summary(name)}" for word, name in words().items()))


def parser_of(word: str, module: ModuleType) -> Parser:
    """Options of a word."""
    parser = Parser(f"data {word}", module.HELP)
    module.add(parser)
    return parser


def part_helps() -> dict[str, str]:
    """What ``temporeal data WORD --help`` prints, by word."""
    return {word: parser_of(word, load(word)).format_help().strip() for word in words()}


def run(argv: Sequence[str]) -> int:
    """One word."""
    if not argv or argv[0] in ("-h", "--help"):
        say(f"usage: temporeal data WORD ...\n\n{text()}")
        return OK if argv else BAD_INPUT
    module = load(*argv)
    options = parser_of(argv[0], module).parse_intermixed_args(argv[1:])
    with bad_input():
        status: int = module.run(options)
    return status
