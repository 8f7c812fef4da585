"""`temporeal data` filter, relabel, mirror, merge, split: sets in, sets out, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.policies.data.curation.constructed import climbs

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface_file import to_json

REACH = "F[0,2] (norm(base_pos_w - goal_pos_w) < 0.2)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Climbs to 0.5, 1.0, 1.5 and 2.0 m; the goal is at 1 m."""
    path = tmp_path_factory.mktemp("words") / "set"
    climbs(path, reward=False)
    return str(path)


def data(*words) -> int:
    return main(["data", *map(str, words)])


def test_filter_takes_what_satisfies_the_formula(folder, tmp_path, capsys):
    assert data("filter", folder, "--formula", "F[0,2] (height > h)", "--constants", '{"h": 1.2}', "--out",
                tmp_path / "good", "--json") == 0
    assert json.loads(capsys.readouterr().out)["met"] == {"formula": 2}
    found = Dataset.open(tmp_path / "good")
    assert [record.info["origin"] for record in found.records] == ["set:2", "set:3"]
    assert data("filter", folder, "--return", ">=1", "--out", tmp_path / "none") == 1  # there is no reward
    assert not (tmp_path / "none").exists()


def test_filter_leaves_out_the_episodes_that_are_named(folder, tmp_path):
    assert data("filter", folder, "--without", "3,1", "--out", tmp_path / "whole") == 0
    assert [record.info["origin"] for record in Dataset.open(tmp_path / "whole").records] == ["set:0", "set:2"]


def test_a_log_and_a_formula_are_a_task(folder, tmp_path):
    assert data("relabel", folder, "--formula", REACH, "--state", "formula_state", "--out", tmp_path / "paid") == 0
    found = Dataset.open(tmp_path / "paid")
    assert [record.success for record in found.records] == [False, True, True, True]
    assert found.interface.signals["formula_state"].shape == (5,)
    assert np.isfinite(found.column("next.reward")).all() and found.episode(1).reward.sum() > 5


def test_goals_in_hindsight_beside_the_own_ones(folder, tmp_path):
    assert data("relabel", folder, "--goal", "goal_pos_w=base_pos_w", "--keep", "--formula",
                "F[0,2.6] (norm(base_pos_w - goal_pos_w) < 0.1)", "--out", tmp_path / "her") == 0
    found = Dataset.open(tmp_path / "her")
    assert found.episodes == 8 and all(record.success for record in found.records[1::2])
    assert not found.records[0].success


def test_mirror_merge_and_split(folder, tmp_path, capsys):
    assert data("mirror", folder, "--out", tmp_path / "both") == 0
    assert Dataset.open(tmp_path / "both").episodes == 8
    assert data("merge", folder, tmp_path / "both", "--out", tmp_path / "all") == 0
    assert data("split", tmp_path / "all", "--parts", "train=.75,test=.25", "--out", tmp_path / "parts", "--json") == 0
    capsys.readouterr()
    train, test = (Dataset.open(tmp_path / "parts" / name) for name in ("train", "test"))
    assert train.episodes == 9 and test.episodes == 3
    assert not {r.info["origin"] for r in train.records} & {r.info["origin"] for r in test.records}


def test_a_set_of_another_program_becomes_one_of_ours(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "foreign")
    (tmp_path / "foreign" / "meta" / "temporeal.json").unlink()
    assert data("merge", tmp_path / "foreign", "--out", tmp_path / "own") == 0
    found = Dataset.open(tmp_path / "own")
    assert not found.foreign and found.interface.about["action_limits"] == "the range of the data"
    assert found.interface.action.low[3] == pytest.approx(-0.5) and found.interface.action.high[3] > -0.5
    changed = replace(found.interface, robot=str(tmp_path / "evil"))  # a set names no file
    (tmp_path / "own" / "meta" / "temporeal.json").write_text(json.dumps(to_json(changed)))
    capsys.readouterr()
    assert data("mirror", tmp_path / "own", "--out", tmp_path / "image") == 2
    assert "--robot says whose symmetry it is" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "told"), [
    (["filter"], "no condition is given"), (["filter", "--robustness", ">0"], "are those of a --formula"),
    (["filter", "--return", "5"], "write a comparison and a number"),
    (["filter", "--without", "4"], "episodes are 0 to 3"), (["filter", "--without", "1;2"], "as in 11,46; got '1;2'"),
    (["relabel"], "give --formula, or task=NAME"), (["relabel", "task=hover", "--state", "x"], "are those of a --form"),
    (["relabel", "task=waypoints"], "has a sample each 0.1 s, task 'waypoints' each 0.02 s"),
    (["relabel", "--formula", REACH, "--goal", "goal"], "write GOAL=ACHIEVED"),
    (["relabel", "--formula", REACH, "--weights", '{"dense": 1}'], "unknown weights"),
    (["split", "--parts", "a=1,a=1"], "each name once"), (["split", "--parts", "../a=1"], "each name once"),
    (["merge", "nowhere"], "there is no such folder"), (["mirror", "--same", "door"], "no signal 'door'"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_and_writes_nothing(folder, tmp_path, words, told, capsys):
    assert data(words[0], folder, *words[1:], "--out", tmp_path / "out") == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
