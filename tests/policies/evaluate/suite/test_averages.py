"""The comparison on the suite: averages by hand, what is not supported, margins, the page with all its sections."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from temporeal.policies.evaluate.suite import averages, catalog, comparison, figures, timing
from temporeal.policies.evaluate.suite import page as suite_page
from temporeal.policies.evaluate.suite.averages import DONE, FAILED, NOT_SUPPORTED, Share
from temporeal.policies.evaluate.suite.catalog import BASELINES
from temporeal.sim.stl.analysis.binomial import clopper_pearson


def trial(task: str = "linear_reach", method: str = "tgpo", seed: int = 1, satisfied: int = 900,
          episodes: int = 1000, status: str = DONE, **more: Any) -> dict[str, Any]:
    if status != DONE:
        return {"task": task, "system": averages.system_of(task), "method": method, "seed": seed, "status": status,
                "reason": "because", "depth": 1, **more}
    return {"task": task, "system": averages.system_of(task), "method": method, "seed": seed, "status": DONE,
            "depth": 1,
            "satisfied": satisfied, "episodes": episodes, **more}


def test_seeds_of_a_formula_with_as_many_starts_are_one_proportion() -> None:
    share = averages.formula_share([trial(satisfied=900), trial(seed=2, satisfied=700)])
    assert share is not None
    assert (share.estimate, share.episodes, share.seeds) == (0.8, 2000, 2)
    assert (share.low, share.high) == clopper_pearson(1600, 2000)
    assert averages.formula_share([]) is None


def test_seeds_weigh_the_same_however_many_starts_they_were_judged_on() -> None:
    share = averages.formula_share([trial(satisfied=1000), trial(seed=2, satisfied=5, episodes=250)])
    assert share is not None and share.estimate == pytest.approx((1.0 + 0.02) / 2)
    ends = clopper_pearson(1000, 1000), clopper_pearson(5, 250)
    assert (share.low, share.high) == pytest.approx(tuple((a + b) / 2 for a, b in zip(*ends)))
    assert (share.episodes, share.starts) == (1250, (250, 1000))
    failed = averages.formula_share([trial(satisfied=1000), trial(seed=2, satisfied=5, episodes=250),
                                  trial(seed=3, status=FAILED)])
    assert failed is not None and failed.estimate == pytest.approx((1.0 + 0.02) / 3)


def test_a_failed_training_counts_as_none_satisfied() -> None:
    share = averages.formula_share([trial(satisfied=800), trial(seed=2, status=FAILED)])
    assert share is not None
    assert (share.estimate, share.failed, share.not_supported) == (0.4, 1, 0)
    alone = averages.formula_share([trial(status=FAILED)])
    assert alone is not None and (alone.estimate, alone.high, alone.failed, alone.not_supported) == (0.0, 0.0, 1, 0)


def test_what_is_not_supported_is_zero_in_one_mean_and_absent_from_the_other() -> None:
    trials = [trial(satisfied=900), trial("linear_seq", status=NOT_SUPPORTED), trial("linear_stay", satisfied=600)]
    counted = averages.system_share(trials, "tgpo", "linear")
    among = averages.system_share(trials, "tgpo", "linear", refused_as_zero=False)
    assert counted is not None and among is not None
    assert counted.estimate == pytest.approx(1500 / 3000) and among.estimate == pytest.approx(1500 / 2000)
    low, high = clopper_pearson(1500, 2000)
    assert (among.low, among.high) == (low, high)
    assert (counted.low, counted.high) == pytest.approx((2 / 3 * low, 2 / 3 * high))
    assert (counted.formulas, counted.not_supported) == (3, 1)
    refused = averages.system_share([trial(status=NOT_SUPPORTED)], "tgpo", "linear", refused_as_zero=False)
    assert refused is None


def test_formulas_weigh_the_same_however_many_starts_they_were_judged_on() -> None:
    trials = [trial(satisfied=10, episodes=10), trial("linear_seq", satisfied=0, episodes=1000)]
    share = averages.system_share(trials, "tgpo", "linear")
    assert share is not None and share.estimate == 0.5
    ends = clopper_pearson(10, 10), clopper_pearson(0, 1000)
    assert (share.low, share.high) == pytest.approx(tuple((a + b) / 2 for a, b in zip(*ends)))


def test_a_failed_trial_which_tells_no_depth_moves_no_formula_to_other_layers() -> None:
    trials = [trial(), trial("linear_seq", satisfied=500, depth=2)]
    failed = trial("linear_seq", "ppo", status=FAILED)
    del failed["depth"]
    assert averages.system_tasks([*trials, failed], "linear", "two") == ["linear_reach"]
    assert averages.system_tasks([*trials, failed], "linear", "multi") == ["linear_seq"]
    assert averages.system_tasks([failed], "linear", "two") == []


def test_layers_and_the_study_of_horizons_are_apart() -> None:
    trials = [trial(satisfied=900), trial("linear_seq", satisfied=100, depth=2),
              trial("linear_horizon_100", satisfied=0)]
    found = [averages.system_share(trials, "tgpo", "linear", kind) for kind in (None, "two", "multi")]
    assert [round(share.estimate, 9) for share in found if share] == [0.5, 0.9, 0.1]
    assert [(steps, share.estimate) for steps, share in comparison.by_horizon(trials, "tgpo")] == [(100, 0.0)]


def test_the_study_of_horizons_is_of_linear_horizon_and_a_number_only() -> None:
    """Whatever formulas of their own people name so are formulas like others."""
    others = ["unicycle_horizon_1000", "linear_horizon_foo", "linear_horizon_", "linear_horizon_050", "linear_horizon"]
    assert [averages.steps_of(task) for task in ("linear_horizon_1000", *others)] == [1000, *len(others) * [None]]
    trials = [trial("linear_horizon_1000", satisfied=990), *(trial(task, satisfied=0) for task in others)]
    for order in (trials, trials[::-1]):
        assert [(steps, share.estimate) for steps, share in comparison.by_horizon(order, "tgpo")] == [(1000, 0.99)]
    assert averages.system_tasks(trials, "linear") == sorted(t for t in others if t.startswith("linear"))


def test_seeds_have_a_range_of_their_own() -> None:
    trials = [trial(satisfied=900), trial(seed=2, satisfied=500), trial("linear_seq", satisfied=700),
              trial("linear_seq", seed=2, satisfied=500), trial(seed=3, satisfied=0)]
    found = averages.seed_range(trials, "tgpo", "linear")
    assert found == pytest.approx((0.5, 0.8))  # seed 3 lacks a formula


def test_an_interval_over_trainings_tells_what_another_seed_may_bring() -> None:
    """Of two formulas one is the same with each seed, of the other one training of three has learned nothing."""
    trials = [*(trial(seed=seed, satisfied=1000) for seed in (1, 2, 3)),
              trial("linear_seq"), trial("linear_seq", seed=2, satisfied=900), trial("linear_seq", seed=3, satisfied=0)]
    # a mean over the other's three that are drawn anew: 0 with probability 1/27, 0.9 with 8/27
    assert averages.training_interval(trials, "tgpo", "linear") == pytest.approx((0.5, 0.95))
    failed = [{**t, "status": FAILED} if t["satisfied"] == 0 else t for t in trials]
    assert averages.training_interval(failed, "tgpo", "linear") == pytest.approx((0.5, 0.95))
    few = [*(trial(seed=seed, satisfied=10, episodes=10) for seed in (1, 2)), trial(seed=3, satisfied=300)]
    assert averages.training_interval(few, "tgpo", "linear") == (0.3, 1.0)  # seeds weigh the same, as in the mean
    assert averages.training_interval([{**t, "method": "cem"} for t in trials], "cem", "linear") is None  # no trainings
    share = averages.system_share(trials, "tgpo", "linear")
    assert share is not None and share.high - share.low < 0.1  # that of starts is as if all trainings were alike
    assert averages.training_interval(trials[:-2], "tgpo", "linear") is None  # one training tells nothing of others
    assert "[0.500, 0.950] over trainings" in parsed({"trials": trials, "rows": []}).sections["success"]


def against(ours: int, theirs: dict[str, int], task: str = "linear_reach") -> list[dict[str, Any]]:
    return [trial(task, satisfied=ours), *(trial(task, m, satisfied=theirs.get(m, 100)) for m in BASELINES)]


def test_the_margin_is_over_the_best_baseline_of_each_system_where_all_ran() -> None:
    trials = [*against(900, {"tau-mdp": 600}), *against(800, {"npc": 300}, "unicycle_reach"),
              *against(1000, {}, "ant_reach")]
    trials = [t for t in trials if not (t["system"] == "ant" and t["method"] == "cem")]
    trials.append(trial("ant_reach", "cem", status=NOT_SUPPORTED))  # no model: it does not run there
    assert comparison.compared_systems(trials) == ["linear", "unicycle"]
    assert comparison.best_baseline(trials, "linear") == ("tau-mdp", 0.6)
    assert comparison.margin(trials) == pytest.approx((30 + 50) / 2)
    assert comparison.margin(trials[1:3]) is None
    # without a model: all three ran, of the others the best are .6, .1 and .1
    assert comparison.margin(trials, catalog.MODEL_FREE) == pytest.approx((30 + 70 + 90) / 3)
    assert set(catalog.MODEL_FREE) == {"ppo", "rnn", "tau-mdp", "f-mdp"}


def test_a_system_is_compared_once_all_were_tried_on_all_of_its_formulas() -> None:
    trials = [*against(900, {"tau-mdp": 600}), *against(800, {"npc": 300}, "unicycle_reach"),
              trial("unicycle_seq", satisfied=700)]
    assert comparison.compared_systems(trials) == ["linear"] and comparison.margin(trials) == pytest.approx(30)


def test_a_baseline_that_refuses_formulas_is_compared_on_the_others_too() -> None:
    trials = [*against(900, {"f-mdp": 850}), *against(500, {"f-mdp": 0}, "linear_seq")]
    trials = [t for t in trials if (t["task"], t["method"]) != ("linear_seq", "f-mdp")]
    trials.append(trial("linear_seq", "f-mdp", status=NOT_SUPPORTED))
    assert comparison.margin(trials) == pytest.approx(100 * (0.7 - 0.425))
    assert comparison.margin_where_supported(trials) == pytest.approx(5.0)


def test_not_worse_is_within_the_interval() -> None:
    ours = Share(0.99, 0.98, 0.996, 1000)
    assert comparison.not_worse(ours, Share(0.996, 0.99, 1.0, 1000))
    assert not comparison.not_worse(ours, Share(0.997, 0.99, 1.0, 1000))


def iteration(second: int, episodes: float, success: float, **more: float) -> dict[str, float]:
    """A row of a history: ``success`` is the mean of the whole episodes that ended."""
    return {"seconds": float(second), "steps": 10.0 * second, "episodes": episodes, "success": success, "return": 1.0,
            **more}


def test_a_lucky_episode_is_no_threshold_reached() -> None:
    history = [{"seconds": 0.0, "steps": 0.0, "episodes": 0.0}, iteration(1, 1, 1.0), iteration(2, 49, 0.0),
               iteration(3, 50, 1.0), iteration(4, 60, 0.5), iteration(5, 100, 0.9)]
    assert timing.pooled(history) == [(3.0, 30.0, 0.51), (4.0, 40.0, 80 / 110), (5.0, 50.0, 0.9)]


def test_a_threshold_is_reached_where_success_stays_there_on_the_average() -> None:
    def curve(*shares: float) -> list[list[float]]:
        return [[float(second), 10.0, share] for second, share in enumerate(shares)]

    rising = curve(0.0, 0.2, 0.6, 0.4, 0.7, 0.8, 0.95, 0.9, 0.8, 0.95)
    assert [timing.time_to(rising, x) for x in (0.0, 0.5, 0.8, 0.9)] == [0.0, 2.0, 5.0, None]
    once = curve(0.1, 0.95, 0.3, 0.4, 0.3, 0.4, 0.3)  # a lucky hundred
    assert timing.time_to(once, 0.9) is None and timing.time_to(once, 0.5) is None
    assert timing.time_to(curve(0.0, 0.0, 0.0, 0.0, 0.0, 1.0), 0.5) is None  # at the end, once
    assert timing.time_to(curve(1.0, 1.0, 1.0, 1.0), 0.5) is None  # too few to tell
    assert timing.time_to([], 0.5) is None


def test_an_iteration_in_which_no_episode_ended_counts_none_again() -> None:
    again = [iteration(second, 40, 1.0) for second in (1, 2, 3)]
    assert timing.pooled(again) == []
    assert [s for s, *_ in timing.pooled([*again, iteration(4, 59, 1.0), iteration(5, 1, 0.0)])] == [5.0]
    other = [iteration(1, 50, 1.0), iteration(2, 50, 1.0, **{"return": 2.0})]
    assert timing.pooled(other) == [(2.0, 20.0, 1.0)]


def test_a_row_that_says_no_number_of_episodes_stands_for_itself() -> None:
    shares = [0.4, 0.6, 0.6, 0.9]
    history = [{"seconds": float(t), "steps": 1.0, "success": success} for t, success in enumerate(shares)]
    assert [success for *_, success in timing.pooled(history)] == shares


def test_a_median_time_counts_those_that_did_not_get_there_as_infinite() -> None:
    def timed(seed: int, half: float | None, **more: Any) -> dict[str, Any]:
        curve = [[float(second), 1.0, 0.6 if half is not None and second >= half else 0.1] for second in range(10)]
        return trial(seed=seed, cpu_s=10.0 * seed, curve=curve, **{"pooled": timing.POOL, **more})

    trials = [timed(1, 2.0), timed(2, None), timed(3, 4.0), timed(4, 1.0, pooled=None)]
    found = timing.times(trials, "tgpo", "linear")
    assert found is not None
    assert (found.cpu_s, found.longest_s, found.trainings, found.pooled) == (25.0, 40.0, 4, 3)
    assert found.to == {0.5: (2, 4.0), 0.9: (0, None)}
    even = timing.times(trials[:2], "tgpo", "linear")
    assert even is not None and even.to[0.5] == (1, None)
    before = timing.times(trials[3:], "tgpo", "linear")
    assert before is not None and (before.pooled, before.to[0.5]) == (0, (0, None))
    easy = {**timed(5, 0.5), "task": "linear_horizon_50"}  # of the study of horizons, which is in no average
    assert timing.times([*trials, easy], "tgpo", "linear") == found
    assert timing.times([easy], "tgpo", "linear") is None


def test_wall_times_are_of_trainings_that_had_few_beside_them() -> None:
    trials = [trial(seed=seed, cpu_s=10.0, wall_s=wall, **more) for seed, wall, more in (
        (1, 12.0, {"parallel": 1}), (2, 14.0, {"parallel": 2}), (3, 99.0, {"parallel": 3}), (4, 99.0, {}),
        (5, 99.0, {"parallel": None}))]
    found = timing.times(trials, "tgpo", "linear")
    assert found is not None and (found.longest_s, found.wall) == (10.0, (2, 14.0))
    alone = timing.times(trials[2:], "tgpo", "linear")
    assert alone is not None and alone.wall == (0, None)


def test_first_failures_are_shares_of_all_episodes() -> None:
    trials = [trial(first_to_fail={"a": 30, "b": 70, "c": 0}), trial(seed=2, first_to_fail={"a": 90, "b": 10, "c": 0})]
    assert comparison.first_to_fail(trials, "tgpo", "linear_reach") == {"a": 0.06, "b": 0.04}


# ---------------------------------------------------------------- the page


class Tree(HTMLParser):
    """Elements that are open and close again, ids, classes, text by section."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: dict[str, str] = {}
        self.classes: list[str] = []
        self.links: list[str] = []
        self.current = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "section":
            self.current = given["id"] or ""
            self.sections[self.current] = ""
        self.classes += (given.get("class") or "").split()
        self.links += [v for k, v in attrs if k in ("src", "href") and v]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.classes += (dict(attrs).get("class") or "").split()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.current:
            self.sections[self.current] += data


