"""Settings of tasks that cannot work are refused with the value, the rule and what is legal."""

from __future__ import annotations

import pytest

from temporeal.robots.registry import names, resolve
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.task import load_task
from temporeal.sim.task_parts.goals import Goals

TASKS = names("temporeal.sim.tasks")
NAN, INF = float("nan"), float("inf")


def refused(task, **settings):
    """What the task says of ``settings``."""
    with pytest.raises(ValueError) as error:
        load_task(task, **settings)
    return str(error.value)


@pytest.mark.parametrize("wrong", ["x", None, True, NAN, INF, {}, (), 10**400, [0.1, None], [1.0] * 7])
@pytest.mark.parametrize("task", TASKS)
def test_a_constant_of_another_kind_or_shape_is_refused_before_it_is_used(task, wrong):
    for key, own in resolve("temporeal.sim.tasks", task).CONSTANTS.items():
        told = refused(task, constants={key: wrong})
        wanted = f"{len(own)} finite numbers" if isinstance(own, tuple) else "a finite number"
        assert told.startswith(f"task {task!r}: constant {key} is {wanted}, as in {key}=")
        assert told.endswith(f"got {wrong!r}")


@pytest.mark.parametrize(("task", "constants", "told"), [
    ("track", {"ax": [1]}, "constant ax is a finite number, as in ax=1.0; got [1]"),
    ("hover", {"home": 1}, "constant home is 3 finite numbers, as in home=[0.0,0.0,1.0]; got 1"),
    ("reach", {"mine": "x"}, "constant 'mine' must be a number or a list of numbers, got 'x'"),
    ("reach", {1: 2.0}, "the name of a constant is a text, got 1"),
])
def test_what_is_wrong_with_a_constant_is_told(task, constants, told):
    assert told in refused(task, constants=constants)


@pytest.mark.parametrize("task", TASKS)
def test_sizes_are_positive(task):
    module = resolve("temporeal.sim.tasks", task)
    for key in getattr(module, "POSITIVE", ()):  # a task that is a formula alone has none of its own
        for wrong in (0, -1):
            told = refused(task, constants={key: wrong})
            assert f"constant {key} must be positive, as in {key}={module.CONSTANTS[key]}; got {wrong}" in told


def test_constants_may_be_whole_numbers_lists_and_below_zero_where_they_are_no_sizes():
    task = load_task("hover", constants={"home": [0, 0, 2], "hold": 1})
    assert (task.constants["home"], task.constants["hold"]) == ([0, 0, 2], 1)
    assert load_task("reach", constants={"floor": -0.1}).constants["floor"] == -0.1


@pytest.mark.parametrize("reach", ["x", None, True, [1.0], NAN, INF, 0, -1.0])
def test_goals_are_met_within_a_positive_distance(reach):
    with pytest.raises(ValueError, match="reach is how near a goal is met: a positive number, got"):
        Goals(SignalSpec("goal", (2,), "m"), 0.05, reach, lambda *_: None, lambda *_: None, 2)


@pytest.mark.parametrize(("task", "settings", "told"), [
    ("reach", {"spread": NAN}, "spread is a finite number, got nan"),
    ("stl", {"slack": "deep"}, "slack is a finite number, or null, got 'deep'"),
    ("stl", {"episode_s": NAN}, "episode_s is a finite number, or null, got nan"),
    ("reach", {"spread": 10**400}, "spread is a finite number, got 1000"),
    ("reach", {"spread": -1}, "spread is 0 to 3.14159 rad, got -1"),
    ("peg", {"clearance": INF}, "clearance is a finite number, got inf"),
    ("cube_reorient", {"step": -1}, "step is above 0, at most 3.14159 rad, got -1"),
    ("cube_reorient", {"step": NAN}, "step is a finite number, got nan"),
    ("cube_rotate", {"step": 0}, "step is above 0, at most 3.14159 rad, got 0"),
    ("cube_rotate", {"step": 4.0, "gait": "stored"}, "step is above 0, at most 3.14159 rad, got 4.0"),
    ("waypoints", {"slack": -0.01}, "slack is 0 to 1 m, got -0.01"),
    ("hover", {"history": 0}, "history is 1 to 500 actions, got 0"),
    ("hover", {"history": 10**9}, "history is 1 to 500 actions, got 1000000000"),
    *((task, {"control_dt": dt}, f"control_dt is 0.001 to 1 s, got {dt}")
      for task in ("hover", "lift") for dt in (0, -0.04, 1e9, 1e-9)),
    *((task, {"substeps": count}, f"substeps is 1 to 1000, got {count}")
      for task in ("hover", "lift") for count in (0, -1, 10**9)),
    ("reach", {"reward": {"far": 10**400}}, "reward.far is a finite number, got 1000"),
    ("lift", {"control_dt": None}, "control_dt is a finite number, got None"),
    ("lift", {"control_dt": INF}, "control_dt is a finite number, got inf"),
    ("lift", {"substeps": True}, "substeps is a whole number, got True"),
])
def test_numbers_that_cannot_work_are_refused(task, settings, told):
    assert told in refused(task, **settings)


