"""From text to a syntax tree, and what an error says where the text breaks the grammar.

The grammar is in ``grammar.lark``; the binding of operators is in :data:`INFIX` and :data:`PREFIX`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.text import WORDS

# a higher number binds tighter; operators of one number group to the left
INFIX: Mapping[str, int] = {
    "XOR": 1, "IFF": 2, "IMPLIES": 3, "OR": 4, "AND": 5, "SINCE": 6, "WEAK": 7, "RELEASE": 8, "UNTIL": 8,
    "COMPARE": 10, "PLUS": 11, "MINUS": 11, "TIMES": 12, "OVER": 12}
PREFIX: Mapping[str, int] = {
    "NOT": 9, "NEXT": 9, "PREVIOUS": 9, "ALWAYS": 9, "EVENTUALLY": 9, "HISTORICALLY": 9, "ONCE": 9, "MINUS": 13}
MAX_TEXT = 1_000_000
"""Characters of a text, at most."""


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    # the basic lexer does not look at the context: a keyword is one everywhere
    words = {"REFERENCE": _keyword}
    return Lark(grammar, parser="lalr", lexer="basic", maybe_placeholders=False, lexer_callbacks=words)


def _keyword(token: Token) -> Token:
    terminal = WORDS.get(token)
    return token if terminal is None else token.update(type=terminal)


def syntax_tree(text: str) -> Tree[Token]:
    """The tree of ``text``; a :class:`FormulaError` at its first error."""
    if not isinstance(text, str):
        raise FormulaError(f"a formula is read from text, got {type(text).__name__}")
    if not text.strip():
        raise FormulaError("the formula is empty")
    if len(text) > MAX_TEXT:
        raise FormulaError(f"the formula is too large: {len(text)} characters, and at most {MAX_TEXT} are read")
    try:
        return _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None


def tokens(tree: Tree[Token]) -> Iterator[Token]:
    """The tokens of a tree from left to right."""
    return tree.scan_values(lambda _: True)


# ---------------------------------------------------------------- errors

# what may follow an operand besides an operator
_CLOSING = {"RPAR": ")", "RSQB": "]", "COMMA": ",", "COLON": ":", "$END": "the end"}
_OPENING = {"REFERENCE": "a name or a number", "LPAR": "(", "ASSIGN": "=", "TYPE": "float or int"}


def _syntax_error(text: str, error: UnexpectedInput) -> FormulaError:
    if isinstance(error, UnexpectedCharacters):
        at = error.pos_in_stream or 0
        if text[at] == '"':
            return FormulaError('a name in quotes ends with a quote in its line', text, at, at + 1)
        return FormulaError(f"unexpected character {text[at]!r}", text, at, at + 1)
    assert isinstance(error, UnexpectedToken)
    token, accepts = error.token, error.accepts
    early = token.type == "$END"
    at = len(text.rstrip()) if early else token.start_pos or 0
    before = re.search(r"(?<![\w.])(\w+)\s*$", text[:at])
    if before and before[1] in WORDS and "REFERENCE" in accepts and token.type in ("$END", "RPAR", *INFIX):
        rule = f"{before[1]!r} is a keyword, not a name, and needs a formula after it; {_quoted(before[1])}"
        return FormulaError(rule, text, before.start(1), before.end(1))
    if early:
        return FormulaError(f"the formula ends too early; expected {_expected(accepts)}", text, at, at)
    rule = f"unexpected {str(token)!r}; expected {_expected(accepts)}"
    if str(token) in WORDS and "REFERENCE" in accepts:
        rule = f"{str(token)!r} is a keyword, not a name; {_quoted(token)}"
    elif token.type == "ASSIGN":
        rule = "= gives a name to a formula; write == to compare"
    return FormulaError(rule, text, at, at + len(token))


def _quoted(word: str) -> str:
    return f'a signal of that name is written "{word}"'


def _expected(accepts: Any) -> str:
    closing = [text for name, text in _CLOSING.items() if name in accepts]
    if "COLON" in accepts:  # the middle of a window
        closing = [",", ":"]
    if closing:
        return " or ".join(["an operator", *closing])
    return " or ".join(text for name, text in _OPENING.items() if name in accepts) or "something else"
