"""Generated sets: the same words give the same numbers, metadata says what was reached, the task sees what it saw."""

import json

import numpy as np
import pytest
import torch

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.views import task_view, transitions
from temporeal.policies.runs import environments
from temporeal.policies.runs.demonstrating.demonstrations import generate, request_of
from temporeal.policies.runs.errors import BadInput

MISSION = ["task=waypoints", "randomize=none", "threads=1", "seed=3"]


def made(folder, *words):
    return generate(request_of([*MISSION, *words, f"out={folder}"])), Dataset.open(folder)


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    return made(tmp_path_factory.mktemp("sets") / "expert", "quality=expert", "episodes=4")


def test_what_was_reached_is_returned_and_stored(expert):
    done, dataset = expert
    assert done.episodes == dataset.episodes == 4 and done.steps == dataset.samples - 4
    assert done.success.estimate == 1.0 and all(record.success for record in dataset.records)
    told = dataset.interface.about["generated"]
    assert told["success"] == 1.0 and told["quality"] == "expert" and told["success_low"] == done.success.low
    assert dataset.records[0].language == "fly to A, then to B, then stay at C"
    assert dataset.interface.about["settings"]["task"]["name"] == "waypoints"


@pytest.mark.slow
def test_the_same_words_give_the_same_numbers_and_another_seed_others(expert, tmp_path):
    _, first = expert
    _, again = made(tmp_path / "again", "quality=expert", "episodes=4")
    _, other = made(tmp_path / "other", "quality=expert", "episodes=4", "seed=4")
    for name in first.columns:
        np.testing.assert_array_equal(first.column(name), again.column(name))
    assert not np.array_equal(first.column("base_pos_w")[:10], other.column("base_pos_w")[:10])


def test_the_task_sees_in_the_set_what_its_policy_saw(expert):
    """The observation map, its memory included, makes of the stored signals and actions what the environment showed."""
    _, dataset = expert
    settings = request_of([*MISSION, "episodes=4", "out=there"]).settings
    seen = transitions(dataset, task_view(environments.make_task(settings)))
    env = environments.make_env(settings, num_worlds=4)
    obs = env.reset()
    first = [int(start) for start in seen.starts[:-1]]
    torch.testing.assert_close(seen.obs[first], obs.actor, atol=1e-5, rtol=1e-5)
    for k in range(20):
        step = env.step(torch.stack([seen.action[start + k] for start in first]))
        torch.testing.assert_close(torch.stack([seen.next_obs[start + k] for start in first]), step.obs.actor,
                                   atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_what_the_noise_of_noisy_does_is_seen_and_not_what_it_was(tmp_path):
    _, dataset = made(tmp_path / "noisy", "quality=noisy", "episodes=2")
    settings = request_of([*MISSION, "episodes=2", "out=there"]).settings
    env = environments.make_env(settings, num_worlds=2)
    env.reset()
    starts = dataset.starts[:-1]
    for k in range(20):
        step = env.step(torch.as_tensor(dataset.column("policy_action")[starts + k]))
    np.testing.assert_array_less(1e-3, np.abs(
        dataset.column("base_pos_w")[starts + 20] - step.info["signals"]["base_pos_w"].numpy()).max(-1))


@pytest.mark.slow
def test_mixed_is_a_third_each_and_sums_up(tmp_path):
    done, dataset = made(tmp_path / "mixed", "quality=mixed", "severity=0.3", "episodes=7")
    assert [r.info["quality"] for r in dataset.records] == ["expert"] * 2 + ["medium"] * 2 + ["random"] * 3
    assert done.success.trials == 7 and not any(r.success for r in dataset.records[-3:])
    assert all(record.terminated for record in dataset.records[-3:])  # random flight crashes


@pytest.mark.slow
def test_measured_and_true_signals_where_sensors_err(tmp_path):
    _, dataset = made(tmp_path / "measured", "randomize=default", "episodes=2")
    measured, true = dataset.column("base_pos_w"), dataset.column("true_base_pos_w")
    off = np.abs(measured - true).max(-1)
    assert 1e-4 < np.median(off) < 0.1
    assert {"height", "true_height", "base_vel_w"} <= set(dataset.signals) and "true_base_vel_w" not in dataset.signals


def test_a_set_is_found_again_by_its_learner(expert):
    from temporeal.policies.runs.offline import settings_of

    _, dataset = expert
    found = settings_of([f"dataset={dataset.folder}", "algo=bc"])
    assert found["task"]["name"] == "waypoints" and found["randomize"]["name"] == "none"


@pytest.mark.parametrize(("words", "said"), [
    (["quality=great"], "quality=great: legal are expert, medium"),
    (["episodes=0"], "episodes=0: a whole number from 1"),
    (["severity=2"], "severity=2: a number from 0 to 1, or auto"),
    (["quality=noisy", "noise=2"], "noise=2: a number from 0 to 1$"),
    (["quality=medium", "noise=0.5"], "noise=0.5: of quality=noisy, this is medium"),
    (["lasts=0.1"], "lasts=0.1: of the noise of quality=noisy"),
    (["tail=10"], "tail=10: the formula of task waypoints reads no signal success"),
    (["quality=play"], "has no goals that are drawn"),
    (["expert=nowhere"], "nowhere is not a run"),
    (["expert=scripted,run"], "expert=scripted,run: scripted, or folders of runs"),
    (["expert=run,"], "the best one first"),
    (["expert=run,other"], "several experts are for quality=medium and mixed; quality=expert is by one"),
])
def test_what_cannot_be_generated_is_named(words, said, tmp_path):
    with pytest.raises(BadInput, match=said):
        generate(request_of([*MISSION, *words, f"out={tmp_path / 'x'}"]))


def test_a_folder_is_needed_and_never_overwritten(expert):
    with pytest.raises(BadInput, match="out=FOLDER is needed"):
        request_of(MISSION)
    with pytest.raises(BadInput, match="is not empty"):
        generate(request_of([*MISSION, f"out={expert[1].folder}"]))


def test_the_metadata_stays_readable_by_its_hash(expert):
    _, dataset = expert
    told = json.loads((dataset.folder / "meta" / "temporeal.json").read_text())
    assert told["digest"] == dataset.interface.digest()
