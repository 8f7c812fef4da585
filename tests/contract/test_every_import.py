"""Every import of the project's own modules, also one inside a function, names a module and a name that are there.

Files are read as text, which takes a tenth of the time of parsing them; importing them would need ROS 2 and every
simulator. A name that a module's text does not contain cannot be imported from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"temporeal": ROOT / "src" / "temporeal", "temporeal_benchmarks": ROOT / "benchmarks",
            "temporeal_bridge": ROOT / "ros2_ws" / "src" / "temporeal_bridge" / "temporeal_bridge"}
TREES = ("sim", "robots", "policies", "benchmarks", "examples", "launch", "ros2_ws/src/temporeal_bridge", "tests")
OURS = r"(?:temporeal|temporeal_benchmarks|temporeal_bridge)(?:\.\w+)*"
FROM = re.compile(rf"^[ \t]*from ({OURS}) import (\([^)]*\)|[^\n(]*)", re.MULTILINE)
WHOLE = re.compile(rf"^[ \t]*import ({OURS})", re.MULTILINE)


@cache
def text_of(module: str) -> str | None:
    """The text of a module, "" of a folder without ``__init__.py``; None: there is none."""
    package, *parts = module.split(".")
    path = PACKAGES[package].joinpath(*parts)
    for found in (path / "__init__.py", path.parent / f"{path.name}.py"):
        if found.is_file():
            return found.read_text()
    return "" if path.is_dir() else None


@cache
def wrong(module: str, name: str = "") -> bool:
    """Whether ``from module import name`` cannot be."""
    text = text_of(module)
    if text is None or not name:
        return text is None
    return re.search(rf"\b{name}\b", text) is None and text_of(f"{module}.{name}") is None


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import of ours."""
    yield from ((module, "") for module in WHOLE.findall(text))
    for module, names in FROM.findall(text):
        listed = re.sub(r"#[^\n]*", "", names).strip("() \n")
        yield from ((module, found[0]) for part in listed.split(",") if (found := re.findall(r"\w+", part)))


@pytest.mark.parametrize("tree", TREES)
def test_every_import_is_of_something_that_is_there(tree: str) -> None:
    assert [f"{path.relative_to(ROOT)}: {module} {name}" for path in sorted((ROOT / tree).rglob("*.py"))
            for module, name in imported(path.read_text()) if wrong(module, name)] == []


def test_what_is_not_there_is_found() -> None:
    some = "    from temporeal.policies.runs.graphs import (\n  load_graph,  # as\n  b as c)\nimport temporeal.sim.no"
    assert list(imported(some)) == [("temporeal.sim.no", ""), ("temporeal.policies.runs.graphs", "load_graph"),
                                    ("temporeal.policies.runs.graphs", "b")]
    assert all(wrong(*one) for one in imported(some)) and wrong("temporeal.policies.runs.errors", "Nothing")
    assert not wrong("temporeal.policies.runs.errors", "BadInput") and not wrong("temporeal.policies.runs", "errors")