def parsed(study: dict[str, Any]) -> Tree:
    tree = Tree()
    tree.feed(suite_page.page(study))
    assert tree.open == []
    return tree


SHAPES = [{"type": "cylinder", "name": "a<b", "center": [1.0, 2.0, 0.0], "radius": 0.5, "height": 0.1, "role": "goal"},
          {"type": "sphere", "name": "ball", "center": [0.0, 0.0, 1.0], "radius": 0.3, "role": "avoid"},
          {"type": "box", "name": "wall", "low": [0, 0, 0], "high": [1, 1, 1], "role": "avoid"},
          {"type": "box", "name": "fence", "low": [-5, -5, 0], "high": [5, 5, 2], "role": "fence"}]
HEAT = {"x": [0.0, 1.0], "y": [0.0, 2.0, 4.0], "x_label": "t1: at_a", "y_label": "t2: at_b", "best": [1.0, 2.0],
        "value": [[-1.0, 2.0], [None, 3.0], [0.0, 0.5]]}


def whole_study() -> dict[str, Any]:
    drawn = {"shapes": SHAPES, "planar": False, "formula": "F[0,1] x < 1 & y", "cpu_s": 12.0,
             "pooled": timing.POOL, "curve": [[1.0, 10.0, 0.1], *([float(s), 10.0 * s, 0.8] for s in range(3, 10))],
             "first_to_fail": {"F[0,1] x < 1": 100, "y": 0},
             "paths": [{"satisfied": True, "points": [[0, 0, 1], [1, 2, 1]]},
                       {"satisfied": False, "points": [[0, 0, 1], [2, 2, 1]]}]}
    trials = [trial(heat=HEAT, **drawn), trial(method="tau-mdp", satisfied=300, **drawn),
              trial(method="cem", satisfied=20, episodes=50, few_starts=True, plan_s=0.5, **{**drawn, "cpu_s": None}),
              trial(method="f-mdp", status=NOT_SUPPORTED, reason="no <such> form"),
              trial(method="ppo", status=FAILED, reason="exit status 3"),
              *(trial(f"linear_horizon_{n}", m, satisfied=s, **drawn) for n in (50, 1000)
                for m, s in (("tgpo", 990), ("tau-mdp", 400)))]
    rows = [{"name": "linear.tgpo.success", "value": 0.9, "unit": "1", "target": 0.95, "peer": "8 formulas",
             "ok": False},
            {"name": "linear.tau-mdp.success", "value": 0.3, "unit": "1", "target": None, "peer": None, "ok": None}]
    return {"trials": trials, "rows": rows, "command": "temporeal bench stl-tasks", "quick": False, "stale": 2,
            "revisions": ["abc"], "machine": {"cpu": "a <cpu>", "cores": 2}, "tried": {"linear.tgpo.success": "a lot"}}


