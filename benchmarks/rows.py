"""Benchmarks: one module each, run with ``temporeal bench NAME`` (dashes for underscores).

A benchmark is a module with ``HELP`` (what is measured, how, against what) and ``run(quick) -> list[Row]``.
One that also has ``OPTIONS`` (name -> help; each takes a list ``A,B``) is ``run(quick, *, out, <option>: list | None)``
and keeps what it makes in the folder ``out``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from temporeal.policies.runs.errors import BadInput


@dataclass(frozen=True)
class Row:
    """One measured figure.

    ``target`` is what it should reach and ``peer`` what others reach, as number or text; ``ok`` says whether the
    target is met, None where there is none. ``value`` is None where it cannot be measured here; ``peer`` says why.
    """

    name: str
    value: float | None
    unit: str = ""
    target: float | str | None = None
    peer: float | str | None = None
    ok: bool | None = None


def among(option: str, given: Sequence[str] | None, legal: Sequence[str]) -> Sequence[str]:
    """Words given to ``--option``, each one of ``legal``; all of these where none is given."""
    if unknown := sorted(set(given or ()) - set(legal)):
        raise BadInput(f"--{option}: there is no {unknown[0]!r}; legal: {', '.join(legal)}")
    return given or legal
