"""Scenes have what instructions name; the suite's formula judges each world as its own instruction's formula does."""

from functools import cache

import numpy as np
import pytest
import torch
import yaml
from tests.bridge import foreign_robots

from temporeal.policies.data.demonstrators.tabletop import tabletop
from temporeal.sim.env import make_env
from temporeal.sim.physics.mujoco.mjcf import SEEN_ONLY
from temporeal.sim.stl.instructions.formulas import formula
from temporeal.sim.stl.instructions.grammar import (
    COLORS,
    HELD_OUT_WORDS,
    KINDS,
    SUITE,
    held_out,
    in_words,
    instructions,
    parse,
    require_present,
    sentences,
)
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.tabletop.objective import kinds_in
from temporeal.sim.tabletop.objects import BODIES, CABINET, GAP, HALF, RADIUS, RGB
from temporeal.sim.tabletop.scenes import Start, appearance, choices, possible, present
from temporeal.sim.tabletop.signals import ABSENT, Asked
from temporeal.sim.task import load_task
from temporeal.sim.task_parts.arms.arm import arm

WORLDS = 512


@cache
def task():
    return load_task("tabletop")


def drawn(start, worlds=WORLDS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return start(lambda stream, count: torch.rand(worlds, count, generator=generator))


def signals_of(state):
    """The true signals at the start, of the places alone."""
    sim = {name: value for name, value in state.items() if name.endswith("_pos_w")}
    worlds = len(state["asked"])
    for name in ("tray", "plate"):
        sim[f"{name}_pos_w"] = torch.cat([state[f"{name}_place"], torch.zeros(worlds, 1)], -1)
    for i, name in enumerate(("left_zone_pos_w", "right_zone_pos_w", "drawer_at_w", "button_at_w")):
        sim[name] = torch.full((worlds, 3), float(i + 1))
    extra = Asked()
    return {**sim, **extra(sim, torch.zeros(worlds, 0), {name: state[name] for name in extra.carry})[0]}


def asked(state):
    return [parse(SUITE.decode(row.int().numpy())) for row in state["tokens"]]


@pytest.mark.parametrize("split", ["train", "held_out_combinations", "held_out_wordings"])
def test_scenes_have_what_is_asked_for_where_the_signals_say(split):
    kinds = KINDS[:5] if split == "held_out_combinations" else KINDS
    state = drawn(Start(arm("tabletop", "franka"), choices(kinds, split)))
    signals = signals_of(state)
    for world, instruction in enumerate(asked(state)):
        require_present(instruction, present(state["colors"][world]))
        assert held_out(instruction) == (split == "held_out_combinations")
        assert KINDS[int(state["asked"][world])] == instruction.kind
        there = {"drawer": "drawer_at_w", "button": "button_at_w"}
        target = there.get(instruction.target, f"{instruction.target}_pos_w")
        assert torch.equal(signals["target_pos_w"][world], signals[target][world])
        place = f"{instruction.place}_pos_w" if instruction.place else target
        assert torch.equal(signals["place_pos_w"][world], signals[place][world])


def test_each_scene_admits_several_instructions_of_each_kind():
    state = drawn(Start(arm("tabletop", "franka"), choices(KINDS, "train")), 64)
    for colors in state["colors"]:
        things = present(colors)[: len(BODIES)]
        assert len(set(things)) == len(BODIES) and things[0] != things[1]
        has = {"", *present(colors)}
        assert sum(possible(i) and {i.target, i.place} <= has for i in instructions()) == 48
    counts = torch.bincount(drawn(task().initial)["asked"].long(), minlength=len(KINDS))
    assert (counts > WORLDS / len(KINDS) / 2).all()


def test_wordings_of_a_split_are_its_own():
    start = arm("tabletop", "franka")
    for split, wording in (("train", "train"), ("held_out_wordings", "held_out")):
        state = drawn(Start(start, choices(KINDS, split)), 128)
        for row, instruction in zip(state["tokens"], asked(state)):
            assert SUITE.decode(row.int().numpy()) in sentences(instruction, wording)
    words = {w for row in drawn(task().initial, 256)["tokens"] for w in SUITE.decode(row.int().numpy()).split()}
    assert not words & set(HELD_OUT_WORDS)


def test_things_lie_apart_from_each_other():
    state = drawn(task().initial)
    places = torch.stack([state[f"{name}_pos_w"][:, :2] for name in BODIES], 1)
    apart = torch.cdist(places, places) + torch.eye(len(BODIES))
    assert apart.min() > 2.8 * HALF  # a diagonal of a cube, and a little


def test_pictures_show_the_colours_that_are_named():
    state = drawn(task().initial, 32)
    shown = appearance(state)
    for world in range(32):
        for body, thing in zip(BODIES, present(state["colors"][world])):
            assert shown[f"color.{body}.geom"][world].tolist() == pytest.approx(RGB[thing.partition("_")[0]])
    assert set(RGB) == set(COLORS)


def test_what_the_scene_lacks_is_far_away():
    state = drawn(task().initial, 32)
    signals = signals_of(state)
    for world in range(32):
        has = set(present(state["colors"][world]))
        for name in (f"{color}_cube" for color in COLORS):
            assert (signals[f"{name}_pos_w"][world].tolist() == list(ABSENT)) == (name not in has)


def walk(instruction, rng, steps):
    """Random true signals [T, ...] in which what an instruction names does now this, now that."""
    names = [instruction.target] if instruction.target not in ("drawer", "button") else []
    names += [instruction.place] if instruction.place else []
    start = rng.uniform(-0.03, 0.03, 3) + [0.5, 0.0, 0.05]
    signals = {f"{name}_pos_w": start + np.cumsum(rng.normal(0, 0.006, (steps, 3)), 0) for name in (*names, "grip")}
    signals["drawer_pos"], signals["button_pos"] = (np.cumsum(rng.normal(0, s, steps)) for s in (0.01, 0.001))
    signals["grip_pos_w"][:, 2] = 0.02 + signals["grip_pos_w"][:, 2].clip(0.0)
    return signals


def test_the_formula_of_the_suite_is_each_world_s_own():
    """The same robustness to the last bit, whatever the kinds of the other implications are."""
    suite, rng = task(), np.random.default_rng(0)
    steps = suite.steps + 1
    verdicts = []
    for instruction in suite.initial.chosen.listed[::7]:
        signals = walk(instruction, rng, steps)
        zeros = np.zeros((steps, 3))
        generic = {"target_pos_w": signals.get(f"{instruction.target}_pos_w", zeros),
                   "place_pos_w": signals.get(f"{instruction.place}_pos_w", zeros),
                   "kind": np.full(steps, float(KINDS.index(instruction.kind)))}
        own = robustness(formula(instruction), signals, suite.control_dt)[0]
        assert robustness(suite.formula, {**signals, **generic}, suite.control_dt)[0] == own
        verdicts.append(own > 0)
    assert 0 < sum(verdicts) < len(verdicts)


def test_told_starts_have_the_sentence_and_its_scene():
    start = task().initial.told("Stack the red cube on the blue cylinder.")
    state = drawn(start, 8)
    for world, instruction in enumerate(asked(state)):
        assert in_words(instruction.target) == "red cube"
        require_present(instruction, present(state["colors"][world]))
    with pytest.raises(InstructionError, match="two"):
        task().initial.told("stack the red cylinder on the blue cylinder")


def test_a_smaller_arm_has_smaller_things(tmp_path):
    robot = str(foreign_robots.arm(tmp_path / "arm").model.parent)
    small = load_task("tabletop", robot=robot)
    size = small.objective.size
    assert 0.5 < size < 0.9 and small.constants["inside"] == size * task().constants["inside"]
    env = make_env(small, num_worlds=4, threads=1, compiled=False)
    env.reset()
    assert env.backend.model.mj.geom("ball.geom").size[0] == pytest.approx(size * RADIUS)
    assert torch.isfinite(env.step(torch.zeros(4, env.action_dim)).reward).all() and env.diverged == 0
    turned, looked = small.scene.views["front"], task().scene.views["front"]
    assert turned.pos[2] == pytest.approx(arm("tabletop", robot).scale * looked.pos[2])
    assert env.backend.model.mj.geom("tray.rim").contype == SEEN_ONLY  # a URDF's compiler drops looks
    with pytest.raises(ValueError, match="is for arms, and robot 'ant' is of kind 'quadruped'"):
        load_task("tabletop", robot="ant")


def test_before_a_smaller_arm_the_handle_stays_and_its_gap_is_for_a_hand(tmp_path):
    robot = str(foreign_robots.arm(tmp_path / "arm").model.parent)
    of, small = arm("tabletop", robot), load_task("tabletop", robot=robot, kinds="open")
    env = make_env(small, num_worlds=1, threads=1, compiled=False)
    env.reset()
    front, bar = (env.backend.model.mj.geom(f"cabinet.{name}") for name in ("front", "bar"))
    assert front.pos[0] - front.size[0] - bar.pos[0] == pytest.approx(GAP)  # as before an arm that reaches a metre
    handle = of.in_front(torch.tensor([[CABINET[0] - 0.01 - GAP, CABINET[1]]]))
    assert torch.allclose(env.true_signals()["drawer_at_w"][:, :2], handle, atol=1e-5)


def test_an_arm_without_a_gripper_does_what_needs_no_fingers(tmp_path):
    folder = foreign_robots.arm(tmp_path / "arm").model.parent
    said = yaml.safe_load((folder / "spec.yaml").read_text())
    del said["gripper"], said["commands"]["arm_cmd"]
    (folder / "spec.yaml").write_text(yaml.safe_dump(said))
    bare = load_task("tabletop", robot=str(folder), kinds="reach+push+press")
    assert bare.command == "joint_pos_cmd" and bare.act.action_dim == 6
    assert "spitze_pos_w.z > floor" in bare.formula_text
    env = make_env(bare, num_worlds=2, threads=1, compiled=False)
    env.reset()
    expert = tabletop(bare, 2)
    assert torch.isfinite(env.step(expert(env.true_signals(), torch.ones(2))).reward).all()
    with pytest.raises(ValueError, match="kinds stack, open need fingers, .*kinds=reach.push.press, or say gripper"):
        load_task("tabletop", robot=str(folder), kinds="reach+stack+open")


def test_settings_that_name_nothing_are_refused():
    assert kinds_in("push+reach") == ["reach", "push"] and kinds_in("all") == list(KINDS)
    with pytest.raises(ValueError, match="kinds are reach, .* got 'fly'"):
        kinds_in("push+fly")
    with pytest.raises(ValueError, match="split is one of train"):
        choices(KINDS, "test")
    with pytest.raises(ValueError, match=r"no instruction of kind open, press.* \(reach\+push\+pick\+place\+stack\)"):
        choices(KINDS, "held_out_combinations")


def test_an_episode_lasts_as_long_as_its_longest_kind():
    assert load_task("tabletop", kinds="reach").episode_s == 4.0
    assert task().episode_s == 10.0