def test_the_page_has_every_section_with_its_figures() -> None:
    tree = parsed(whole_study())
    assert list(tree.sections) == ["targets", "success", "layers", "formulas", "horizons", "time", "trajectories",
                                   "critic", "failures", "notes"]
    text = tree.sections
    assert "missed" in text["targets"] and "Tried: a lot" in text["targets"]
    assert "tau-mdp" not in text["targets"]  # it has no target
    assert "0.900" in text["success"] and "not supported" in text["success"] and "failed" in text["success"]
    low, high = clopper_pearson(900, 1000)
    assert f"[{low:.3f}, {high:.3f}]" in text["success"]
    assert "linear_reach" in text["formulas"] and "F[0,1] x < 1 & y" in text["formulas"]
    assert "1000" in text["horizons"] and "0.990" in text["horizons"]
    assert "3 s (1 of 1)" in text["time"] and "0.5 s" in text["time"] and "50" in text["time"]
    easy = trial("linear_horizon_50", "cem", satisfied=470, episodes=470, plan_s=0.1)  # in no average
    assert parsed({**whole_study(), "trials": [*whole_study()["trials"], easy]}).sections["time"] == text["time"]
    assert "linear_reach, CEM: 0.400" in text["trajectories"]  # the best of the others there
    assert "t1: at_a" in text["critic"] and "linear_reach, seed 1" in text["critic"]
    assert "10.0% F[0,1] x < 1" in text["failures"]
    assert "no <such> form" in text["notes"] and "exit status 3" in text["notes"]
    assert {"goal", "avoid", "fence", "path", "failed", "start"} <= set(tree.classes)
    assert all(link.startswith("#") for link in tree.links)  # opens without a network


