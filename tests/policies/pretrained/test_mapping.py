"""A mapping does what its file says: units, orders, deltas, steps of the tool; and says what does not fit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import yaml
from tests.policies.pretrained import tiny_openvla
from tests.policies.pretrained.folders import CONFIG, model

from temporeal.policies.pretrained import mapping as mappings
from temporeal.policies.pretrained.binding import Robot, bind, read_by, rotation_vectors
from temporeal.policies.pretrained.inference import check
from temporeal.policies.pretrained.mapping import MappingError, mapping_of, read_mapping
from temporeal.policies.pretrained.serving.features import check_interface
from temporeal.policies.pretrained.serving.folders import open_folder
from temporeal.policies.pretrained.serving.interface import Field, Interface, digest_of
from temporeal.robots.franka.spec import SPEC
from temporeal.robots.motion.cartesian_servo import servo_of
from temporeal.robots.signals import SignalSpec

PICTURE = SignalSpec("front_rgb", (4, 5, 3), dtype="uint8")
WORDS = SignalSpec("instruction", (4,), "token", dtype="int32")
SCHEMA = {**SPEC.signals, "front_rgb": PICTURE, "instruction": WORDS}
JOINTS = list(range(7))


def given(**changes: Any) -> dict[str, Any]:
    """A mapping for the Franka arm with a gripper, as a YAML file says it."""
    return {
        "dataset": "someone/pushes", "robot": "franka", "command": "arm_cmd", "rate_hz": 20, "execute": 8,
        "instruction": {"text": "push the red cube"},
        "inputs": {"observation.state": [
            {"signal": "joint_pos", "unit": "rad", "model_unit": "deg"},
            {"signal": "finger_pos", "components": [1], "unit": "m", "model_unit": "1", "gain": 25.0, "offset": -0.5}],
            "observation.images.front": [{"signal": "front_rgb", "resize": True}]},
        "action": {"size": 8, "parts": [
            {"kind": "absolute", "action": JOINTS, "command": JOINTS, "unit": "rad", "model_unit": "deg"},
            {"kind": "absolute", "action": [7], "command": [7], "unit": "m", "model_unit": "1", "gain": 0.04}]},
        **changes}


def robot(command: str = "arm_cmd") -> Robot:
    return Robot("franka", SCHEMA, SPEC.command(command), servo_of(SPEC),
                 lambda tokens: " ".join("push pull".split()[k - 1] for k in tokens if k))


def signals(worlds: int = 2) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    home = np.array(SPEC.home["joint_pos"]) + draw.normal(0, 0.05, (worlds, 7))
    return {"joint_pos": home, "finger_pos": draw.uniform(0, 0.04, (worlds, 2)),
            "front_rgb": draw.integers(0, 256, (worlds, 4, 5, 3), np.uint8),
            "instruction": np.array([[1, 2, 0, 0]] * worlds, np.int32)}


def part(kind: str, **keys: Any) -> dict[str, Any]:
    """The action of a mapping for positions of seven joints."""
    return {"size": 7, "parts": [{"kind": kind, "action": JOINTS, "command": JOINTS, "unit": "rad", **keys}]}


def one_tool(**keys: Any) -> dict[str, Any]:
    """The action of a mapping for steps of the tool."""
    return {"size": 6, "parts": [{"kind": "tool", "action": JOINTS[:6], "command": JOINTS[:6], **keys}]}


def test_inputs_are_in_the_models_units_and_order():
    seen, bound = signals(), bind(mapping_of(given()), robot())
    inputs = bound.inputs(seen)
    np.testing.assert_allclose(inputs["observation.state"][:, :7], np.degrees(seen["joint_pos"]), rtol=1e-6)
    np.testing.assert_allclose(inputs["observation.state"][:, 7], 25.0 * seen["finger_pos"][:, 1] - 0.5, rtol=1e-5)
    np.testing.assert_array_equal(inputs["observation.images.front"], seen["front_rgb"])
    assert [(f.name, f.shape, f.dtype, f.unit) for f in bound.interface.inputs] == [
        ("observation.state", (8,), "float32", "deg,1"), ("observation.images.front", (4, 5, 3), "uint8", "1")]
    assert bound.sentences(seen, 2) == ["push the red cube"] * 2


def test_the_sentence_may_be_a_signal():
    bound = bind(mapping_of(given(instruction={"signal": "instruction"})), robot())
    assert bound.sentences(signals(), 2) == ["push pull"] * 2
    assert "instruction" in read_by(bound.mapping, SCHEMA)


def test_absolute_actions_are_commands_in_our_units():
    action = np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)
    rows = bind(mapping_of(given()), robot()).rows(action, signals())
    np.testing.assert_allclose(rows[..., :7], np.radians(action[..., :7]), rtol=1e-6)
    np.testing.assert_allclose(rows[..., 7], 0.04 * action[..., 7], rtol=1e-6)


@pytest.mark.parametrize("relative", ["start", "previous"])
def test_deltas_start_from_where_the_robot_is(relative):
    action, seen = np.random.default_rng(1).normal(size=(2, 3, 7)).astype(np.float32), signals()
    found = given(command="joint_pos_cmd", action=part("delta", base="joint_pos", relative_to=relative, gain=0.1))
    rows = bind(mapping_of(found), robot("joint_pos_cmd")).rows(action, seen)
    steps = 0.1 * (action if relative == "start" else np.cumsum(action, 1))
    np.testing.assert_allclose(rows, seen["joint_pos"][:, None] + steps, rtol=1e-5, atol=1e-6)


def tool(command: str, size: int, gain: Any = 1.0) -> dict[str, Any]:
    parts = [{"kind": "tool", "action": list(range(6)), "command": list(range(size)), "gain": gain}]
    return given(command=command, action={"size": 7, "parts": parts, "ignored": [6]})


def test_steps_of_the_tool_are_its_velocity():
    action = np.ones((1, 2, 7), np.float32)
    bound = bind(mapping_of(tool("tool_vel_cmd", 6, [0.01, 0.01, 0.01, 0.1, 0.1, 0.1])), robot("tool_vel_cmd"))
    np.testing.assert_allclose(bound.rows(action, signals(1))[0, 0], [0.2] * 3 + [2.0] * 3, rtol=1e-6)


def test_steps_of_the_tool_move_the_tool_through_the_joints():
    """By the arm's kinematics: three steps of 5 mm along x."""
    seen = {**signals(1), "joint_pos": np.array([SPEC.home["joint_pos"]])}
    action = np.zeros((1, 3, 7), np.float32)
    action[..., 0] = 0.005
    bound = bind(mapping_of(tool("joint_pos_cmd", 7)), robot("joint_pos_cmd"))
    rows = bound.rows(action, seen)
    chain = servo_of(SPEC).chain
    before, after = chain(seen["joint_pos"][0])[0], chain(rows[0, -1].astype(float))[0]
    np.testing.assert_allclose(after - before, [0.015, 0.0, 0.0], atol=3e-4)
    assert "joint_pos" in read_by(bound.mapping, SCHEMA)


