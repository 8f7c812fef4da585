"""Measures of diversity on sets of which the answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.policies.data.curation.constructed import FLIGHT, climb

from temporeal.policies.data.curation.diversity import agreement, effective, explained, neighbours, report, told, vendi
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.signals import SignalSpec

RNG = np.random.default_rng(0)


def test_the_vendi_score_counts_clusters():
    places = 100.0 * np.arange(4)[:, None] * np.ones((1, 3))
    assert vendi(np.repeat(places, 10, 0)) == pytest.approx(4.0)
    assert vendi(np.zeros((30, 2))) == pytest.approx(1.0)
    assert vendi(100.0 * np.arange(30.0)[:, None]) == pytest.approx(30.0)
    uneven = np.concatenate([np.zeros((30, 1)), np.full((10, 1), 99.0)])  # exp of the entropy of 3/4 and 1/4
    assert vendi(uneven) == pytest.approx(4 / 3**0.75)
    assert effective(["a"] * 30 + ["b"] * 10) == pytest.approx(4 / 3**0.75)
    assert vendi(np.zeros((0, 2))) == 0.0


def test_labels_are_told_where_they_are_apart_and_not_where_they_overlap():
    labels = np.repeat([0, 1], 100)
    apart = RNG.normal(size=(200, 2)) + 20.0 * labels[:, None]
    assert told(neighbours(apart), labels) == 1.0
    assert told(neighbours(RNG.normal(size=(200, 2))), labels) < 0.2
    assert told(neighbours(np.zeros((200, 2))), labels) < 0.2  # equal items say nothing
    rare = np.repeat([0, 1], [190, 10])  # to say 0 always would be right 95 % of the time
    assert told(neighbours(RNG.normal(size=(200, 2))), rare) == pytest.approx(0.0, abs=0.05)


def test_variance_that_is_explained_and_labels_that_agree():
    x = RNG.uniform(size=(300, 1))
    assert explained(neighbours(x), np.sin(6 * x)) > 0.98
    assert explained(neighbours(x), RNG.normal(size=(300, 2))) == 0.0
    a = np.repeat([0, 1, 2], 20)
    assert agreement(a, (a + 1) % 3) == pytest.approx(1.0) and agreement(a, np.tile([0, 1], 30)) == pytest.approx(0.0)


LAMP = replace(FLIGHT, signals={**FLIGHT.signals, "lamp": SignalSpec("lamp", (), "1")})


def written(folder, start, language, source, lamp, thrust):
    """60 climbs, each with its start (m), instruction, source, lamp and thrust."""

    def one(k):
        episode = climb(1.0, 8, language=language(k), source=source(k))
        pos = episode.signals["base_pos_w"] + np.float32([start(k), 0, 0])
        signals = {**episode.signals, "base_pos_w": pos, "lamp": np.full(8, lamp(k), np.float32)}
        action = episode.action.copy()
        action[:, 0] = thrust(k)
        return replace(episode, signals=signals, action=action)

    with DatasetWriter(folder, LAMP) as writer:
        writer.add_many(map(one, range(60)))
    return Dataset.open(folder)


def flags(data, **options):
    return {one.name: one.flagged for one in report(data, **options)}


def test_a_set_in_which_everything_is_mixed_has_no_weakness(tmp_path):
    draw = np.random.default_rng(1).uniform(size=(4, 60))
    data = written(tmp_path / "set", lambda k: 2 * draw[0, k], lambda k: f"go {k % 2}", lambda k: f"day {k // 30}",
                   lambda k: draw[1, k], lambda k: 0.1 + 0.3 * draw[2, k])
    found = flags(data, irrelevant=["lamp"])
    assert not any(found.values()), found
    assert {"disparity of sub-datasets", "instruction by source", "instruction by start of the robot",
            "instruction by lamp", "action by lamp"} <= set(found)


def test_each_weakness_is_found_where_it_was_put(tmp_path):
    draw = np.random.default_rng(1).uniform(size=(4, 60))
    data = written(tmp_path / "set", lambda k: 3.0 * (k // 30) + 0.2 * draw[0, k], lambda k: f"go {k // 30}",
                   lambda k: f"day {k // 30}", lambda k: draw[1, k], lambda k: 0.1 + 0.3 * draw[1, k])
    found = flags(data, irrelevant=["lamp"])
    assert found["disparity of sub-datasets"] and found["instruction by source"]
    assert found["instruction by start of the robot"] and found["action by lamp"]
    assert not found["instruction by lamp"]


def test_equal_starts_are_one_start(tmp_path):
    data = written(tmp_path / "set", lambda k: 0.0, lambda k: "go", lambda k: "", lambda k: 0.0, lambda k: 0.3)
    found = {one.name: one for one in report(data)}
    assert found["diversity of starts"].value == pytest.approx(1.0) and found["diversity of starts"].flagged
    assert "60 starts are in effect 1.0" in found["diversity of starts"].said
    assert "disparity of sub-datasets" not in found and "instruction by start of the robot" not in found


def test_too_few_episodes_and_unknown_signals_are_refused(tmp_path):
    with DatasetWriter(tmp_path / "few", FLIGHT) as writer:
        writer.add_many([climb(1.0)] * 3)
    with pytest.raises(DataError, match="3 episodes say nothing"):
        report(Dataset.open(tmp_path / "few"))
    data = written(tmp_path / "set", lambda k: 0.0, lambda k: "go", lambda k: "", lambda k: 0.0, lambda k: 0.3)
    with pytest.raises(DataError, match="no signal 'sun'; signals"):
        report(data, irrelevant=["sun"])
