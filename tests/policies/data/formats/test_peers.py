"""Minari and robomimic themselves, where they are installed: they read what we write, and we read what they write."""

from __future__ import annotations

import numpy as np
import pytest
from tests.policies.data.episodes.arm_episodes import ARM, SEEING, episode

from temporeal.policies.data.formats import minari, robomimic
from temporeal.policies.data.formats.found import strict


@pytest.mark.parametrize("face", (ARM, SEEING), ids=("numbers", "pictures"))
def test_minari_reads_what_we_write(tmp_path, face):
    peer = pytest.importorskip("minari")
    wanted = [episode(k, face) for k in range(3)]
    minari.write(tmp_path / "set-v0", face, wanted)
    data = peer.MinariDataset(tmp_path / "set-v0/data")
    assert data.total_episodes == 3 and data.total_steps == sum(each.steps for each in wanted)
    for found, each in zip(data.iterate_episodes(), wanted):
        for name, values in each.signals.items():
            assert np.array_equal(found.observations[name], values)
        assert np.array_equal(found.actions, each.action) and np.array_equal(found.rewards, each.reward)
        assert bool(found.terminations[-1]) == each.terminated and bool(found.truncations[-1]) != each.terminated


@pytest.mark.parametrize("layout", ("hdf5", "arrow"))
def test_we_read_what_minari_writes(tmp_path, layout):
    peer = pytest.importorskip("minari")
    from gymnasium import spaces
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    rng = np.random.default_rng(0)
    seen = spaces.Dict({
        "observation": spaces.Box(-np.inf, np.inf, (5,), np.float64), "cam": spaces.Box(0, 255, (48, 64, 3), np.uint8),
        "goal": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4)))})
    storage = MinariStorage.new(tmp_path / "set", seen, spaces.Box(-1, 1, (3,), np.float32), data_format=layout)
    values, goals = rng.normal(size=(7, 5)), rng.integers(0, 4, 7)
    action = rng.uniform(-1, 1, (6, 3)).astype(np.float32)
    observations = {"observation": values, "goal": (np.zeros((7, 2), np.float32), goals),
                    "cam": np.full((7, 48, 64, 3), 90, np.uint8)}
    storage.update_episodes([EpisodeBuffer(
        id=0, seed=7, observations=observations, actions=action, rewards=[1.0] * 6, terminations=[False] * 5 + [True],
        truncations=[False] * 6, infos={"success": np.arange(7) > 3})])
    storage.update_metadata({"dataset_id": "x/y-v0", "minari_version": peer.__version__})
    (found,) = strict(minari.read(tmp_path / "set", rate_hz=20.0).episodes)
    assert np.allclose(found.signals["observation"], values) and np.array_equal(found.signals["goal_1"], goals)
    assert np.array_equal(found.action, action) and found.terminated
    assert np.abs(found.signals["cam"].astype(int) - 90).max() <= 2  # JPEG


def test_robomimics_reader_reads_what_we_write(tmp_path):
    pytest.importorskip("robomimic")
    from robomimic.utils import obs_utils
    from robomimic.utils.dataset import SequenceDataset

    wanted = [episode(k, SEEING) for k in range(3)]
    robomimic.write(tmp_path / "set.hdf5", SEEING, wanted)
    low = [name for name in SEEING.signals if name != "front"]
    obs_utils.initialize_obs_utils_with_obs_specs([{"obs": {"low_dim": low, "rgb": ["front"]}}])
    data = SequenceDataset(
        str(tmp_path / "set.hdf5"), obs_keys=[*low, "front"], dataset_keys=["actions", "rewards", "dones"],
        hdf5_cache_mode="low_dim", seq_length=1, frame_stack=1)
    assert len(data) == sum(each.steps for each in wanted)
    for k in range(wanted[0].steps):
        assert np.array_equal(data[k]["actions"][0], wanted[0].action[k])
        assert np.array_equal(data[k]["obs"]["joint_pos"][0], wanted[0].signals["joint_pos"][k])
        assert np.array_equal(data[k]["next_obs"]["joint_pos"][0], wanted[0].signals["joint_pos"][k + 1])
