"""The script of docs/how-to/adding-a-picture.md trains, exports and tests an artifact that reads a picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from temporeal.robots.artifact.manifest import MANIFEST

PAGE = (Path(__file__).parents[3] / "docs/how-to/adding-a-picture.md").read_text(encoding="utf-8")


def test_the_script_of_the_page_writes_an_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("stable_baselines3")
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    for long, short in (("learn(20_000)", "learn(8)"), ('"hover", 16', '"hover", 2'), ("n_steps=32", "n_steps=4"),
                        ("batch_size=128", "batch_size=8"), ("steps=50", "steps=5")):
        assert long in text
        text = text.replace(long, short)
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "docs/how-to/adding-a-picture.md", "exec"), {"__name__": "__main__"})
    assert "SelfTest" in capsys.readouterr().out and (tmp_path / "seeing" / MANIFEST).is_file()
