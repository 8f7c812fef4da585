"""Where learners are: packages whose modules are algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

FROM_DATA = ("temporeal.policies.imitation", "temporeal.policies.offline", "temporeal.policies.progress")
LEARNERS = ("temporeal.policies.algos", "temporeal.policies.any_formula", *FROM_DATA)
"""Their modules have ``train``, and one of ``load_policy``, ``load_graph``, ``load_chunks`` and ``load_progress``."""


def module_gives_chunks(module: ModuleType, algo: Mapping[str, Any]) -> bool:
    """Whether policies of the algorithm ``module`` with the settings ``algo`` give chunks: it has ``load_chunks`` then;
    one whose policies are of both kinds has ``gives_chunks_with``, too, which says so."""
    if hasattr(module, "gives_chunks_with"):
        return bool(module.gives_chunks_with(algo))
    return hasattr(module, "load_chunks")
