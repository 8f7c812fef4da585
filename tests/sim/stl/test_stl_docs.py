"""What docs/stl.md shows is what happens."""

import re
from pathlib import Path

import numpy as np
import pytest

from robots.signals import SignalSpec
from robots.spec import load_robot
from sim.stl.parse import FormulaError, parse

PAGE = (Path(__file__).parents[3] / "docs" / "stl.md").read_text()
SCHEMA = load_robot("crazyflie").signals


def test_the_python_of_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    scope = {"signals": {n: np.ones((501, 2, *s.shape)) for n, s in SCHEMA.items()}}
    for block in blocks:
        exec(block, scope)
    assert len(blocks) == 2
    assert scope["values"][0] == pytest.approx([0.1 - 1.0] * 2)  # (1, 1, 1) is 1 m from a
    assert scope["reading"].verdict == "undecided" and scope["reading"].upper == pytest.approx(0.7)


def test_the_error_of_the_page_is_the_error():
    shown = PAGE.split("## Errors\n\n```\n")[1].split("\n```")[0]
    with pytest.raises(FormulaError) as caught:
        parse("G[0,10] (heihgt > 0.3)", SCHEMA)
    assert str(caught.value) == shown


def test_letters_and_words_of_each_row_of_the_table_are_one_formula():
    schema = {name: SignalSpec(name) for name in "pqr"}
    table = PAGE.split("## Operators")[1].split("## ")[0].replace("[a,b]", "[1,2]")
    rows = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("|")][2:]
    for row in rows:
        texts = re.findall(r"`(.+?)`|<code>(.+?)</code>", " ".join(row))
        assert len({parse((code or html).replace("&#124;", "|"), schema) for code, html in texts}) == 1, row
    assert len(rows) == 18
    for text, same in (("p -> q -> r", "(p -> q) -> r"), ("p R[1,2] q", "!(!p U[1,2] !q)"), ("p xor q", "!(p <-> q)"),
                       ("rise(p)", "p & !s_prev p"), ("fall(p)", "Y p & !p")):
        assert same in table
        if "R" not in text:  # a dual: another formula of the same value
            assert parse(text, schema) == parse(same, schema)


def test_the_named_parts_of_the_page():
    text = PAGE.split("## Parts with names\n\n```\n")[1].split("```")[0]
    constants = {"a": (1, 0, 1), "reach": 0.1}
    whole = parse("F[0,4] G[0,1] (norm(base_pos_w - a) < reach)", SCHEMA, constants)
    assert parse(text, SCHEMA, constants) == whole