def test_the_physics_step_is_short_enough_for_contacts_and_long_enough_to_count():
    told = refused("lift", substeps=3)
    assert "physics step control_dt / substeps must be at most 0.01 s where bodies touch, got 0.04 s / 3" in told
    assert told.endswith("set substeps to 4 or more")
    assert load_task("lift", substeps=4).substeps == 4
    assert "at most 0.01 s where bodies touch, got 0.05 s / 4" in refused("ant", substeps=4)
    assert "at most 0.05 s in flight, got 0.1 s / 1 = 0.1 s: set substeps to 2 or more" in refused(
        "hover", control_dt=0.1, substeps=1)
    assert load_task("hover", control_dt=0.1, substeps=2).substeps == 2
    assert load_task("hover", control_dt=0.1).substeps > 2  # as short as the motors are quick
    assert "must be at least 1e-05 s, got 0.001 s / 1000 = 1e-06 s: fewer" in refused(
        "lift", control_dt=0.001, substeps=1000)


# ---------------------------------------------------------------- formulas


P, Q, R = "(grip_pos_w.z > floor)", "(norm(grip_pos_w - goal_pos_w) < reach)", "(grip_pos_w.x > 0.4)"
TAKEN = [f"F[0,2] {Q}", f"F[0,2] {Q} & G[0,3] {P}", f"F[0,2] G[0,1] {Q}", f"F[0,1] ({Q} & F[1,2] {R})",
         f"F[0,1] ({Q} & F[1,2] G[0,1] {R})", f"F[0,1] ({Q} & {P} U[0,2] {R})", f"{P} U[0,2] {Q}",
         f"F[0,1] ({Q} & F[0,1] ({R} & F[0,1] {Q}))", f"F[0,1] {Q} & F[0,2] {R} & G[1,2] (!{P} | {P})",
         f"F[0,2] ({Q} | {R})", f"F[0,2] {Q} & G[0,2] ({P} -> {P})"]
REFUSED = [f"F[0,1] {Q} | F[0,2] {R}", f"F[0,1] {Q} -> F[0,2] {R}", f"G[0,2] F[0,1] {Q}", f"G[0,2] ({P} U[0,1] {Q})",
           f"(F[0,1] {P}) U[0,2] {Q}", f"{P} W[0,2] {Q}", f"{P} R[0,2] {Q}", f"F[0,1] (F[0,1] {Q} & F[1,2] {R})",
           f"G {Q}"]


@pytest.mark.parametrize("formula", TAKEN)
def test_the_forms_that_a_refusal_names_are_taken(formula):
    assert load_task("reach", formula=formula).formula_text == formula


@pytest.mark.parametrize("formula", REFUSED)
def test_a_formula_that_is_no_sequence_is_told_the_forms_that_are(formula):
    with pytest.raises(FormulaError) as error:
        load_task("reach", formula=formula)
    told = str(error.value)
    assert told.startswith("task 'reach': ")
    own = "Tasks with a reward of their own (arm_track, hover, track)"
    for part in ("F[a,b] (p & F[c,d] q)", "Not taken: | or ->", own):
        assert part in told


def test_a_formula_without_an_end_is_not_told_the_forms_of_other_tasks():
    with pytest.raises(FormulaError) as error:
        load_task("stl", formula="F base_pos_w.x > 1")
    told = str(error.value)
    assert "its window has no end" in told and "every formula whose windows end" in told and "Not taken" not in told


def test_a_constant_that_nothing_names_is_told_those_that_are_named():
    with pytest.raises(ValueError, match="nor the task names 'unused'; constants: a, r$"):
        load_task("stl", formula="F[0,5] norm(base_pos_w - a) < r", constants={"a": [1, 1, 0], "r": 1, "unused": 3})
    with pytest.raises(ValueError, match="nor the task names 'unused'; constants: none$"):
        load_task("stl", formula="F[0,5] base_pos_w.x > 1", constants={"unused": 3})


def test_the_tasks_that_take_every_formula_are_those_named():
    formula = "G[0,1] F[0,1] (mission_time > -1)"
    taken = []
    for task in TASKS:
        if "formula" not in resolve("temporeal.sim.tasks", task).make.__kwdefaults__:
            continue  # its instructions are its formulas
        try:
            load_task(task, formula=formula)
            taken.append(task)
        except FormulaError as error:
            assert "Tasks with a reward of their own (arm_track, hover, track), and task=stl" in str(error)
    assert taken == ["arm_track", "hover", "stl", "track"]
