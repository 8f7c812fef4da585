"""Entailment between formulas without temporal operators, as far as their form shows it."""

from __future__ import annotations

from temporeal.sim.stl.language.propositional import And, Formula, Or


def entails(more: Formula, less: Formula) -> bool:
    """Whether the margin of ``more`` is never above that of ``less``.

    It is not if each conjunct of ``less`` contains all disjuncts of some conjunct of ``more``.
    """
    if more == less:
        return True
    have = [options(part) for part in (more.args if isinstance(more, And) else (more,))]
    return all(any(options <= wanted for options in have)
               for wanted in map(options, less.args if isinstance(less, And) else (less,)))


def options(part: Formula) -> frozenset[Formula]:
    """The disjuncts of ``part``."""
    return frozenset(part.args if isinstance(part, Or) else (part,))
