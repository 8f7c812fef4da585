"""What a bag names is looked for beside it and below the working directory only: there the tests' artifacts are."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def above_the_artifacts(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.chdir(tmp_path_factory.getbasetemp())
