"""The command's frame: help is quick and worth reading, errors name the legal choices, exit status means something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from temporeal.policies.cli.main import load_verb, main, usage, verb_names

SLOW_IMPORTS = ("torch", "hydra", "numba", "matplotlib", "mujoco", "onnxruntime", "cyclonedds", "scipy", "numpy")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([verb, "--help"] for verb in verb_names())])
def test_help_imports_nothing_slow(arguments: list[str]) -> None:
    code = (
        "import sys; from temporeal.policies.cli.main import main\n"
        f"main({arguments!r})\n"
        f"print('LOADED', [m for m in {SLOW_IMPORTS!r} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout
    assert out.splitlines()[-1] == "LOADED []"


def test_spec_check_needs_neither_a_learner_nor_a_simulator(tmp_path: Path) -> None:
    """`spec` is installed alone (extra ``spec``) and answers in less than a second."""
    (tmp_path / "spec.yaml").write_text("signals: {x: {shape: []}}\nformula: G[0,1] x > 0\n", encoding="utf-8")
    (tmp_path / "trace.csv").write_text("t,x\n0,1\n0.5,1\n1,1\n", encoding="utf-8")
    arguments = ["spec", "check", str(tmp_path / "spec.yaml"), str(tmp_path / "trace.csv")]
    slow = set(SLOW_IMPORTS) - {"numpy"}
    code = (
        "import sys; from temporeal.policies.cli.main import main\n"
        f"code = main({arguments!r})\n"
        f"print('LOADED', code, sorted(m for m in {slow!r} if m in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert out.stdout.splitlines()[-1] == "LOADED 0 []", out.stdout + out.stderr


def test_help_lists_every_verb_with_its_summary() -> None:
    text = usage()
    for verb in verb_names():
        assert f"  {verb} " in text
        assert load_verb(verb).SUMMARY in text
    assert {"doctor", "train", "bench", "completion"} <= set(verb_names())


@pytest.mark.parametrize("verb", verb_names())
def test_every_verb_explains_itself_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = load_verb(verb)
    assert "\n" not in module.SUMMARY
    assert len(module.SUMMARY) <= 80
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"usage: temporeal {verb}" in shown
    assert f"temporeal {verb}" in shown.partition("Example:")[2], "the help needs a part 'Example:' with this verb"


def test_help_of_a_verb_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "bench"]) == 0
    first = capsys.readouterr().out
    assert main(["bench", "--help"]) == 0
    assert capsys.readouterr().out == first


def test_unknown_verb_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    told = capsys.readouterr().err
    assert "'trian'" in told
    assert "did you mean 'train'?" in told
    assert all(verb in told for verb in verb_names())


def test_no_verb_shows_the_help_and_is_not_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: temporeal" in capsys.readouterr().out


PARTS = {"robot": ["list"], "pretrained": ["install"]}  # whose options depend on the part


@pytest.mark.parametrize("verb", verb_names())
def test_unknown_option_is_one_line_and_status_2(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [verb, *PARTS.get(verb, ["word"])]
    assert main([*words, "--no-such-option"]) == 2
    told = capsys.readouterr().err
    assert "--no-such-option" in told
    assert f"temporeal {' '.join(words) if verb in PARTS else verb} --help" in told
    assert "Traceback" not in told


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(argv: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(load_verb("bench"), "run", interrupted)
    assert main(["bench"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_closed_pipe_is_silent() -> None:
    code = "import sys; from temporeal.policies.cli.main import main; sys.exit(main(['--help']))"
    line = f"{sys.executable} -c \"{code}\" | true"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
