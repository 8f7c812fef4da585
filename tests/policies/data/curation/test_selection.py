"""Which episodes are taken, which parts are drawn, and what copies know of where they come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.policies.data.curation.constructed import FLIGHT, climb, climbs

from temporeal.policies.data.curation.copying import merged, originals, own_interface, require_episodes, write
from temporeal.policies.data.curation.mirroring import mirrored, mirrors_of, within
from temporeal.policies.data.curation.selection import Wanted, best, condition, masks, parts, returns, successes
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.policies.vla.plan.truth import camera_of
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.language.parse import parse


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    """Climbs to 0.5, 1.0, 1.5 and 2.0 m."""
    return climbs(tmp_path_factory.mktemp("selection") / "set")


def test_returns_and_judgements_are_those_of_the_steps(data, tmp_path):
    np.testing.assert_allclose(returns(data), [0.5, 1.0, 1.5, 2.0], atol=1e-6)
    np.testing.assert_array_equal(successes(data), [0, 1, 1, 1])
    assert np.isnan(returns(climbs(tmp_path / "unpaid", (1.0,), reward=False))).all()


@pytest.mark.parametrize(("wanted", "chosen"), [
    (Wanted(returns=condition(">= 1", "--return")), [1, 2, 3]), (Wanted(success=False), [0]),
    (Wanted(length=condition("<2.3", "--length")), [0, 1]), (Wanted(language="fly"), []),
    (Wanted(top=0.5), [2, 3]), (Wanted(success=True, top=0.5), [2, 3]),
    (Wanted(formula="F[0,2] (height > 1.2)", satisfied=True), [2, 3]),
    (Wanted(formula="G[0,2] (height < 1.4)", robustness=condition(">0.3", "--robustness")), [0, 1]),
    (Wanted(formula="G[0,2] (height < 1.4)", top=0.25, by_robustness=True), [0]),
    (Wanted(formula="F[0,2] (height > 0.3) & F[0,2] (height > 1.2)", progress=condition(">=1", "--progress")), [2, 3]),
])  # fmt: skip
def test_conditions(data, wanted, chosen):
    if wanted.formula:
        wanted = Wanted(**{**vars(wanted), "formula": parse(wanted.formula, FLIGHT.signals)})
    found = np.logical_and.reduce(list(masks(data, wanted).values()))
    assert np.flatnonzero(found).tolist() == chosen


def test_bad_conditions_are_refused():
    for text in ("5", ">= five", "=> 5", ""):
        with pytest.raises(DataError, match="write a comparison and a number"):
            condition(text, "--return")
    with pytest.raises(DataError, match="share"):
        best(np.arange(3.0), 0.0)
    assert best(np.array([np.nan, 1.0, 2.0]), 1.0).tolist() == [False, True, True]


def test_parts_are_all_episodes_once_by_seed_and_recordings_stay_together(data, tmp_path):
    found = parts(data, {"train": 0.5, "test": 0.5}, 3)
    assert sorted(np.concatenate(list(found.values()))) == [0, 1, 2, 3] and len(found["train"]) == 2
    same = parts(data, {"train": 0.5, "test": 0.5}, 3)
    assert all((found[name] == same[name]).all() for name in found)
    twice = Dataset.open(tmp_path / "twice") if write(
        tmp_path / "twice", FLIGHT, [e for o in originals(data, range(4)) for e in (o, o)], "copies") else None
    for numbers in parts(twice, {"train": 0.5, "test": 0.5}, 1).values():
        assert {n ^ 1 for n in numbers.tolist()} == set(numbers.tolist())  # episodes 2 k and 2 k + 1 are one recording
    with pytest.raises(DataError, match="part 'b' would be empty"):
        parts(data, {"a": 0.99, "b": 0.01}, 0)
    with pytest.raises(DataError, match="at most 1 in all"):
        parts(data, {"a": 0.9, "b": 0.2}, 0)


def test_merged_sets_name_their_source_and_must_be_of_one_interface(data, tmp_path: Path):
    other = climbs(tmp_path / "other", (1.1,))
    episodes = list(merged([data, other]))
    assert [e.info["source"] for e in episodes] == ["set"] * 4 + ["other"]
    assert episodes[4].info["origin"] == "other:0"
    slow = Dataset.open(tmp_path / "slow") if write_at(tmp_path / "slow", 5.0) else None
    with pytest.raises(DataError, match="rate_hz: 10.0 is needed, 5.0 is there"):
        list(merged([data, slow]))


def test_a_set_without_episodes_is_not_merged(data, tmp_path: Path):
    with DatasetWriter(tmp_path / "empty", FLIGHT):
        pass  # as a writer that was stopped leaves it
    require_episodes([data])
    with pytest.raises(DataError, match="empty has no episodes: .* leave it out"):
        require_episodes([data, Dataset.open(tmp_path / "empty")])


def seen_from(folder: Path, height: float, **others) -> Dataset:
    """A climb, seen by a camera so many metres up."""
    about = {"settings": {"cameras": {"front": {"pos": [0.0, 0.0, height]}}, "task": {"name": "hover"}, **others}}
    with DatasetWriter(folder, replace(FLIGHT, about=about)) as writer:
        writer.add(climb(1.0))
    return Dataset.open(folder)


def test_cameras_that_stand_elsewhere_are_stated_by_no_merged_set(tmp_path: Path):
    low, same, high = (seen_from(tmp_path / name, z) for name, z in (("low", 1.0), ("same", 1.0), ("high", 2.0)))
    assert own_interface(low, same).about == low.interface.about
    found = own_interface(low, same, high).about
    assert found == {"settings": {"task": {"name": "hover"}}, "differs": ["cameras"]}
    write(tmp_path / "both", own_interface(low, high), merged([low, high]), "merge")
    both = Dataset.open(tmp_path / "both")
    assert own_interface(both, both).about["differs"] == own_interface(low, both).about["differs"] == ["cameras"]
    with pytest.raises(DataError, match="merged of sets that differ in cameras"):
        camera_of(both.interface, "front")
    shaken = seen_from(tmp_path / "shaken", 1.0, randomize={"appearance": {}}, backend="warp")
    about = own_interface(low, shaken).about
    assert about["differs"] == ["backend", "randomize"] and set(about["settings"]) == {"cameras", "task"}


def write_at(folder: Path, rate_hz: float) -> bool:
    """A climb at another rate."""
    with DatasetWriter(folder, replace(FLIGHT, rate_hz=rate_hz)) as writer:
        writer.add(climb(1.0))
    return True


def test_a_set_is_written_whole_or_not_at_all(data, tmp_path):
    def failing():
        yield data.episode(0)
        raise DataError("episode 1: no")

    with pytest.raises(DataError, match="episode 1"):
        write(tmp_path / "half", FLIGHT, failing(), "test")
    assert not (tmp_path / "half").exists()
    write(tmp_path / "new", FLIGHT, originals(data, [1]), "filter of set")
    assert Dataset.open(tmp_path / "new").interface.about["curation"] == ["filter of set"]
    with pytest.raises(DataError, match="is there already"):
        write(tmp_path / "new", FLIGHT, [], "again")


def test_a_mirror_image_twice_is_the_episode(data):
    mirrors = mirrors_of(FLIGHT, load_robot("crazyflie"))
    episode = data.episode(2)
    image = mirrored(episode, mirrors)
    np.testing.assert_array_equal(image.signals["base_pos_w"], episode.signals["base_pos_w"] * [1, -1, 1])
    np.testing.assert_array_equal(image.signals["base_quat_w"], episode.signals["base_quat_w"] * [1, -1, 1, -1])
    np.testing.assert_array_equal(image.signals["height"], episode.signals["height"])
    np.testing.assert_array_equal(image.action, episode.action * [1, -1, 1, -1])
    again = mirrored(image, mirrors)
    assert all((again.signals[name] == episode.signals[name]).all() for name in FLIGHT.signals)
    assert within(image, FLIGHT) and image.info["mirrored"] and image.policy_action is None


def test_robots_without_a_symmetry_and_signals_without_a_mirror_are_named():
    from temporeal.robots.signals import SignalSpec

    with pytest.raises(DataError, match="robot 'leap_hand' declares no symmetry"):
        mirrors_of(FLIGHT, load_robot("leap_hand"))
    odd = replace(FLIGHT, signals={**FLIGHT.signals, "gate": SignalSpec("gate", (), "rad"),
                                   "view": SignalSpec("view", (4, 4, 3), dtype="uint8")})
    robot = load_robot("crazyflie")
    with pytest.raises(DataError, match="signal 'gate'.*--same gate"):
        mirrors_of(odd, robot)
    with pytest.raises(DataError, match="picture 'view': --flip view"):
        mirrors_of(odd, robot, same=["gate"])
    found = mirrors_of(odd, robot, same=["gate"], flip=["view"])
    picture = np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3)
    episode = climb(1.0, 1)
    image = mirrored(replace(episode, signals={**episode.signals, "gate": np.ones(1), "view": picture}), found)
    np.testing.assert_array_equal(image.signals["view"][0, :, 0], picture[0, :, 3])
    with pytest.raises(DataError, match="no signal 'door'"):
        mirrors_of(FLIGHT, robot, same=["door"])
