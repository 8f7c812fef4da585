"""The Python of the page on adapters runs, as it stands but for the lengths of its trainings."""

import re
from pathlib import Path

import pytest

from temporeal.policies.cli.main import load_verb, main
from temporeal.robots.artifact.runtime import Artifact

PAGE = (Path(__file__).parents[3] / "docs" / "how-to/other-learners.md").read_text()


@pytest.mark.slow
def test_the_python_of_the_page_runs(monkeypatch, tmp_path):
    from rsl_rl.runners import OnPolicyRunner
    from stable_baselines3 import PPO

    learn_sb3, learn_rsl = PPO.learn, OnPolicyRunner.learn
    monkeypatch.setattr(PPO, "learn", lambda self, steps: learn_sb3(self, min(steps, 2048)))
    monkeypatch.setattr(OnPolicyRunner, "learn", lambda self, steps, **k: learn_rsl(self, min(steps, 2), **k))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 5
    scope = {}
    for block in blocks:
        exec(block, scope)
    for name in ("hover-ppo", "hover-rsl"):
        assert Artifact.load(tmp_path / name).self_test().max_error <= 1e-5
    assert scope["obs"].shape[0] == 256
    assert scope["pictures"]["chase_rgb"].shape == (2, 48, 64, 3) and scope["pictures"]["actor"].shape == (2, 146)


def test_the_commands_of_the_page_are_of_the_command_line(capsys):
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.S)).replace("\\\n", " ")
    lines = [line.split("#")[0].split() for line in shell.splitlines() if line.startswith("temporeal")]
    assert len(lines) == 4
    for _, verb, *words in lines:
        load_verb(verb).parser().parse_intermixed_args(words)
    assert main(["export", "--help"]) == 0
    assert "model.zip task=hover" in capsys.readouterr().out


@pytest.mark.parametrize("name", re.findall(r"from (temporeal\.[\w.]+) import", PAGE))
def test_modules_named_are_there(name):
    __import__(name)
