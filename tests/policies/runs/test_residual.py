"""Runs that correct a base: trained, resumed, judged beside it, exported with it; what does not fit is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.data.test_views import flown
from tests.policies.runs import test_pretrained

from temporeal.policies.evaluate.pairs import Pairs, paired
from temporeal.policies.pretrained.client import Server, Where
from temporeal.policies.runs import environments, offline
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
from temporeal.policies.runs.exporting import export_run
from temporeal.policies.runs.residual.copies import DIGEST, keep
from temporeal.policies.runs.residual.opening import open_base
from temporeal.policies.runs.run_folders import run_folder
from temporeal.policies.runs.settings.compose import compose, override
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.trained import load_trained, trained_policy
from temporeal.policies.runs.training import train

TASK = ["task=hover"]
STEPS = 20  # of an episode, that are compared
PPO = ["algo=ppo", "num_worlds=4", "algo.rollout_steps=8", "algo.minibatches=2", "algo.actor_hidden=[8]",
       "algo.critic_hidden=[8]", "algo.total_steps=64", "algo.threads=1"]


def settings_of(out: Path, *words: str) -> Settings:
    """Of a small run, which is not worth compiling its worlds."""
    return {**compose([*TASK, *PPO, f"out={out}", *words]), "compiled": False}


class Bases(dict[str, Path]):
    """Runs of single commands and of chunks on ``hover``, and their artifacts, made where they are asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = self.folder / name
        if name.endswith("_artifact"):
            export_run(self[name.removesuffix("_artifact")], self[name])
        elif name == "ppo":
            train(settings_of(self[name]), quiet=True)
        else:
            flown(self.folder / "set")
            found = offline.settings_of([
                *TASK, f"dataset={self.folder / 'set'}", "algo=flow", "algo.updates=2", "algo.batch=4",
                "algo.horizon=4", "algo.execute=3", "algo.hidden=[8]", "algo.context=8", "algo.evaluate_updates=0",
                f"out={self[name]}"])
            train({**found, "compiled": False}, quiet=True)
        return self[name]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    """Of all tests here."""
    return Bases(tmp_path_factory.mktemp("bases"))


def commands(folder: Path, *words: str, worlds: int = 3) -> np.ndarray:
    """What a policy commands in fresh episodes."""
    trained = load_trained(folder)
    settings = override(trained.settings, words)
    policy = trained_policy(trained, settings, environments.make_task(settings))
    env = environments.make_env({**settings, "compiled": False}, task=policy.task, num_worlds=worlds, seed=77)
    act, obs, found = policy.act(env), env.reset(), list[np.ndarray]()
    with torch.no_grad():
        for _ in range(STEPS):
            obs = env.step(act(obs.actor)).obs
            found.append(env.command.numpy().copy())
    return np.stack(found)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", [
    *(pytest.param(name, marks=SLOW) for name in ("ppo", "flow", "ppo_artifact", "flow_artifact")), "scripted"])
def test_scale_0_is_the_base_bit_for_bit_and_an_artifact_is_the_run(
    name: str, bases: Bases, tmp_path: Path
) -> None:
    word = "base.expert=scripted" if name == "scripted" else f"base.policy={bases[name]}"
    run = tmp_path / "run"
    train(settings_of(run, word), quiet=True)
    alone = commands(run, "base.scale=0")
    if name != "scripted":
        np.testing.assert_array_equal(alone, commands(bases[name]))
    corrected = commands(run)
    assert not np.array_equal(alone, corrected)
    if name == "scripted":
        with pytest.raises(BadInput, match="no graph that an artifact could hold. Let a policy learn from both"):
            export_run(run, tmp_path / "artifact")
        return
    made = export_run(run, tmp_path / "artifact")
    assert made.manifest.chunk is None and not any(each.name == "base_command" for each in made.manifest.signals)
    np.testing.assert_allclose(commands(tmp_path / "artifact")[:10], corrected[:10], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "flow", "ppo_artifact"])
def test_an_artifact_at_scale_0_commands_what_the_bases_artifact_does(
    name: str, bases: Bases, tmp_path: Path
) -> None:
    run, base = tmp_path / "run", bases[name.removesuffix("_artifact") + "_artifact"]
    train(settings_of(run, f"base.policy={bases[name]}", "base.scale=0.0"), quiet=True)
    export_run(run, tmp_path / "artifact")
    np.testing.assert_array_equal(commands(tmp_path / "artifact"), commands(base))


@pytest.mark.slow
def test_training_begins_as_the_base_and_resumes_bit_for_bit(bases: Bases, tmp_path: Path) -> None:
    words = [f"base.policy={bases['flow']}", "base.reward=sparse"]
    first = settings_of(tmp_path / "first", *words, "algo.learning_rate=1e-30", "algo.schedule=constant")
    train(first, quiet=True)
    np.testing.assert_array_equal(commands(tmp_path / "first"), commands(bases["flow"]))
    whole = train(settings_of(tmp_path / "whole", *words, "algo.total_steps=128"), quiet=True)
    half = settings_of(tmp_path / "half", *words)
    train(half, quiet=True)
    again = train({**half, "algo": {**half["algo"], "total_steps": 128}, "resume": True}, quiet=True)
    timed = ("seconds", "eta", "rate", "fraction", "collect", "elapsed")
    kept = [{k: v for k, v in each.figures.items() if not any(word in k for word in timed)} for each in (whole, again)]
    assert kept[0] == kept[1]
    np.testing.assert_array_equal(commands(tmp_path / "whole"), commands(tmp_path / "half"))


