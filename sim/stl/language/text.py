"""Numbers, keywords and names as a formula's text writes them. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping


def number_text(x: float) -> str:
    """The shortest text that reads back as ``x``."""
    return repr(float(x)).removesuffix(".0")


WORDS: Mapping[str, str] = {
    word: terminal for terminal, words in {
        "ALWAYS": "G always", "EVENTUALLY": "F eventually", "HISTORICALLY": "H historically", "ONCE": "O once",
        "UNTIL": "U until", "RELEASE": "R release", "WEAK": "W unless weak_until", "SINCE": "S since",
        "NEXT": "X next sX s_next", "PREVIOUS": "Y prev previous sY s_prev", "NOT": "not", "AND": "and", "OR": "or",
        "IMPLIES": "implies", "IFF": "iff", "XOR": "xor", "TRUE": "true", "FALSE": "false",
        "TYPE": "float int long complex"}.items() for word in words.split()}
"""Keywords and their terminals in the grammar. A signal with such a name is written in quotes; nothing else may have
one."""
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


def name_text(name: str) -> str:
    """A signal's name in a text: quoted where it is a keyword or no identifier."""
    return name if _PLAIN_NAME.fullmatch(name) and name not in WORDS else f'"{name}"'
