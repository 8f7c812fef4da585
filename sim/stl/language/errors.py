"""The error that a formula raises, and how deeply formulas may be nested. Standard library only."""

from __future__ import annotations

MAX_DEPTH = 100
"""Nested formulas, predicates included, that the parser, `serialization.from_json` and `queries.check_depth` accept."""
MAX_LEVELS = 200
"""Nested nodes, arithmetic included: a sum of n terms has n levels. Recursion this deep fits Python's stack."""
TOO_DEEP = f"nested too deeply: more than {MAX_DEPTH} levels, or {MAX_LEVELS} with those of arithmetic (one each term)"

WIDTH = 200
"""Characters of a line that an error shows around the error's place."""


class FormulaError(ValueError):
    """A formula breaks a rule. The message shows the text with a caret under the place, the rule and the legal names.

    ``rule`` is the rule alone. ``text``, ``start`` and ``end`` give the place as offsets; ``start == end`` is a point.
    """

    def __init__(self, rule: str, text: str = "", start: int = 0, end: int = 0, legal: str = "") -> None:
        self.rule, self.text, self.start, self.end, self.legal = rule, text, start, end, legal
        super().__init__("\n".join([rule, *excerpt(text, start, end), *([legal] if legal else [])]))


def excerpt(text: str, start: int, end: int) -> list[str]:
    """The line of ``text`` around ``start``, cut to :data:`WIDTH`, and a line with carets below start .. end."""
    if not text:
        return []
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    last = len(text) if last < 0 else last
    number = f"{text.count(chr(10), 0, start) + 1}:{start - first + 1}"
    shown = (first, last) if last - first <= WIDTH else (max(first, start - WIDTH // 2), min(last, start + WIDTH // 2))
    more = ["..." if cut else "" for cut in (shown[0] > first, shown[1] < last)]
    marked = max(1, min(end, shown[1]) - start)
    line = more[0] + text[slice(*shown)] + more[1]
    # a tab stays a tab in the caret's line: its width on the screen is unknown
    blank = "".join("\t" if c == "\t" else " " for c in line[: len(more[0]) + start - shown[0]])
    return [f"  {number} | {line}", f"  {' ' * len(number)} | {blank}{'^' * marked}"]