@pytest.mark.slow
def test_a_learner_from_replay_corrects_and_is_judged_with_its_base(bases: Bases, tmp_path: Path) -> None:
    words = ["algo=td3", "num_worlds=4", "algo.total_steps=48", "algo.warmup=16", "algo.hidden=[8]", "algo.batch=16",
             "algo.report_steps=48", "algo.critics=2", "algo.evaluate_steps=48", "algo.evaluate_episodes=2"]
    settings = {**compose([*TASK, *words, f"base.policy={bases['ppo']}", f"out={tmp_path / 'run'}"]), "compiled": False}
    done = train(settings, quiet=True)
    assert 0.0 <= done.figures["evaluated_success"] <= 1.0
    found = load_trained(done.folder)
    judged = evaluate_on(found, found.settings, "quadrotor", EvaluationConfig(episodes=3))
    assert judged.pairs is not None
    counts = judged.pairs
    assert counts.both + counts.fixed + counts.broken + counts.neither == 3
    assert counts.both + counts.fixed == judged.evaluation.satisfied.successes


def test_pairs_by_hand() -> None:
    policy, base = np.array([1, 1, 0, 0, 1]), np.array([1, 0, 1, 0, 0])
    assert paired(policy, base) == Pairs(both=1, fixed=2, broken=1, neither=1)
    assert paired(policy, base).said() == "base alone 2 of 5; fixed 2, broken 1"


@pytest.mark.parametrize(("words", "told"), [
    (["base.policy=nowhere"], "base.policy=nowhere is not there"),
    (["base.policy={ppo}", "base.expert=scripted"], "one base is corrected, not 2: base.policy and base.expert"),
    (["base.expert=human"], "base.expert=human: scripted, the task's controller by hand"),
    (["base.policy={ppo}", "base.reward=fun"], "base.reward=fun: one of task, sparse, formula"),
    (["base.policy={ppo}", "base.scale=3.0"], "base.scale=3.0: from 0 to 2"),
    (["base.policy={flow}", "base.execute=9"], "base.execute is from 1 to 4"),
    (["base.policy={ppo}", "algo=tgpo"], "base with algo=tgpo: TGPO learns which schedule .*Train algo=tgpo alone"),
    (["base.model=somewhere"], "base.expert=served, base.model and base.map belong together"),
    (["base.expert=served"], "base.expert=served: say which model"),
    (["algo=resip"], "algo=resip corrects a base, and there is none: base.policy=RUN, or base.expert=scripted"),
    (["algo=resfit"], "algo=resfit corrects a base, and there is none"),
    (["algo=resfit", "base.expert=scripted"],
     r"base.reward=task with algo.value_range=\[0.0, 1.0\]: .* base.reward=sparse"),
    (["algo=resfit", "base.expert=scripted", "base.reward=formula"], "base.reward=formula with algo.value_range")])