def test_rotation_vectors_of_attitudes():
    turn = np.array([np.cos(0.3), 0.0, 0.0, np.sin(0.3)])
    np.testing.assert_allclose(rotation_vectors(np.stack([turn, -turn, [1.0, 0, 0, 0]])),
                               [[0, 0, 0.6], [0, 0, 0.6], [0, 0, 0]], atol=1e-12)
    inputs = {"observation.state": [{"signal": "grip_quat_w", "unit": "wxyz", "model_unit": "1",
                                     "turns_as": "rotation_vector"}]}
    bound = bind(mapping_of(given(inputs=inputs)), robot())
    np.testing.assert_allclose(bound.inputs({"grip_quat_w": turn[None]})["observation.state"], [[0, 0, 0.6]], atol=1e-6)


def test_the_hash_is_of_what_is_said_not_of_how(tmp_path):
    one, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_text(yaml.safe_dump(given()))
    other.write_text("# a comment\n" + yaml.safe_dump(given(), sort_keys=False, default_flow_style=True))
    assert read_mapping(one).digest() == read_mapping(other).digest()
    assert mapping_of(given(rate_hz=25)).digest() != read_mapping(one).digest()


def test_how_an_openvla_decodes_is_hashed_and_of_it_alone(tmp_path):
    """Mappings without the key keep their hash."""
    plain, two = mapping_of(given()), [mapping_of(given(openvla={**tiny_openvla.OFT, "rows": n})) for n in (8, 25)]
    said = asdict(plain)
    assert said.pop("openvla") is None and plain.digest() == digest_of(said)
    assert len({found.digest() for found in (plain, *two)}) == 3 and two[1].openvla.rows == 25
    with pytest.raises(MappingError, match="openvla.rows is '1000000000'; a whole number from 1 to 1000 is needed"):
        mapping_of(given(openvla={**tiny_openvla.OFT, "rows": 10**9}))
    with pytest.raises(MappingError, match="openvla is of OpenVLA's kind of model; .* is of kind smolvla"):
        check(model(tmp_path / "smolvla"), mapping_of(given(action=ONE, openvla=tiny_openvla.OFT)))
    folder = tiny_openvla.folder(tmp_path / "oft", weights={"a": np.zeros(1), "b": np.zeros(1)})
    asked = {"dataset": tiny_openvla.SET, "openvla": tiny_openvla.OFT, "action": part("absolute")}
    assert check(folder, mapping_of(given(**asked)))[0].kind == "openvla"
    for key, value in (("history", "repeat"), ("not_normalized", ["action"])):
        with pytest.raises(MappingError, match=f"for which {key} does nothing"):
            check(folder, mapping_of(given(**asked, **{key: value})))


