"""Drawn formulas: proven by the system's own dynamics, reproduced by seeds, in shares as set, families apart."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import torch

from temporeal.robots.spec import load_robot
from temporeal.sim.adapters.worlds import recipe
from temporeal.sim.stl.distribution.drawing import (
    CERTIFIED,
    Drawn,
    draw,
    drawn_kind,
    stream,
    task_settings,
)
from temporeal.sim.stl.distribution.kinds import KINDS, PATTERNS
from temporeal.sim.stl.distribution.missions import Draft, structure
from temporeal.sim.stl.distribution.motions import limits, signals
from temporeal.sim.stl.distribution.settings import families, family, world, worlds
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import to_text
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.semantics.robustness import satisfied
from temporeal.sim.system import states_after
from temporeal.sim.task_parts.systems import system_of
from temporeal.sim.tasks import stl

TRAIN = family("train")
HELD_OUT = ("unseen", "deeper", "crowded")


def only(kind: str, **changes: object):
    return replace(TRAIN, shares={kind: 1}, **changes)


def flown(found: Drawn, robot: str) -> dict[str, np.ndarray]:
    """The signals [T+1, ...] of a witness by the model of the system, which training and planners use."""
    system = system_of(robot)
    settings = task_settings(found, world(robot))
    draws = {2: [0.0] * 2, 3: [0.0] * 3}
    state = system.initial(lambda _, count: torch.tensor([draws[count]]), settings["start"])
    at = system.model.state(state)
    command = load_robot(robot).command(system.command)
    low, high = torch.tensor(command.low), torch.tensor(command.high)
    actions = 2 * (torch.from_numpy(found.commands.copy()) - low) / (high - low) - 1
    assert actions.abs().max() <= 1 + 1e-5
    states = torch.cat([at[None], states_after(system.model, at, actions[None])])[:, 0]
    return {name: value.double().numpy() for name, value in system.model.signals(states).items()}


@pytest.mark.parametrize("kind, robot", list(zip(KINDS, cycle(["linear", "unicycle"]))))
def test_every_kind_is_satisfied_by_its_witness_on_the_systems_own_model(kind: str, robot: str) -> None:
    of = world(robot)
    found = draw(of, only(kind), seed=5, index=0)
    formula = parse(found.formula, load_robot(robot).signals, found.constants)
    assert parse(to_text(formula), load_robot(robot).signals, found.constants) == formula
    assert next(iter(decompose(formula, of.dt, strict=True)), None) is not None
    assert horizon(formula, of.dt) == pytest.approx(found.horizon * of.dt) and found.horizon * of.dt <= of.horizon_s
    assert found.robustness >= of.margin
    assert satisfied(formula, flown(found, robot), of.dt)[0]


@pytest.mark.parametrize("robot", [pytest.param("linear", marks=pytest.mark.slow), "unicycle"])
def test_the_environment_moves_as_the_witness(robot: str) -> None:
    """The backend's float32, from the task's own start."""
    of = world(robot)
    found = draw(of, only("sequence", sequence=(2, 2)), seed=9, index=0)
    view = "terminal_robustness"  # no episode ends early
    env = recipe("stl", randomize="none", view=view, **task_settings(found, of)).build(1)
    low, high = limits(of)
    env.reset()
    places = [env.backend.signals()["base_pos_w"].clone()]
    for command in found.commands[:-1]:
        env.step(torch.from_numpy(2 * (command - low) / (high - low) - 1)[None].float())
        places.append(env.backend.signals()["base_pos_w"].clone())
    ours = signals(of, found.place, found.heading, found.commands)["base_pos_w"][:-1]
    assert np.allclose(torch.stack(places)[:, 0].numpy(), ours, atol=1e-5)


def test_a_witness_that_stands_still_proves_nothing() -> None:
    found = draw(world("linear"), only("until"), seed=5, index=0)
    formula = parse(found.formula, load_robot("linear").signals, found.constants)
    lazy = replace(found, commands=np.zeros_like(found.commands))
    assert not satisfied(formula, flown(lazy, "linear"), 0.2)[0]


def test_a_seed_gives_the_same_formulas_and_another_other_ones() -> None:
    of = world("linear")
    one, again, next_, seed, other = (draw(of, TRAIN, 1, 3), draw(of, TRAIN, 1, 3), draw(of, TRAIN, 1, 4),
                                      draw(of, TRAIN, 2, 3), draw(of, family("validation"), 1, 3))
    assert one.formula == again.formula and one.constants == again.constants and one.place == again.place
    assert (one.commands == again.commands).all() and one.robustness == again.robustness
    assert all(x.constants != one.constants and x.place != one.place for x in (next_, seed, other))


def test_families_share_no_stream() -> None:
    of = world("linear")
    first = {stream(of, family(name), seed, index).bytes(16)
             for name in families() for seed in range(2) for index in range(5)}
    assert len(first) == len(families()) * 10
    assert stream(world("unicycle"), TRAIN, 0, 0).bytes(16) not in first


def test_kinds_come_in_their_shares() -> None:
    count = 200
    found = Counter(drawn_kind(stream(world("linear"), TRAIN, 11, k), TRAIN) for k in range(count))
    total = sum(TRAIN.shares.values())
    expected = {kind: count * share / total for kind, share in TRAIN.shares.items()}
    chi_square = sum((found[kind] - n) ** 2 / n for kind, n in expected.items())
    assert chi_square < 27.9  # one in 10,000 of 6 degrees of freedom
    assert draw(world("linear"), TRAIN, 11, 0).kind == drawn_kind(stream(world("linear"), TRAIN, 11, 0), TRAIN)


def test_discs_and_stays_come_as_set() -> None:
    count, of, single = 40, world("linear"), only("reach", later=0.0)
    drawn = [draw(of, single, 2, k) for k in range(count)]
    discs = Counter(sum(f"o{n}" in found.constants for n in range(1, 7)) for found in drawn)
    expected = count * np.array(single.avoid)
    assert sum((discs[k] - n) ** 2 / n for k, n in enumerate(expected)) < 27.9
    stays = sum("] G[0," in found.formula for found in drawn)
    assert abs(stays - count * single.stay) < 4 * np.sqrt(count * 0.25)
    assert any(" F[0" not in draw(of, only("reach", later=1.0), 2, k).formula.split(";")[-1] for k in range(3))


def structures(name: str, count: int = 100) -> set[str]:
    of, missions = world("linear"), family(name)
    out = set()
    for k in range(count):
        rng = stream(of, missions, 7, k)
        out.add(structure(KINDS[drawn_kind(rng, missions)](Draft(rng, of, missions)).template))
    return out


def test_no_held_out_structure_is_one_of_training() -> None:
    known = structures("train", 600)
    assert structures("validation") & known
    for name in HELD_OUT:
        assert not structures(name) & known


def test_structure_leaves_out_where_and_when() -> None:
    assert structure("at_a = x;\nat_c = y;\nF[0,3] (G[0,2] at_c & F[0.2,4] at_a)\n& G[0,9] (z)") == (
        "F (at_1 & F at_2)")
    assert structure("G[0,{t}] F[0,{c0}] at_b") == "G F at_1"
    found = draw(world("linear"), only("sequence", sequence=(2, 2)), 1, 0)
    assert structure(found.formula) == "F (at_1 & F at_2)"


def test_twelve_until_patterns_of_training_open_every_door() -> None:
    assert sum(len(PATTERNS[n]) for n in range(TRAIN.objects[0], TRAIN.objects[1] + 1)) == 12
    for count, patterns in PATTERNS.items():
        for pairs in patterns:
            assert all(a < b < count for a, b in pairs)  # without circles
            assert {x for pair in pairs for x in pair} == set(range(count))


@pytest.mark.parametrize("robot", [name for name in worlds() if name not in ("linear", "unicycle")])
def test_every_world_has_formulas_that_its_task_takes(robot: str) -> None:
    of = world(robot)
    counts: Counter[tuple[str, str]] = Counter()
    found = draw(of, TRAIN, 0, 0, counts)
    assert counts[found.kind, CERTIFIED] == 1
    assert stl.make(**task_settings(found, of)).episode_s == pytest.approx(found.horizon * of.dt)


def test_settings_that_leave_no_room_are_an_error_with_the_reasons() -> None:
    full = replace(world("linear"), radius=(3.0, 3.0))
    with pytest.raises(ValueError, match=r"none of 5 tries was certified: no room \(5\)"):
        draw(full, only("until", attempts=5), 0, 0)
    brief = replace(world("linear"), horizon_s=0.4)
    with pytest.raises(ValueError, match="the horizon is too long"):
        draw(brief, only("sequence", attempts=5), 0, 0)


def test_what_cannot_be_decomposed_within_the_limit_is_not_drawn() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    with pytest.raises(ValueError, match="not decomposable"):
        draw(world("linear"), only("response", attempts=4, alternatives=1), 0, 0, counts)
    assert counts["response", "not decomposable"] >= 1


@pytest.mark.parametrize("seed, index", [(-1, 0), (True, 0), (0, 2**63), (0.5, 0)])
def test_a_seed_is_a_whole_number(seed: object, index: object) -> None:
    with pytest.raises(ValueError, match="whole number of 0 to"):
        draw(world("linear"), TRAIN, seed, index)
