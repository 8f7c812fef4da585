"""What is exported is imported as it was; files that others wrote are read by their own rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.policies.data.episodes.arm_episodes import ARM, SEEING, assert_same, episode

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.formats import (
    csv_folder,
    flat_npz,
    importing,
    kinds,
    minari,
    robomimic,
    robosuite,
    unit_actions,
)
from temporeal.policies.data.formats.found import strict
from temporeal.policies.data.formats.importing import File

REAL = Path(__file__).with_name("robosuite_lift.hdf5")


@pytest.mark.parametrize("kind", ("robomimic", "minari", "npz"))
@pytest.mark.parametrize("face", (ARM, SEEING), ids=("numbers", "pictures"))
def test_a_set_that_is_exported_and_imported_is_the_same(tmp_path, kind, face):
    episodes = [episode(k, face) for k in range(4)]
    out = tmp_path / ("set.hdf5" if kind == "robomimic" else "set")
    assert kinds.exported(kind, out, face, episodes) == 4
    assert kinds.kind_of(out) == {"npz": "npz-folder"}.get(kind, kind)
    reading = kinds.READERS[kinds.kind_of(out)](out)
    assert reading.interface.digest() == face.digest()
    for found, wanted in zip(strict(reading.episodes), episodes, strict=True):
        assert_same(replace(found, info={"seed": found.info["seed"]}), wanted)


def test_an_export_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(DataError, match="Minari needs the sample after the last command"):
        kinds.exported("minari", tmp_path / "set", ARM, [episode(0, final=False)])
    assert not list(tmp_path.iterdir())


def test_the_set_for_lerobots_policies_has_one_state(tmp_path):
    wanted = episode(0, SEEING)
    kinds.exported("lerobot-state", tmp_path / "set", SEEING, [wanted])
    data = Dataset.open(tmp_path / "set")
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    assert {key for key in info["features"] if key.startswith("observation.")} == {
        "observation.state", "observation.images.front"}
    assert info["features"]["observation.state"]["shape"] == [7 + 1 + 2 + 6]
    found = data.episode(0).signals["state"]
    assert np.array_equal(found[:, :7], wanted.signals["joint_pos"])
    assert np.array_equal(found[:, 10:], wanted.signals["grid"].reshape(len(found), -1))
    assert data.interface.about["state"][7:10] == ["height", "touch.0", "touch.1"]


def test_commands_are_scaled_by_their_limits_and_their_ends_are_one():
    wanted = episode(0)
    face = unit_actions.of_interface(ARM)
    (found,) = unit_actions.scaled([wanted], ARM)
    assert np.allclose(found.action, wanted.action, atol=1e-6)  # the limits are -1 and 1 already
    assert face.action.low == (-1.0,) * 7 and face.about["unit_action"]["high"] == [1.0] * 7


def test_robosuites_own_demonstrations_are_read(tmp_path):
    reading = robosuite.read(REAL)
    face = reading.interface
    assert (face.robot, face.rate_hz, face.simulator) == ("Panda", 20.0, "robosuite 1.4.0")
    assert [(name, spec.shape) for name, spec in face.signals.items()] == [("qpos", (16,)), ("qvel", (15,))]
    assert face.action.size == 7 and "robosuite clips them" in reading.notes[0]
    episodes = list(strict(reading.episodes))
    assert [(each.samples, each.steps) for each in episodes] == [(20, 20), (20, 20)]
    # velocities are the rate of positions: the seven joints of the arm move alike in both
    rate = np.diff(episodes[0].signals["qpos"][:, :7], axis=0) * 20.0
    assert np.allclose(rate, episodes[0].signals["qvel"][1:, :7], atol=0.2)
    importing.write(tmp_path / "set", [File(REAL, lambda: robosuite.read(REAL))], importing.Options(clip=True))
    data = Dataset.open(tmp_path / "set")
    assert data.episodes == 2 and data.interface.action.high == (1.0,) * 7 and data.episode(0).action.min() == -1.0


def test_a_robomimic_file_of_others_has_their_rate_robot_masks_and_quaternions(tmp_path):
    import h5py

    path, rng = tmp_path / "low_dim.hdf5", np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = json.dumps(
            {"env_name": "Can", "type": 1, "env_kwargs": {"robots": ["Panda"], "control_freq": 20}})
        for k in range(11):
            group = file.create_group(f"data/demo_{k}")
            group["actions"], group["dones"] = rng.uniform(-1, 1, (6, 7)), np.array([0, 0, 0, 0, 0, k % 2])
            group["rewards"] = np.full(6, float(k))
            for part, extra in (("obs", 0), ("next_obs", 1)):
                group[f"{part}/robot0_eef_quat"] = np.arange(extra, 6 + extra)[:, None] * np.ones(4)
                group[f"{part}/agentview image"] = np.zeros((6, 8, 8, 3), np.uint8)
        file["mask/train"] = np.array([b"demo_10", b"demo_2"])
    reading = robomimic.read(path, mask="train")
    face = reading.interface
    assert (face.robot, face.rate_hz, face.simulator) == ("Panda", 20.0, "robosuite")
    assert face.signals["robot0_eef_quat"].unit == "xyzw" and face.signals["agentview_image"].dtype == "uint8"
    episodes = list(strict(reading.episodes))
    assert [each.info["episode"] for each in episodes] == ["demo_2", "demo_10"]
    assert episodes[0].signals["robot0_eef_quat"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6] and episodes[0].steps == 6
    assert episodes[1].reward.tolist() == [10.0] * 6 and not episodes[1].terminated
    assert episodes[0].info["masks"] == ["train"]
    with pytest.raises(DataError, match="no mask 'valid'; it has: train"):
        robomimic.read(path, mask="valid")


def test_d4rls_rows_end_where_they_terminate_or_time_out(tmp_path):
    rows = np.arange(10)
    np.savez(tmp_path / "a.npz", observations=rows[:, None] * np.ones(3), next_observations=rows[:, None] + np.ones(3),
             actions=np.zeros((10, 2)), rewards=rows, terminals=rows == 3, timeouts=rows == 6)
    episodes = list(strict(flat_npz.read(tmp_path / "a.npz", rate_hz=20.0).episodes))
    assert [(each.samples, each.steps, each.terminated) for each in episodes] == [
        (5, 4, True), (4, 3, False), (4, 3, False)]
    assert episodes[1].signals["observation"][:, 0].tolist() == [4, 5, 6, 7]
    assert episodes[1].reward.tolist() == [4, 5, 6]


def test_ogbenchs_last_row_is_a_final_state_that_nothing_terminated(tmp_path):
    rows = np.arange(8)
    np.savez(tmp_path / "a.npz", observations=rows[:, None] * np.ones(3), actions=rows[:, None] / 8 * np.ones(2),
             terminals=rows % 4 == 3, qpos=rows[:, None] * np.ones(5), env=np.array(7))
    reading = flat_npz.read(tmp_path / "a.npz", rate_hz=20.0)
    episodes = list(strict(reading.episodes))
    assert [(each.samples, each.steps, each.terminated) for each in episodes] == [(4, 3, False)] * 2
    assert episodes[1].action[:, 0].tolist() == [4 / 8, 5 / 8, 6 / 8] and episodes[1].signals["qpos"].shape == (4, 5)
    assert reading.notes == ("not read, for it has no row per sample: env",)


def test_a_csv_is_an_episode_of_the_rate_of_its_times(tmp_path):
    for k in range(2):
        rows = [f"{0.1 * i:.3f},{i},{i + k},{0.5},{-0.5},{i}" for i in range(5)]
        (tmp_path / f"{k}.csv").write_text("\n".join(["t,pos.0,pos.1,action.0,action.1,reward", *rows]))
    reading = csv_folder.read(tmp_path)
    assert reading.interface.rate_hz == 10.0 and reading.interface.signals["pos"].shape == (2,)
    episodes = list(strict(reading.episodes))
    assert episodes[1].signals["pos"][:, 1].tolist() == [1, 2, 3, 4, 5]
    assert episodes[1].reward.tolist() == [0, 1, 2, 3, 4]


def test_a_minari_space_gives_names_and_limits(tmp_path):
    from temporeal.policies.data.formats.minari_spaces import components_of, listed, signals_of

    space = {"type": "Dict", "subspaces": {
        "goal": {"type": "Tuple", "subspaces": [{"type": "Discrete", "n": 4, "start": 1}]},
        "arm": {"type": "Box", "dtype": "float64", "shape": [2], "low": [-1, -2], "high": [1, 2]}}}
    leaves = listed(space, "space")
    assert [(name, spec.shape, spec.dtype) for name, (_, spec) in signals_of(leaves).items()] == [
        ("goal_0", (), "int64"), ("arm", (2,), "float32")]
    assert leaves[0].low == (1.0,) and leaves[0].high == (4.0,) and leaves[1].low == (-1.0, -2.0)
    assert components_of(leaves) == ("goal_0", "arm.0", "arm.1")
    with pytest.raises(DataError, match="'Graph'; read are Dict, Tuple, Box"):
        listed({"type": "Graph"}, "space")


def test_minari_needs_a_rate_from_the_user(tmp_path):
    kinds.exported("minari", tmp_path / "set", ARM, [episode(0)])
    file = tmp_path / "set/data/metadata.json"
    told = json.loads(file.read_text())
    del told[minari.OURS]
    file.write_text(json.dumps(told))
    with pytest.raises(DataError, match="give --rate HZ"):
        minari.read(tmp_path / "set")
    found = list(strict(minari.read(tmp_path / "set", rate_hz=20.0).episodes))
    assert np.array_equal(found[0].signals["joint_pos"], episode(0).signals["joint_pos"])


def test_a_command_without_limits_stays_without(tmp_path):
    face = replace(ARM, action=replace(ARM.action, low=(-np.inf,) * 7, high=(np.inf,) * 7))
    kinds.exported("npz", tmp_path / "set", face, [episode(0)])
    assert kinds.READERS["npz-folder"](tmp_path / "set").interface.action.high == (np.inf,) * 7
    kinds.exported("lerobot-state", tmp_path / "state", face, [episode(0)])
    assert Dataset.open(tmp_path / "state").interface.action.low == (-np.inf,) * 7
    with pytest.raises(DataError, match="has no limits: it cannot be scaled"):
        unit_actions.of_interface(face)
