"""What the pages on formulas show is what happens."""

import re
from pathlib import Path

import numpy as np
import pytest

from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference/stl.md").read_text()
SCHEMA = load_robot("crazyflie").signals


def run(page, **scope):
    """The names that a page's Python has made, block after block."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "reference" / page).read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(block, scope)
    return scope


def test_the_python_of_the_language_page_runs():
    scope = run("stl.md", signals={n: np.ones((501, 2, *s.shape)) for n, s in SCHEMA.items()})
    assert scope["values"][0] == pytest.approx([0.1 - 1.0] * 2)  # (1, 1, 1) is 1 m from a


def test_the_python_of_the_page_on_scoring_runs():
    scope = run("stl-robustness.md")
    assert scope["values"].shape == (151, 64) and not scope["judged"].any()


def test_links_between_the_pages_lead_somewhere():
    pages = sorted(DOCS.rglob("stl*.md"))
    links = {(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())}
    assert links and all((page.parent / link).is_file() for page, link in links)


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
