"""Counterexamples: a file that holds all of it, and a replay that says whether the trace is the same."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from temporeal.sim.stl.analysis.counterexample import Counterexample, load_counterexample, replay, save_counterexample
from temporeal.sim.stl.analysis.falsification import Falsification
from temporeal.sim.stl.analysis.falsify import falsify
from temporeal.sim.stl.analysis.parameter_space import Choice, ParameterSpace, Real
from temporeal.sim.stl.analysis.search_options import SearchOptions
from temporeal.sim.stl.language.constructors import always
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import Constant, Signal

X, P = Signal("x", (), "m"), Signal("pos", (2,), "m")
SPACE = ParameterSpace((Real("start", (-1.0, -1.0), (1.0, 1.0)), Choice("wind", ("calm", "storm"))))
FORMULA = always(0, 2, P[0] < Constant(0.8, "limit")) & always(0, 2, X > -10)


def rollout(parameters: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
    noise = np.stack([np.random.default_rng(s).normal(size=21) for s in seeds], 1)
    drift = np.where(parameters["wind"] == "storm", 0.3, 0.0) * np.linspace(0, 1, 21)[:, None]
    pos = parameters["start"][None] + drift[..., None]
    return {"pos": pos.astype(np.float32), "x": 0.01 * noise}


@pytest.fixture(scope="module")
def found() -> Falsification:
    return falsify(rollout, FORMULA, SPACE, 0.1, SearchOptions(budget=300, seed=7), semantics=Semantics(until="closed"))


@pytest.fixture
def saved(found: Falsification, tmp_path: Path) -> Path:
    about = {"simulator": "toy", "batch": [1, 2]}
    return save_counterexample(tmp_path / "deep" / "found.npz", found.counterexample(about, revision="abc"))


def test_round_trip(found: Falsification, saved: Path) -> None:
    back = load_counterexample(saved)
    assert back.formula == FORMULA
    assert (back.dt, back.seed, back.robustness, back.violated) == (0.1, 7, found.robustness, True)
    assert (back.semantics, back.space) == (Semantics(until="closed"), SPACE)
    assert (back.about, back.revision) == ({"simulator": "toy", "batch": [1, 2]}, "abc")
    assert {"python", "numpy", "machine"} <= set(back.versions)
    for name in ("pos", "x"):
        assert back.signals[name].dtype == found.signals[name].dtype
        assert back.signals[name].tobytes() == found.signals[name].tobytes()
    assert back.parameters["start"].tobytes() == found.parameters["start"].tobytes()
    assert back.parameters["wind"] == found.parameters["wind"]


def test_people_can_read_it(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        told = json.loads(archive.read("counterexample.json"))
    assert told["formula"].startswith("G[0,2] (pos.x < limit)")
    assert set(told["parameters"]) == {"start", "wind"}
    with np.load(saved, allow_pickle=False) as arrays:
        assert arrays["pos"].shape == (21, 2)


def test_replay_is_exact(found: Falsification, saved: Path) -> None:
    again = replay(load_counterexample(saved), rollout)
    assert again.identical
    assert again.violated
    assert (again.robustness, again.change, again.tolerance) == (found.robustness, 0.0, 0.0)


def test_replay_measures_another_rollout(saved: Path) -> None:
    def other(parameters: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        signals = rollout(parameters, seeds)
        return {**signals, "pos": signals["pos"] - np.float32(0.5)}

    again = replay(load_counterexample(saved), other)
    assert not again.identical
    assert not again.violated
    assert again.difference["x"] == 0.0
    assert again.tolerance == again.difference["pos"] == pytest.approx(0.5)
    assert again.change == pytest.approx(0.5, abs=1e-6)


def test_same_numbers_of_another_type_are_not_the_same_bits(saved: Path) -> None:
    again = replay(load_counterexample(saved), lambda p, s: {k: v.astype(float) for k, v in rollout(p, s).items()})
    assert (again.identical, again.tolerance) == (False, 0.0)


def test_replay_of_another_length_or_without_a_signal(found: Falsification) -> None:
    longer = replay(found.counterexample(), lambda p, s: {k: np.concatenate([v, v[-1:]]) for k, v in
                                                          rollout(p, s).items()})
    assert (longer.identical, longer.tolerance) == (False, np.inf)
    more = replay(found.counterexample(), lambda p, s: {**rollout(p, s), "new": np.zeros((21, 1))})
    assert (more.identical, more.difference["new"], more.difference["x"]) == (False, np.inf, 0.0)


def test_failed_rollout_is_saved_and_replayed(tmp_path: Path) -> None:
    def fails(parameters: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        raise FloatingPointError(f"diverged at {parameters['start'][0].tolist()}")

    found = falsify(fails, FORMULA, SPACE, 0.1, SearchOptions(budget=5, seed=0, batch=1))
    assert found.verdict == "failed"
    back = load_counterexample(save_counterexample(tmp_path / "failed.npz", found.counterexample()))
    assert np.isnan(back.robustness)
    assert back.failure.startswith("FloatingPointError: diverged at [")
    assert replay(back, fails).identical
    assert not replay(back, rollout).identical


def test_nan_is_saved_and_replayed() -> None:
    found = falsify(lambda p, s: {k: v * np.nan for k, v in rollout(p, s).items()}, FORMULA, SPACE, 0.1,
                    SearchOptions(budget=5))
    made = found.counterexample()
    assert made.failure == "the robustness is NaN"
    again = replay(made, lambda p, s: {k: v * np.nan for k, v in rollout(p, s).items()})
    assert (again.identical, again.failure) == (True, made.failure)
    assert not replay(made, rollout).identical


def test_file_is_written_whole(saved: Path, found: Falsification) -> None:
    """What cannot be written leaves the old file; no temporary file stays."""
    before = saved.read_bytes()
    bad = replace(found.counterexample(), about={"function": rollout})
    with pytest.raises(TypeError):
        save_counterexample(saved, bad)
    objects = replace(found.counterexample(), signals={"x": np.array([None, rollout])})
    with pytest.raises(ValueError, match="not of objects"):
        save_counterexample(saved, objects)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("damage", [lambda b: b[:-40], lambda b: b"nothing", lambda b: b""])
def test_damaged_file_is_named(saved: Path, damage: object) -> None:
    saved.write_bytes(damage(saved.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"found\.npz is not a counterexample"):
        load_counterexample(saved)


def test_other_archive_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match=r"other\.npz is not a counterexample"):
        load_counterexample(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        load_counterexample(tmp_path / "missing.npz")


def test_counterexample_is_what_the_result_says(found: Falsification) -> None:
    made = found.counterexample()
    assert isinstance(made, Counterexample)
    assert (made.robustness, made.seed) == (found.robustness, found.seed)
