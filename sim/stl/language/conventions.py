"""Conventions: what a formula means where the definition of STL leaves a choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from temporeal.sim.stl.language.errors import FormulaError

End = Literal["clip", "strong", "weak"]
Left = Literal["half-open", "closed"]
ENDS, LEFTS = ("clip", "strong", "weak"), ("half-open", "closed")


@dataclass(frozen=True)
class Semantics:
    """The choices; the defaults are rtamt's conventions.

    Args:
        end: what lies past the end of a trace. ``clip``: nothing; a window is cut to the samples that exist, and one
            wholly past the end is empty (G true, F and U false). ``strong``: samples at which every predicate and every
            negated predicate is false, so that nothing beyond the trace can satisfy. ``weak``: samples at which each is
            true, so that nothing beyond the trace can violate. (Strong and weak views: Eisner et al., "Reasoning with
            temporal logic on truncated paths", CAV 2003.)
        until: ``half-open``: ``p U q`` requires p up to the sample before q; ``closed``: also at the sample of q.
    """

    end: End = "clip"
    until: Left = "half-open"

    def __post_init__(self) -> None:
        for name, legal in (("end", ENDS), ("until", LEFTS)):
            if getattr(self, name) not in legal:
                raise FormulaError(f"semantics {name}={getattr(self, name)!r}; legal: {', '.join(legal)}")


RTAMT = Semantics()
