"""Two policies on the same episodes: which succeed with both, and what one repairs or breaks of the other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Pairs:
    """Episodes of a policy and of its base from the same starts.

    Args:
        both, neither: episodes that succeed with both, with neither.
        fixed: with the policy alone. broken: with the base alone.
    """

    both: int
    fixed: int
    broken: int
    neither: int

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``satisfied``: by the base."""
        return {"satisfied": self.both + self.broken, **asdict(self)}

    def said(self) -> str:
        """In words."""
        count = self.both + self.fixed + self.broken + self.neither
        return f"base alone {self.both + self.broken} of {count}; fixed {self.fixed}, broken {self.broken}"


def paired(policy: np.ndarray, base: np.ndarray) -> Pairs:
    """Of the verdicts [E] of both."""
    policy, base = policy.astype(bool), base.astype(bool)
    return Pairs(both=int((policy & base).sum()), fixed=int((policy & ~base).sum()),
                 broken=int((~policy & base).sum()), neither=int((~policy & ~base).sum()))
