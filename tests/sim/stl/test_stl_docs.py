"""What docs/stl.md shows is what happens."""

import re
from pathlib import Path

import numpy as np
import pytest

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
