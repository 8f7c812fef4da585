"""The suite of formulas: what it says it has, and that each can be satisfied from the starts that its file names."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from tests.examples import thinned
from tests.sim.tasks.stl_experts import STEER, corners, perform

from temporeal import configs
from temporeal.policies.evaluate.full_horizon import to_full_horizon
from temporeal.robots.registry import resolve
from temporeal.sim.env import make_env
from temporeal.sim.rewards.scheduled import SCHEDULE, Reward
from temporeal.sim.rotations import rotation
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import children, horizon
from temporeal.sim.stl.language.temporal import Always, Eventually, Until
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.rewriting.normal import positive
from temporeal.sim.stl.rewriting.ranges import margin_upper_bound
from temporeal.sim.stl.rewriting.satisfiability import never_positive, without_unsatisfiable
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.task import load_task, task_schema
from temporeal.sim.task_parts.regions import shapes_of

FOLDER = Path(configs.__file__).parent / "task" / "stl"
TASKS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
STARTS = {"linear": 16, "unicycle": 16, "quadrotor": 12, "franka": 4, "ant": 16}
SCALING = (50, 100, 200, 300, 500, 800, 1000)
_SYSTEMS: dict = {}


def system_of(name):
    if name not in _SYSTEMS:
        _SYSTEMS[name] = resolve("temporeal.sim.systems", name).make()
    return _SYSTEMS[name]


def content(task):
    return yaml.safe_load((FOLDER / f"{task}.yaml").read_text())


def formula_of(task):
    settings = content(task)["settings"]
    return parse(settings["formula"], task_schema(system_of(settings["system"]).scene), settings["constants"])


def layers(formula: Formula) -> int:
    """Temporal operators inside each other, at most."""
    inner = max((layers(child) for child in children(formula)), default=0)
    return inner + isinstance(formula, (Always, Eventually, Until))


@pytest.mark.parametrize("system", STARTS)
def test_each_system_has_four_formulas_of_two_layers_and_four_of_more(system):
    depths = [layers(formula_of(task)) for task in TASKS if task.startswith(f"{system}_") and "horizon" not in task]
    assert sum(d == 1 for d in depths) >= 4 and sum(d > 1 for d in depths) >= 4


@pytest.mark.parametrize("task", TASKS)
def test_a_file_says_what_it_is(task):
    text, settings = (FOLDER / f"{task}.yaml").read_text(), content(task)
    assert "# version: 1" in text.splitlines()
    assert settings["name"] == "stl" and task.startswith(settings["settings"]["system"] + "_")
    system = system_of(settings["settings"]["system"])
    assert (settings["robot"], settings["backend"]) == (system.scene.robot.name, system.backend)
    told = "Multi-layer" if layers(formula_of(task)) > 1 else "Two-layer"
    assert told in " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    unused = [name for name in settings["settings"]["constants"] if name not in settings["settings"]["formula"]]
    assert not unused


@pytest.mark.parametrize("task", TASKS)
def test_a_formula_can_be_decomposed_and_is_not_satisfied_by_standing_still(task):
    settings, formula = content(task)["settings"], formula_of(task)
    system = system_of(settings["system"])
    found = decompose(formula, system.control_dt)
    assert found.samples == round(horizon(formula) / system.control_dt) + 1
    assert decompose(formula, system.control_dt, strict=True).alternatives == found.alternatives
    assert 1 <= max(a.variables for a in found.alternatives) <= 8 and len(found.alternatives) <= 2
    if system.name == "franka":
        return  # its starts are joints
    start = system.initial(corners(8), settings["start"])["base_pos_w"]
    still = {"base_pos_w": start.expand(found.samples, -1, -1).numpy(), "height": start[:, 2].expand(
        found.samples, -1).numpy()}
    assert (robustness(formula, still, dt=system.control_dt)[0] < 0).all()


@pytest.mark.parametrize("task", TASKS)
def test_all_regions_of_a_formula_are_drawn(task):
    settings, formula = content(task)["settings"], formula_of(task)
    shapes = {shape["name"]: shape for shape in shapes_of(formula, system_of(settings["system"]))}
    places = {name for name, value in settings["constants"].items() if isinstance(value, list)}
    assert set(shapes) == places | {"fence"}
    keep_out = {name for name in places if name.startswith(("wall", "o", "p1", "p2", "post", "door"))}
    assert {name for name, shape in shapes.items() if shape["role"] == "avoid"} == keep_out | (places & {"e", "g"})


def test_a_task_that_says_no_slack_has_its_system_s():
    own = load_task("stl", system="quadrotor", formula="F[0,5] (height > 1)")
    assert own.objective.automaton.slack == 0.03 and own.observe.view.automaton.slack == 0.03
    exact = load_task("stl", system="quadrotor", formula="F[0,5] (height > 1)", slack=0.0)
    assert exact.objective.automaton.slack == 0.0
    assert load_task("stl").objective.automaton.slack == 0.05


@pytest.mark.parametrize("task", TASKS)
def test_every_subgoal_of_the_suite_has_room_for_the_slack_of_its_system(task):
    settings = content(task)["settings"]
    automaton = load_task("stl", **settings).objective.automaton
    own = system_of(settings["system"]).slack
    assert {s for p, s in zip(automaton.predicates, automaton.slacks) if p in automaton.reached} == {own}
    assert all(margin_upper_bound(predicate) >= 2 * own for predicate in automaton.reached)


REST = "F[0,10] (norm(base_pos_w - a) < r & norm(base_vel_w) < 0.05 & F[0,8] (norm(base_pos_w - b) < r))"
REST_AT = {"a": [2.0, 2.0, 0.0], "b": [-2.0, 2.0, 0.0], "r": 0.6}


def test_a_subgoal_with_less_room_than_the_slack_counts_at_half_of_its_room():
    automaton = load_task("stl", formula=REST, constants=REST_AT).objective.automaton
    assert dict(zip(map(str, automaton.predicates), automaton.slacks)) == {
        "norm(base_pos_w - a) < r & norm(base_vel_w) < 0.05": 0.025, "norm(base_pos_w - b) < r": 0.05}
    zeros = {name: torch.zeros(2, *shape) for name, shape in automaton.memory.items()}
    at_a, resting = torch.tensor([REST_AT["a"]] * 2), torch.tensor([[0.0, 0.024, 0.0], [0.0, 0.026, 0.0]])
    timed, _ = automaton({"base_pos_w": at_a, "base_vel_w": resting}, torch.tensor([[0.0, 0.0, 40.0]] * 2), zeros)
    assert timed.hit[:, 0].tolist() == [True, False]
    assert timed.distance.tolist() == pytest.approx([4.0 - 0.6 + 0.05, 0.001], abs=1e-5)


@pytest.mark.parametrize(("slack", "told"), [
    (2.0, r"slack is 2, but .* norm\(base_vel_w\) < 0.05 holds by less than 0.05 at best.*legal: below 0.05"),
    (0.06, "below 0.05"), (0.049, ""), (0.05, ""), (None, "")])
def test_a_slack_that_a_subgoal_has_no_room_for_is_refused(slack, told):
    """0.05 is the system's own, and is what a run's file says."""
    if not told:
        load_task("stl", formula=REST, constants=REST_AT, slack=slack)
        return
    with pytest.raises(ValueError, match=told):
        load_task("stl", formula=REST, constants=REST_AT, slack=slack)


@pytest.mark.parametrize(("slack", "own"), [(0.04, 0.04), (0.0, 0.0), (None, 0.025), (0.05, 0.025)])
def test_a_slack_that_a_task_says_is_as_it_says(slack, own):
    automaton = load_task("stl", formula="F[0,5] (norm(base_vel_w) < 0.05)", slack=slack).objective.automaton
    assert automaton.slacks == (own,)


def test_a_margin_that_what_is_kept_has_no_room_for_is_refused():
    formula = "F[0,5] (base_pos_w.x > 1) & G[0,5] (norm(base_vel_w) < 1.2)"
    load_task("stl", formula=formula, margin=1.1)
    with pytest.raises(ValueError, match=r"margin is 1.2, but norm\(base_vel_w\) < 1.2 holds by less .* below 1.2"):
        load_task("stl", formula=formula, margin=1.2)


@pytest.mark.parametrize(("formula", "told"), [
    ("F[0,10] (base_pos_w.x == 1)", "base_pos_w.x == 1 can never hold by more than 0: .* room"),
    ("G[0,5] (base_pos_w.x == 1)", "base_pos_w.x == 1 can never hold by more than 0: .* room"),
    ("F[0,5] (base_pos_w.x > 1) & G[0,5] (norm(base_pos_w) < 0)", r"norm\(base_pos_w\) < 0 can never hold by more"),
    ("G[0,5] (base_pos_w.x > 1) & F[2,2] (base_pos_w.x <= 1)",
     "base_pos_w.x <= 1 and base_pos_w.x > 1 never hold at one time: that leaves no way")])
def test_a_formula_that_can_never_be_done_is_refused(formula, told):
    with pytest.raises(ValueError, match=told):
        load_task("stl", formula=formula)


@pytest.mark.parametrize("view", ["terminal_robustness", "tau_mdp"])
@pytest.mark.parametrize("formula", [
    "F[0,10] (base_pos_w.x == 1)", "G[0,5] (norm(base_pos_w) < 0)", "(base_pos_w.x == 1) U[1,5] (base_pos_w.x > 1)",
    "F[0,5] (base_pos_w.x > 1 & base_pos_w.x <= 1) | F[0,5] (base_pos_w.x == 1)",
    "(base_pos_w.x > 3) R[0,5] (base_pos_w.x == 1)", "F[2,5] (H[0,2] (base_pos_w.x == 1))"])
def test_other_views_refuse_what_can_never_hold_too(view, formula):
    with pytest.raises(ValueError, match="can never hold by more than 0.* no way .* room"):
        load_task("stl", formula=formula, view=view)


@pytest.mark.parametrize(("formula", "told"), [
    ("F[0,5] (base_pos_w.x > 1) & F[0,5] false", "nothing can satisfy the formula"),
    ("G[0,5] (base_pos_w.x > 1) & F[0,5] (base_pos_w.x <= 1)", "never hold at one time"),
    ("F (base_pos_w.x > 1)", r"a window without an end.* such as F\[0,10\]")])
def test_other_views_refuse_what_nothing_can_satisfy_or_no_episode_can_tell(formula, told):
    with pytest.raises(ValueError, match=told):
        load_task("stl", formula=formula, view="terminal_robustness")


@pytest.mark.parametrize(("formula", "never"), [
    ("(base_pos_w.x == 1) U[1,5] (base_pos_w.x > 1)", True), ("(base_pos_w.x == 1) U[0,5] (base_pos_w.x > 1)", False),
    ("(base_pos_w.x > 3) R[0,5] (base_pos_w.x == 1)", True), ("(base_pos_w.x > 3) R[1,5] (base_pos_w.x == 1)", False),
    ("(base_pos_w.x == 2) R[1,5] (base_pos_w.x == 1)", True), ("(base_pos_w.x == 1) W[0,5] (base_pos_w.x > 1)", False),
    ("(base_pos_w.x == 1) W[0,5] (base_pos_w.x == 2)", True), ("X (base_pos_w.x == 1)", True)])
def test_what_never_holds_is_told_by_its_form(formula, never):
    made, _ = without_unsatisfiable(positive(parse(formula, task_schema(load_task("stl").scene))), {})
    assert never_positive(made) == never


def test_other_views_warn_of_parts_that_can_never_hold():
    with pytest.warns(UserWarning, match="base_pos_w.x == 1 can never hold by more than 0: what asks for it is never"):
        load_task("stl", formula="F[0,5] (base_pos_w.x > 1) | F[0,5] (base_pos_w.x == 1)", view="terminal_robustness")


def test_ways_that_can_never_be_gone_are_left_out():
    formula = "F[0,5] (base_pos_w.x > 1) | F[0,5] (norm(base_pos_w) < 0)"
    with pytest.warns(UserWarning, match=r"norm\(base_pos_w\) < 0 can never hold by more than 0: ways .* left out"):
        automaton = load_task("stl", formula=formula).objective.automaton
    assert [str(p) for p in automaton.predicates] == ["base_pos_w.x > 1"] and len(automaton.alternatives) == 1


def test_no_schedule_asks_for_a_predicate_and_its_negation_at_one_sample():
    formula = ("(base_pos_w.x > 0 -> F[0,5] (base_pos_w.y > 1)) & (base_pos_w.x <= 0 -> F[0,5] (base_pos_w.y < -1))")
    task = load_task("stl", formula=formula)
    at_start = [{str(k.predicate) for k in a.keeps} for a in task.objective.automaton.alternatives]
    assert len(at_start) == 3 and {"base_pos_w.x > 0", "base_pos_w.x <= 0"} not in at_start
    assert set(task.schedules.buffer[:, 0].tolist()) == {0.0, 1.0, 2.0}


@pytest.mark.parametrize("said", [{"constants": {"a": [2.0, 2.0, 0.0]}}, {"start": {"low": [0.0, 0.0]}}])
def test_a_task_with_constants_or_a_start_and_no_formula_is_refused(said):
    with pytest.raises(ValueError, match=f"{next(iter(said))} without a formula"):
        load_task("stl", **said)


def test_a_task_that_says_no_coefficient_of_the_reward_has_its_system_s():
    formula = "F[0,5] (grip_pos_w.z > 0.3)"
    own = load_task("stl", system="franka", formula=formula).objective.weights
    assert (own.scale, own.guard, own.hit) == (1.0, 0.05, 10.0)
    said = load_task("stl", system="franka", formula=formula, reward={"scale": 2.0}).objective.weights
    assert (said.scale, said.guard) == (2.0, 0.05)
    assert load_task("stl").objective.weights == Reward()


@pytest.mark.parametrize("system", sorted(STARTS))
def test_learning_begins_all_over_the_arena(system):
    of = system_of(system)
    name = "grip_pos_w" if system == "franka" else "base_pos_w"
    formula = f"F[0,5] ({name}.x > 0.5)" if system == "franka" else "F[0,5] (base_pos_w.x > 1)"
    starts = load_task("stl", system=system, formula=formula).schedules
    state = starts.anywhere(lambda _, count: torch.rand(500, count, generator=torch.Generator().manual_seed(count)))
    place = starts.signals(state, {"tick": torch.zeros(500)})[name]
    for axis, (low, high) in enumerate(zip(of.fence["low"], of.fence["high"])):
        assert place[:, axis].min() >= low - 1e-3 and place[:, axis].max() <= high + 1e-3
        assert place[:, axis].quantile(0.9) - place[:, axis].quantile(0.1) > 0.5 * (high - low)


def test_learning_gives_up_an_ant_that_has_fallen_over_and_no_verdict_does():
    task = load_task("stl", system="ant", formula="F[0,5] (base_pos_w.x > 3) & G[0,5] (base_pos_w.x < 9)")
    objective, env = task.objective, make_env(task, num_worlds=2, seed=1, threads=1, compiled=False)
    env.reset()
    zeros = {name: torch.zeros(2, *shape) for name, shape in objective.carry.items()}
    signals, memory = env.true_signals(), objective.start(env.true_signals(), zeros)
    upright = objective.step(signals, torch.zeros(2, 8), memory)
    tilt = torch.tensor([1.2, 0.9])  # rad, about x: beyond 60 degrees, and not
    quat = torch.stack([(tilt / 2).cos(), (tilt / 2).sin(), 0 * tilt, 0 * tilt], -1)
    tilted = objective.step({**signals, "base_quat_w": quat}, torch.zeros(2, 8), memory)
    assert upright[1].tolist() == [False, False] and tilted[1].tolist() == [True, False]
    assert (upright[0] - tilted[0]).tolist() == pytest.approx([objective.weights.broken, 0.0])
    assert tilted[2]["broken"].tolist() == [0.0, 0.0] and not to_full_horizon(task).objective.step(
        {**signals, "base_quat_w": quat}, torch.zeros(2, 8), memory)[1].any()


@pytest.mark.parametrize("compiled", [False, True])
def test_an_ant_is_shown_which_way_to_go_in_its_own_frame(compiled):
    formula = ("F[0,5] (base_pos_w.x > 3) & F[0,5] (norm(base_pos_w - a) < 1) "
               "& G[0,5] (hypot(base_pos_w.x, base_pos_w.y - 3) > 1)")
    task = load_task("stl", system="ant", formula=formula, constants={"a": [-4.0, -4.0, 1.0]})
    env = make_env(task, num_worlds=32, seed=1, threads=1, compiled=None if compiled else False)
    shown = env.reset().actor[:, -6:].reshape(-1, 2, 3)
    signals, schedule = env.true_signals(), env.task_signals[SCHEDULE]
    place = signals["base_pos_w"]
    to_a = torch.nn.functional.normalize(torch.tensor([-4.0, -4.0, 1.0]) - place, dim=-1)
    away = torch.cat([torch.nn.functional.normalize(place[:, :2] - torch.tensor([0.0, 3.0]), dim=-1),
                      torch.zeros(32, 1)], -1)
    first = schedule[:, 1] <= schedule[:, 2]  # which is asked for first; the variables are in the formula's order
    wanted = torch.where(first[:, None], torch.tensor([1.0, 0.0, 0.0]), to_a)
    turn = rotation(signals["base_quat_w"]).transpose(-1, -2)
    assert first.any() and not first.all()
    for number, way in enumerate((wanted, away)):
        assert torch.allclose(shown[:, number], (turn @ way[..., None])[..., 0], atol=5e-3)


def test_a_hit_is_worth_something_wherever_the_next_subgoal_is():
    with pytest.raises(ValueError, match="reward.hit is at least reward.progress, 12: .*; got 10"):
        load_task("stl", reward={"progress": 12.0})


@pytest.mark.parametrize("name", [f.name for f in fields(Reward)])
def test_no_coefficient_of_the_reward_is_negative(name):
    """Failing would be what pays best."""
    with pytest.raises(ValueError, match=f"reward.{name} (is at least 0|must be positive), got -3"):
        load_task("stl", reward={"hit": 0.0, name: -3.0} if name == "progress" else {name: -3.0})


def test_the_horizons_of_the_scaling_study_are_one_formula():
    one = {}
    for steps in SCALING:
        settings = content(f"linear_horizon_{steps}")["settings"]
        assert decompose(formula_of(f"linear_horizon_{steps}"), system_of("linear").control_dt).samples == steps + 1
        assert settings["constants"].pop("T") == pytest.approx(0.2 * steps)
        one = one or settings
        assert settings == one


@pytest.mark.parametrize("task", thinned(TASKS, keep=lambda task: task.endswith("_reach")))
def test_it_can_be_satisfied_from_every_start(task):
    """By scripted ways, of which one must do, from corners of the starts' box and from within."""
    settings, formula = content(task)["settings"], formula_of(task)
    system = system_of(settings["system"])
    assert system.name in STEER or system.name == "ant"
    steps = round(horizon(formula) / system.control_dt)
    trace = perform(system, settings, task, STARTS[system.name], steps)
    used = {name: value.numpy().astype(np.float64) for name, value in trace.items()}
    best = torch.from_numpy(np.asarray(robustness(formula, used, dt=system.control_dt)[0])).amax(-1)
    assert (best > 0).all(), [round(float(x), 3) for x in best]