def test_what_does_not_go_is_refused(
    words: list[str], told: str, bases: Bases, tmp_path: Path
) -> None:
    words = [word.format_map(bases) for word in words]
    with pytest.raises(BadInput, match=told):
        train({**compose([*TASK, *words, f"out={tmp_path / 'run'}", "num_worlds=4"]), "compiled": False}, quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_residual_has_a_folder_of_its_own(bases: Bases, tmp_path: Path) -> None:
    base, before = bases["ppo"], sorted(bases["ppo"].rglob("*"))
    (tmp_path / "link").symlink_to(base)
    for out in (base, base / "residual", base.parent, tmp_path / "link"):
        with pytest.raises(BadInput, match="is the folder of base.policy=.*, or one inside the other.*out=<folder>"):
            train(settings_of(out, f"base.policy={base}"), overwrite=True, quiet=True)
    assert sorted(base.rglob("*")) == before
    titles = {words: str(run_folder(compose([*TASK, *words]))) for words in (
        ("algo=resip", f"base.policy={base}"), ("algo=resfit", "base.expert=scripted"), ("algo=ppo",),
        ("algo=td3", "base.expert=scripted"), ("algo=rlpd",))}
    assert list(titles.values()) == [f"outputs/train/hover-{name}-1" for name in (
        "resip", "resfit", "ppo", "td3", "sac")]
    kept = override(compose([*TASK, "algo=resip", f"base.policy={base}"]), ["algo=sac"])
    assert str(run_folder(kept)) == "outputs/train/hover-sac-1"


def test_another_task_robot_or_rate_is_refused_by_name(bases: Bases) -> None:
    def refused(name: str, *words: str) -> str:
        settings: Any = compose([*words, f"base.policy={bases[name]}"])
        with pytest.raises(BadInput) as error:
            open_base(settings, environments.make_task(settings))
        return str(error.value)

    told = refused("ppo", "task=joint_target")
    assert all(part in told for part in (
        "task hover, here joint_target", "robot crazyflie, here franka", "command", "rate", "observation of"))
    assert "rate" in refused("flow", "task=hover", "task.settings.control_dt=0.02")
    assert "Hz" in refused("ppo_artifact", "task=hover", "task.settings.control_dt=0.02")


def test_a_base_whose_weights_changed_or_whose_trace_fails_is_refused(bases: Bases, tmp_path: Path) -> None:
    from temporeal.policies.training import checkpoint

    run, word = tmp_path / "run", f"base.policy={bases['ppo']}"
    train(settings_of(run, word), quiet=True)
    file = checkpoint.latest(run / "base" / "checkpoints", 0, 1)
    state = checkpoint.load(file)
    state["normalizer"]["shift"] += 1.0
    checkpoint.save(file, state)
    noted = (run / "base" / DIGEST).read_text()
    for again in (lambda: commands(run), lambda: train({**settings_of(run, word), "resume": True}, quiet=True)):
        with pytest.raises(BadInput, match="the weights or the normalization of its base"):
            again()
        assert (run / "base" / DIGEST).read_text() == noted
    with pytest.raises(BadInput, match="the weights or the normalization of its base"):
        keep(open_base(settings_of(run, word), environments.make_task(settings_of(run)), run), run)
    shutil.rmtree(run / "base")  # the original is no substitute for the copy
    with pytest.raises(BadInput, match="the copy of its base, .* is not there"):
        train({**settings_of(run, word), "resume": True}, quiet=True)
    broken = tmp_path / "broken"
    broken.mkdir()
    for each in bases["ppo_artifact"].iterdir():
        (broken / each.name).write_bytes(each.read_bytes())
    (broken / "golden.npz").write_bytes((broken / "policy.onnx").read_bytes())
    with pytest.raises(BadInput, match="golden.npz"):
        train(settings_of(tmp_path / "other", f"base.policy={broken}"), quiet=True)


@pytest.mark.slow
def test_the_copy_of_the_base_is_all_that_a_run_needs(bases: Bases, tmp_path: Path) -> None:
    base = tmp_path / "base"
    train(settings_of(base), quiet=True)
    train(settings_of(tmp_path / "run", f"base.policy={base}"), quiet=True)
    for file in sorted(base.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    first = commands(tmp_path / "run")
    train(settings_of(tmp_path / "second", f"base.policy={tmp_path / 'run'}"), quiet=True)  # a residual of a residual
    np.testing.assert_array_equal(commands(tmp_path / "second", "base.scale=0"), first)
    assert torch.isfinite(torch.from_numpy(commands(tmp_path / "second"))).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flow", "scripted"])
def test_base_and_residual_teach_one_policy(name: str, bases: Bases, tmp_path: Path) -> None:
    word = "base.expert=scripted" if name == "scripted" else f"base.policy={bases[name]}"
    train(settings_of(tmp_path / "run", word), quiet=True)
    words = ["algo=dagger", f"algo.expert={tmp_path / 'run'}", "algo.updates=4", "algo.round_updates=2",
             "algo.hidden=[8]", "algo.batch=8", "num_worlds=2", f"out={tmp_path / 'student'}"]
    train({**compose([*TASK, *words]), "compiled": False}, quiet=True)
    assert np.isfinite(commands(tmp_path / "student")).all()
    assert export_run(tmp_path / "student", tmp_path / "artifact").manifest.memory is not None


@pytest.mark.slow
def test_episodes_of_base_and_residual_are_a_dataset(bases: Bases, tmp_path: Path) -> None:
    from temporeal.policies.runs.demonstrating import demonstrations

    train(settings_of(tmp_path / "run", f"base.policy={bases['flow']}"), quiet=True)
    request = demonstrations.request_of([*TASK, f"expert={tmp_path / 'run'}", "episodes=2", f"out={tmp_path / 'set'}"])
    assert demonstrations.generate(request).episodes == 2


@pytest.mark.slow
def test_a_pretrained_model_that_is_served_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once each three steps; a run that was handed over names no model."""
    monkeypatch.setattr(Server, "start", staticmethod(test_pretrained.in_a_thread(test_pretrained.Still())))
    monkeypatch.setattr("temporeal.policies.runs.pretrained.serving.where", lambda served: Where("python"))
    folder = test_pretrained.folder.__wrapped__(tmp_path)
    words = ["base.expert=served", f"base.model={folder}", f"base.map={test_pretrained.mapping.__wrapped__(tmp_path)}"]
    made = {**compose(["task=reach", *PPO, *words, f"out={tmp_path / 'run'}"]), "compiled": False}
    train(made, quiet=True)
    with pytest.warns(UserWarning, match="its setting base.model, .* is left out; give base.model=... yourself"):
        with pytest.raises(BadInput, match="base.expert=served: say which model"):
            commands(tmp_path / "run")
    with pytest.warns(UserWarning, match="base.map"):
        assert np.isfinite(commands(tmp_path / "run", *words[1:])).all()
