"""README, CITATION and the pages keep their promises; that links and paths exist is checked by `make docs`."""

from __future__ import annotations

import configparser
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if "notes" not in path.parts)
USER_PAGES = [page for page in PAGES if page.name not in ("results.md",) and "api" not in page.parts]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """The site's checks."""
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("site_checks", ROOT / ".ci/site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_is_short_and_shows_something() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200 and len(text.split()) <= 1200
    assert {"webp", "png"} <= set(re.findall(r"!\[.+?\]\(docs/pictures/\w+\.(\w+)\)", text))


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert {"cff-version", "message", "title", "authors"} <= cited.keys() and cited["cff-version"] == "1.2.0"
    assert (str(cited["version"]), cited["license"]) == (setup["metadata"]["version"], setup["metadata"]["license"])


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: page.stem)
def test_a_page_is_no_book(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= 2000


def test_what_does_not_exist_is_found(site: ModuleType) -> None:
    assert site.missing("`sim/tasks/hover.py`, `sim/tasks/`, `sim/tasks/hower.py`") == ["sim/tasks/hower.py"]
    names = "temporeal.sim.task.Task temporeal.sim.tasks temporeal_bridge.guard_node"
    assert site.unknown_names(f"{names} temporeal.sim.tusk") == ["temporeal.sim.tusk"]
    shown = ("```sh\ntemporeal trian task=hover\ntemporeal bench stl\ntemporeal train \\\n  task=hower\n```\n"
             "`temporeal eval RUN --requires 0.9`")
    wrong = site.wrong_commands(shown)
    assert [line.split(":")[0] for line in wrong] == [
        "temporeal trian task=hover", "temporeal train    task=hower", "temporeal eval RUN --requires 0.9"]


def test_links_to_sources_become_paths(site: ModuleType) -> None:
    page = ROOT / "docs/how-to/adding-a-robot.md"
    text, broken = site.to_repository(
        "[`spec.py`](../../robots/franka/spec.py) [x](viewing.md) [y](../../robots/nobody)", page)
    assert text.startswith("`robots/franka/spec.py` [x](viewing.md)") and broken == ["../../robots/nobody"]