def test_a_mean_over_some_formulas_or_few_starts_says_so() -> None:
    of_nine = Share(0.9, 0.8, 1.0, 6000, formulas=6, seeds=1, starts=(1000, 1000))
    assert averages.extent(of_nine, 9) == ["6 of 9 formulas, 1 seed"]
    assert averages.extent(of_nine, None) == ["6 formulas, 1 seed"]
    whole = Share(0.9, 0.8, 1.0, 3000, formulas=3, seeds=3, starts=(1000, 1000))
    assert averages.extent(whole, 3) == []
    assert averages.extent(whole, 4) == ["3 of 4 formulas, 3 seeds"]
    few = Share(0.9, 0.8, 1.0, 1450, seeds=2, starts=(500, 950))
    assert averages.extent(few, 1) == ["2 seeds", "500 to 950 starts"]
    study = {"trials": [trial(), trial("linear_seq", depth=2), trial("linear_seq", "cem", episodes=50, satisfied=40,
                                                                 depth=2)],
             "rows": [], "tasks": ["linear_reach", "linear_seq", "linear_stay", "linear_horizon_50", "ant_reach"]}
    assert averages.formulas_of(study, "linear") == 3
    assert averages.formulas_of(study, "linear", "two") is None  # nothing was tried on linear_stay
    assert averages.formulas_of({**study, "tasks": []}, "linear", "two") == 1
    text = parsed(study).sections
    assert "2 of 3 formulas, 1 seed" in text["success"] and "1 of 3 formulas, 1 seed; 50 starts" in text["success"]
    assert "1 formula, 1 seed" in text["layers"] and "1 seed; 50 starts" in text["formulas"]