@pytest.mark.parametrize(("changes", "says"), [
    ({"rate_hz": 0}, "rate_hz is above 0"), ({"rate_hz": "20"}, "no finite number"),
    ({"extra": 1}, "unknown key 'extra'"),
    ({"inputs": {}}, "reads nothing"), ({"inputs": {"a": []}}, "a list is needed"), ({"dataset": ""}, "no text"),
    ({"inputs": {"a": [{"signal": "joint_pos", "gain": float("nan")}]}}, "finite"), ({"execute": 0}, "from 1 to 1000"),
    ({"instruction": {"text": "a", "signal": "b"}}, "not both"), ({"history": "zeros"}, "legal: repeat"),
    ({"action": {"size": 9, "parts": given()["action"]["parts"]}}, "its 9 numbers are each used once"),
    ({"action": part("delta")}, "needs base"), ({"action": part("jump")}, "legal: absolute, delta, tool"),
    ({"action": part("absolute", gain=[1.0])}, "7 numbers have 1 gains"),
    ({"action": part("absolute", base="joint_pos")}, "kind absolute takes none of these"),
    ({"action": part("absolute", relative_to="start")}, "kind absolute takes none of these"),
    ({"action": part("absolute", components=[0])}, "kind absolute takes none of these"),
    ({"action": part("absolute", command=JOINTS[:6])}, "7 numbers of the action for 6 of the command"),
    ({"action": part("absolute", command=[0, 1, 2, 3, 4, 5, 5])}, "the numbers of the command are each given once"),
    ({"action": {**one_tool(action=JOINTS[:5]), "size": 5}}, "takes six numbers"),
    ({"action": one_tool(unit="m")}, "no offset, unit or base"), ({"action": one_tool(base="joint_pos")}, "or base"),
    ({"action": one_tool(offset=0.1)}, "no offset"), ({"action": one_tool(relative_to="start")}, "or base"),
    ({"action": part("absolute", offset=[1])}, "finite number"), ({"seed": -1}, "whole number from 0"),
    ({"openvla": {"decoding": "parallel", "rows": 8}}, "openvla: bounds, center_crop is missing"),
    ({"openvla": {**tiny_openvla.OFT, "rows": 0}}, r"openvla\.rows is '0'"),
    ({"openvla": {**tiny_openvla.OFT, "decoding": "diffusion"}}, "legal: parallel, autoregressive"),
    ({"openvla": {**tiny_openvla.OFT, "center_crop": 1}}, "true or false"),
])
def test_a_mapping_that_cannot_be_read_names_the_key(changes, says):
    with pytest.raises(MappingError, match=says):
        mapping_of(given(**changes))


