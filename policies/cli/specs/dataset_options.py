"""What the words of ``temporeal data`` share: a formula over a dataset, a new dataset, and what was written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, print_json, say
from temporeal.policies.cli.specs.spec_file import given, read_json, semantics_of
from temporeal.policies.runs.errors import BadInput

if TYPE_CHECKING:
    from temporeal.policies.data.curation.robustness import Table
    from temporeal.sim.stl.language.conventions import Semantics
    from temporeal.sim.stl.language.propositional import Formula


def add_formula(parser: Parser, what: str) -> None:
    """``--formula`` and its ``--constants``."""
    parser.add_argument("--formula", metavar="FORMULA", help=f"{what}: a formula, or its file (temporeal spec --help)")
    parser.add_argument("--constants", metavar="JSON", default="{}", help="""constants of it: '{"a": [1, 0, 1]}'""")


def add_out(parser: Parser) -> None:
    """``--out``, a new folder."""
    parser.add_argument("--out", type=Path, required=True, metavar="NEW", help="folder of the new dataset")


def formula_given(options: Any, table: Table) -> tuple[Formula | None, Semantics]:
    """The formula of the options over the signals of a dataset, None where there is none; and its semantics."""
    from dataclasses import replace

    from temporeal.policies.cli.specs.datasets import formula_of_set
    from temporeal.sim.stl.language.conventions import RTAMT

    if not options.formula:
        return None, RTAMT
    spec = given(options.formula)
    constants = read_json(options.constants, "--constants is no JSON")
    if not isinstance(constants, dict):
        raise BadInput(f"--constants is one JSON object; got {options.constants[:60]}")
    spec = replace(spec, constants={**spec.constants, **constants})
    return formula_of_set(spec, table), semantics_of(spec)


def written(options: Any, result: dict[str, Any]) -> None:
    """Say what was written: ``result`` has at least ``out`` and ``episodes``."""
    if options.json:
        print_json(result)
    else:
        more = "".join(f"; {key} {value}" for key, value in result.items() if key not in ("out", "episodes"))
        say(f"{result['out']}: {result['episodes']} episodes{more}")