def test_the_page_says_what_only_tgpo_is_given() -> None:
    notes = parsed(whole_study()).sections["notes"]
    assert "the others are given samples only" not in notes
    for told in ("in the middle of missions", "the system's pace", "slopes", "lost", "linear_reach before all",
                 "desired_kl 0.01", "TGPO* from home"):
        assert told in notes, told


def test_the_page_of_nothing_says_so_in_every_section() -> None:
    tree = parsed({"trials": [], "rows": [], "quick": True})
    assert len(tree.sections) == 10 and all(text.strip() for text in tree.sections.values())
    assert "None" not in tree.sections["targets"]


def test_regions_and_episodes_are_where_they_are() -> None:
    svg = figures.view(SHAPES[:1] + SHAPES[3:], [{"satisfied": True, "points": [[-5, -5, 0], [5, 5, 0]]}],
                             (0, 1), "t")
    size, pad = figures.SIDE, figures.SIDE * 0.03 / 1.06
    inner = size - 2 * pad
    assert f'cx="{pad + 0.6 * inner:.1f}" cy="{pad + 0.3 * inner:.1f}" r="{0.05 * inner:.1f}"' in svg  # of (1, 2)
    assert f'points="{pad:.1f},{size - pad:.1f} {size - pad:.1f},{pad:.1f}"' in svg


