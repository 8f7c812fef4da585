"""Instruction codes of the streaming evaluators, and the columns of their tables."""

from __future__ import annotations

from typing import Any

Table = Any
"""int64 [instructions, COLUMNS], or the same as lists for numpy."""

COLUMNS = 10
COPY, ADD, SUB, MUL, DIV, LEAST, GREATEST, NEG, ABS, SQRT = range(10)
"""Codes of arithmetic."""
LOAD, ARITHMETIC, JOIN, INTO, SINCE, DELAY, SLIDE, FOLD, HOLD, SCAN, OUT = range(11)
"""Codes of a stream's instructions."""
(R_LEAF, R_FIXED, R_JOIN, R_INTO, R_SLIDE, R_HOLD, R_SCAN, R_FOLD,
 P_WINDOW, P_UNTIL, P_SINCE, P_JOIN, P_INTO, P_SHIFT, P_OUT) = range(15)
"""Codes of the bounds' instructions: R for sequences (a node at many samples), P for points (a node at one)."""
BASE, DEPTH, PERIOD, SETTLED, AHEAD, NEED = 0, 1, 2, 3, 4, 6
"""Columns of the table of sequences; the last two are pairs: of lower and of upper bounds."""
RUNNING, CLIP, STRONG, WEAK = range(4)
"""What lies after the newest sample: anything, nothing, or samples at which every literal is false or true."""
FOREVER = 1 << 60
