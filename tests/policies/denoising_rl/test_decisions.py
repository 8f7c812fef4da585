"""A dataset as decisions of a chunk policy, compared with what stands in its columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.policies.chunk_worlds import STEPS, half_way
from tests.policies.denoising_rl.point_data import PointData

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.denoising_rl.decisions import decisions


def test_decisions_are_what_the_episodes_hold() -> None:
    data, policy = PointData(6), half_way()
    found = decisions(data, policy, 3, "success")
    assert len(found.reward) == 6 * STEPS
    row = 2 * STEPS + 1  # of the third episode, its second sample
    sample = int(data.starts[2]) + 1
    signals = {name: torch.from_numpy(data.column(name)) for name in ("pos", "goal")}
    with torch.no_grad():
        contexts = policy.encoder(signals)
    torch.testing.assert_close(found.context[row], contexts[sample])
    torch.testing.assert_close(found.after[row], contexts[sample + 3])
    wanted = policy.chunk(torch.from_numpy(data.column("action"))[sample:sample + 4][None], signals)[0, :3]
    torch.testing.assert_close(found.action[row], wanted.flatten().clamp(-1, 1))
    assert found.goes_on.reshape(6, STEPS).sum(1).tolist() == [STEPS - 3] * 6  # those of the last three samples end
    success = [float(record.success) for record in data.records]
    assert found.reward.reshape(6, STEPS)[:, -3:].tolist() == [[flag] * 3 for flag in success]
    assert not found.reward.reshape(6, STEPS)[:, :-3].any()


def test_as_deployed_a_decision_begins_where_the_chunk_before_was_played() -> None:
    data = PointData(6)
    found = decisions(data, half_way(), 3, "success").as_deployed(3)
    assert found.starts.tolist() == [3 * k for k in range(7)]  # of eight samples those 0, 3, 6
    assert found.mask.tolist() == [1.0, 1.0, 0.0] * 6
    torch.testing.assert_close(found.next_obs[0], found.obs[1])
    assert found.success.tolist() == [float(record.success) for record in data.records]
    assert found.reward.reshape(6, 3).sum(1).tolist() == found.success.tolist()


def test_the_datas_rewards_are_summed_while_a_chunk_is_played() -> None:
    data = PointData(2)
    data.columns["next.reward"] = np.arange(2 * (STEPS + 1), dtype=np.float32)
    found = decisions(data, half_way(), 3, "data").reward.reshape(2, STEPS)
    assert found[0, :2].tolist() == [0 + 1 + 2, 1 + 2 + 3]
    assert found[1, -2:].tolist() == [15 + 16, 16]  # the final state, of number 17, has no command


def test_an_episode_that_nobody_judged_is_named() -> None:
    data = PointData(4)
    data.records[2].success = None
    with pytest.raises(DataError, match="episode 2: nobody judged .*data relabel"):
        decisions(data, half_way(), 4, "success")