def inputs(**keys: Any) -> dict[str, Any]:
    return {"inputs": {"observation.state": [{"signal": "joint_pos", "unit": "rad", **keys}]}}


@pytest.mark.parametrize(("changes", "says"), [
    ({"robot": "ant"}, "is for robot 'ant', the task as set has 'franka'"),
    ({"command": "joint_pos_cmd"}, "the task as set takes 'arm_cmd'"),
    (inputs(signal="joint_position"), r"no signal 'joint_position'; the task as set shows: joint_pos"),
    (inputs(unit="deg"), "unit of joint_pos is 'rad', the mapping says 'deg'"),
    (inputs(unit=""), "unit of joint_pos is 'rad', the mapping says ''"),
    (inputs(model_unit="m"), "no way from 'rad' to 'm'"), (inputs(components=[7]), "components 0 to 6"),
    (inputs(turns_as="rotation_vector"), "of attitudes"),
    ({"inputs": {"a": [{"signal": "front_rgb"}, {"signal": "front_rgb"}]}}, "an input of its own"),
    ({"inputs": {"a": [{"signal": "front_rgb", "gain": 2.0}]}}, "no key but resize"),
    (inputs(resize=True), "resize is of pictures, joint_pos is none"),
    ({"action": part("absolute")}, "command 'arm_cmd' has 8 numbers, the mapping gives 7"),
    ({"action": part("delta", base="finger_pos", relative_to="start")}, "unit of finger_pos is 'm'"),
    ({"action": part("delta", base="joint_pos", relative_to="start", components=[0, 1])}, "2 components of joint_pos"),
    ({"action": {**part("delta", base="joint_pos", relative_to="start", command=[0], action=[0]), "size": 1}},
     "7 components of joint_pos for 1"),
    ({"instruction": {"signal": "words"}}, "no signal 'words'"),
])
def test_a_mapping_that_does_not_fit_names_value_and_rule(changes, says):
    with pytest.raises(MappingError, match=says):
        bind(mapping_of(given(**changes)), robot())


@pytest.mark.parametrize(("command", "numbers", "servo"), [
    ("joint_pos_cmd", JOINTS, False), ("joint_vel_cmd", JOINTS, True), ("joint_pos_cmd", JOINTS[:6], True)])
def test_steps_of_the_tool_need_an_arm(command, numbers, servo):
    """Its kinematics, positions as the command, and all joints."""
    arm = Robot("franka", SCHEMA, SPEC.command(command), servo_of(SPEC) if servo else None)
    with pytest.raises(MappingError, match="of an arm with known kinematics"):
        bind(mapping_of(tool(command, len(numbers))), arm)


def test_a_tools_velocity_is_the_whole_command():
    turned = [1, 0, 2, 3, 4, 5]
    found = given(command="tool_vel_cmd", action=one_tool(command=turned))
    with pytest.raises(MappingError, match="takes its numbers 0 to 5"):
        bind(mapping_of(found), robot("tool_vel_cmd"))