def test_a_heat_map_has_a_cell_for_each_legal_pair_and_a_ring_on_the_best() -> None:
    svg = figures.heat_map(HEAT)
    assert svg.count(" s: ") - 2 == 5 - 0  # five cells with titles; two axis labels
    assert figures.heat_color(0.0) in svg and figures.heat_color(1.0) in svg
    assert 'cx="220.0" cy="128.0"' in svg  # x = 1 s is the second of two columns, y = 2 s the second of three rows


def test_curves_are_zero_before_their_first_point() -> None:
    points = [[2.0, 0.0, 0.4], [4.0, 0.0, 0.6]]
    assert [figures.last_before(points, s) for s in (1.0, 2.0, 3.9, 9.0)] == [0.0, 0.4, 0.4, 0.6]


def test_only_baselines_and_the_exact_reference_are_drawn_beside_ours() -> None:
    drawn = {"paths": [1]}
    trials = [trial(satisfied=1000, **drawn), trial(method=catalog.HOME, satisfied=990, **drawn),
              trial(method=catalog.UNIFORM, satisfied=980, **drawn), trial(method="tau-mdp", satisfied=800, **drawn)]
    assert suite_page.shown_methods(trials, "linear_reach") == ["tgpo", "tau-mdp"]
    exact = trial(method=catalog.EXACT, satisfied=900, **drawn)
    assert suite_page.shown_methods([*trials, exact], "linear_reach") == ["tgpo", "milp"]


def test_curves_and_times_of_before_are_on_no_page() -> None:
    study = whole_study()
    assert "Success while learning" in suite_page.page(study)
    study["trials"] = [{k: v for k, v in t.items() if k != "pooled"} for t in study["trials"]]
    page = suite_page.page(study)
    assert "Success while learning" not in page and "<td>not measured</td>" in page


def test_what_each_method_was_given_is_told_with_its_longest_trial_and_processors() -> None:
    trials = [trial(cpu_s=140.0, machine={"cpu": "a"}), trial(seed=2, cpu_s=120.0, machine={"cpu": "b"}),
              trial("linear_seq", "npc", cpu_s=150.0, planning_s=210.5, budget_s=150.0, machine={"cpu": "b"}),
              trial(method="cem", status=FAILED)]
    assert timing.given(trials) == [("linear", "TGPO*", "150 s", "140 s (linear_reach)", "a (1), b (1)"),
                                   ("linear", "STL-NPC", "150 s", "360 s (linear_seq)", "b")]
    page = suite_page.page({**whole_study(), "trials": trials})
    assert "on a (1), b (2), unknown (1). " in page and "360 s (linear_seq)" in page