def test_words_that_nobody_knows_are_no_sentence():
    with pytest.raises(MappingError, match="are not known here"):
        bind(mapping_of(given(instruction={"signal": "instruction"})), Robot("franka", SCHEMA, SPEC.command("arm_cmd")))


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(MappingError, match="cannot be read"):
        read_mapping(tmp_path / "map.yaml")
    for text, says in (("a: [", "map.yaml"), ("!!python/object:os.system {}", "map.yaml"), ("- 1", "a group of keys")):
        (tmp_path / "map.yaml").write_text(text)
        with pytest.raises(MappingError, match=says):
            read_mapping(tmp_path / "map.yaml")


def test_the_docstring_shows_a_mapping(tmp_path):
    """The example of the module is one that can be read."""
    text = str(mappings.__doc__).partition("carries it out.\n")[2].partition("\ndocs/")[0]
    found = mapping_of(yaml.safe_load(text))
    assert found.execute == 8 and found.sentence_signal == "instruction"


ONE = {"size": 2, "parts": [{"kind": "absolute", "action": [0, 1], "command": [0, 1], "unit": "rad"}]}


def test_a_model_is_checked_by_its_mapping(tmp_path):
    folder, found = check(model(tmp_path, trained_on="someone/pushes"), mapping_of(given(action=ONE)))
    assert folder.kind == "smolvla" and found is not None and found.source == "train_config"
    with pytest.raises(ValueError, match="was trained on 'a/b'"):
        check(model(tmp_path, trained_on="a/b"), mapping_of(given(action=ONE)))
    two = model(tmp_path, {**CONFIG, "n_obs_steps": 2}, trained_on="someone/pushes")
    assert check(two, mapping_of(given(action=ONE, history="repeat")))[0].config["n_obs_steps"] == 2


@pytest.mark.parametrize(("changes", "config", "says"), [
    ({"inputs": {"observation.state": [{"signal": "joint_pos", "unit": "rad"}]}}, {},
     r"reads observation\.images\.front, which the mapping does not give"),
    ({"inputs": {**given()["inputs"], "observation.images.top": [{"signal": "front_rgb"}]}}, {},
     r"gives observation\.images\.top, which the policy in"),
    ({"action": given()["action"]}, {}, r"the shape \[2\], the mapping takes 8 numbers"),
    ({"instruction": None}, {}, "smolvla needs an instruction"), ({}, {"type": "act"}, "act takes no instruction"),
    ({}, {"n_obs_steps": 2}, "history: repeat"),
])
def test_what_a_model_reads_is_what_the_mapping_gives(tmp_path, changes, config, says):
    with pytest.raises(ValueError, match=says):
        check(model(tmp_path, {**CONFIG, **config}), mapping_of(given(**{"action": ONE, **changes})))


@pytest.mark.parametrize(("field", "says"), [
    (Field("observation.state", (4,)), r"has the shape \[3\] in the policy"),
    (Field("observation.images.front", (16, 8, 3), "uint8"), "8 by 8 pixels in .* the camera's are 16 by 8"),
    (Field("observation.state", (3,), "uint8"), "the mapping gives uint8"),
    (Field("observation.images.front", (8, 8, 1), "uint8"), "is a picture"),
    (Field("observation.images.front", (8, 8), "uint8"), "is a picture"),
    (Field("observation.images.front", (8, 8, 3)), "is a picture"),
    (Field("observation.images.front", (8, 8, 3), "uint8"), ""),
    (Field("observation.images.front", (16, 8, 3), "uint8", resize=True), ""),
])
def test_shapes_are_the_policys(tmp_path, field, says):
    fields = {"observation.state": Field("observation.state", (3,)),
              "observation.images.front": Field("observation.images.front", (8, 8, 3), "uint8"), field.name: field}
    asked = Interface(tuple(fields.values()), Field("action", (2,)), 20.0, True)
    if not says:
        assert check_interface(open_folder(model(tmp_path)), asked, "") == 10
        return
    with pytest.raises(ValueError, match=says):
        check_interface(open_folder(model(tmp_path)), asked, "")
