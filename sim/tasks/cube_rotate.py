"""Cube rotate: a hand, palm up, keeps turning a cube about the vertical without dropping it.

After Qi et al., "In-Hand Object Rotation via Rapid Motor Adaptation" (HORA, CoRL 2022), and the LEAP Hand's task: joint
targets move by small steps at 20 Hz, and the policy sees the joints' recent past. Counter-clockwise from above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import RobotSpec
from temporeal.sim.maps import StepAction
from temporeal.sim.rewards.formula_tracker import FormulaTracker, lowest
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Draw, Task, check_range, task_schema, weights
from temporeal.sim.task_parts import hands
from temporeal.sim.task_parts.gaits import GaitAction
from temporeal.sim.task_parts.hands import (
    COMMAND,
    JOINTS,
    PALMS,
    JointHistory,
    cube_motion,
    cube_place,
    held,
    symmetric_attitude,
)

FORMULA = """\
G[0,12] (norm(cube_pos_w - palm) < away)
& G[4,12] (turned > enough)"""

CONSTANTS: dict[str, Any] = {
    "away": 0.07,  # m from where the cube lies on the palm (``palm``, by robot)
    "enough": 2.0,  # rad over the last 2 s: 1 rad/s, steady
}
POSITIVE = ("away",)

GAITS = ("none", "stored")
WINDOW = 2.0  # s over which ``turned`` counts
STEP = 0.1  # rad by which a target moves at most in a control step: 2 rad/s
EPISODE = 12.0  # s


@dataclass(frozen=True)
class Reward:
    """Weights per second, unless noted as once."""

    turn: float = 4.0  # times the rate of turning, rad/s, between -fastest and fastest
    fastest: float = 1.5  # rad/s
    hit: float = 5.0  # once per timed subgoal of the formula, if it has any
    steady: float = 1.0  # while what the formula asks for later than at the start (``turned > enough``) is so
    slide: float = 1.0  # times the cube's speed, m/s, sum over axes
    centred: float = 10.0  # times the cube's horizontal distance from the palm's centre, m
    tipped: float = 1.0  # times 1 - the largest vertical component of the cube's axes
    pose: float = 0.1  # times the squared distance of the joints from home, rad^2
    torque: float = 2.0  # times the sum of squared torques, (N m)^2
    work: float = 0.3  # times the sum of the magnitudes of the joints' powers, W
    smooth: float = 0.01  # times the squared change of the action
    dropped: float = 20.0  # once, when the cube leaves the hand: the episode ends


class Turned:
    """Task signals: the cube's turn about the vertical since the start (``spin``) and recently (``turned``).

    Both in rad: sums of the changes of the cube's heading (:func:`temporeal.sim.task_parts.hands.heading`), which a
    turn about the vertical
    changes by its angle whatever the tilt, and a tilt that comes and goes, or goes round, does not change on the whole.
    The heading is that of one face, about which the cube is tilted; when that tilt passes :data:`hands.OVER`, the face
    that is then most upward takes over, a whole number of quarter turns away from the nearest.
    """

    chances = 0

    def __init__(self, dt: float) -> None:
        self.count = round(WINDOW / dt)
        if abs(self.count * dt - WINDOW) > 1e-6:
            raise ValueError(f"cube_rotate: control_dt is a whole part of the {WINDOW:g} s over which turning counts, "
                             f"got {dt:g} s")
        self.signals = schema(SignalSpec("spin", (), "rad"), SignalSpec("turned", (), "rad"))
        self.carry = {"face": (3,), "heading": (2,), "turns": (self.count,), "spin": ()}

    def __call__(
        self, signals: Mapping[str, Tensor], chance: Tensor, carry: Carry
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The signals of this sample and the carry for the next. Zeros as carry: nothing was before, no turn."""
        face, kept = hands.tracked_face(signals["cube_quat_w"], carry["face"])
        now = hands.heading(signals["cube_quat_w"], face)
        turn = hands.heading_change(carry["heading"], now, kept)
        turns = torch.cat([turn[:, None], carry["turns"][:, :-1]], -1)
        spin = carry["spin"] + turn
        return {"spin": spin, "turned": turns.sum(-1)}, {"face": face, "heading": now, "turns": turns, "spin": spin}


class Observe(nn.Module):
    """Recent joints and the last action; with ``sees="cube"`` also the cube's position and attitude, from a tracker.

    With a gait also its phase.
    """

    def __init__(self, act: StepAction | GaitAction, robot: RobotSpec, sees: str) -> None:
        super().__init__()
        self.sees = sees
        self.signals = ("joint_pos", "cube_pos_w", "cube_quat_w") if sees == "cube" else ("joint_pos",)
        self.joints, self.move, self.phase = JointHistory(act), act.move, getattr(act, "phase", None)
        self.register_buffer("palm", torch.tensor(PALMS[robot.name]))
        self.palm: Tensor
        self.memory = {**self.joints.memory, "last_action": (JOINTS,)}
        self.obs_dim = self.joints.size + JOINTS + (12 if sees == "cube" else 0) + (0 if self.phase is None else 2)

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Observation [N, O] and the next memory."""
        joints, after = self.joints(signals["joint_pos"], memory)
        parts = [joints, memory["last_action"]]
        if self.sees == "cube":
            parts += [cube_place(signals, self.palm), symmetric_attitude(signals["cube_quat_w"])]
        if self.phase is not None:
            parts.append(self.phase(memory))
        return torch.cat(parts, -1), {**after, "last_action": memory["last_action"]}

    def record(self, memory: dict[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """The memory with ``action`` entered."""
        return {**self.move(memory, action), "last_action": action}


class Objective:
    """Turn; the formula says how fast and where the cube must stay."""

    def __init__(self, tracker: FormulaTracker, reward: Reward, robot: RobotSpec) -> None:
        self.tracker, self.weights = tracker, reward
        invariants = tracker.automaton.invariants
        self.guarded = [i for i, inv in enumerate(invariants) if inv not in tracker.automaton.holds]
        self.palm, self.home = torch.tensor(PALMS[robot.name]), torch.tensor(robot.home["joint_pos"])
        self.carry = {**tracker.carry, "previous": (JOINTS,), "turned_by": ()}
        self.privileged_dim = 12 + 6 + JOINTS + 2

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        return {**carry, **self.tracker(signals, carry).carry, "turned_by": signals["spin"]}

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, tracked, dt = self.weights, self.tracker(signals, carry), self.tracker.automaton.dt
        rate = (signals["spin"] - carry["turned_by"]) / dt
        keep = tracked.progress.keep
        dropped = (held(signals, self.palm) < 0.5) | (lowest(keep[:, self.guarded], rate) <= 0)
        asked = tracked.progress.margin[:, len(self.tracker.automaton.subgoals) :]
        steady = (lowest(asked, rate) > 0).float() if asked.shape[-1] else torch.zeros_like(rate)
        place = (signals["cube_pos_w"] - self.palm.to(rate.device))[:, :2]
        off = signals["joint_pos"] - self.home.to(rate.device)
        torque, speed = signals["joint_torque"], signals["joint_vel"]
        reward = dt * (
            w.turn * rate.clamp(-w.fastest, w.fastest) + w.steady * steady
            - w.slide * signals["cube_vel_w"].abs().sum(-1) - w.centred * place.square().sum(-1).sqrt()
            - w.tipped * tipped(signals["cube_quat_w"]) - w.pose * off.square().sum(-1)
            - w.torque * torque.square().sum(-1) - w.work * (torque * speed).abs().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)
        ) + w.hit * tracked.hits - w.dropped * dropped.float()
        return reward, dropped, {**tracked.carry, "previous": action, "turned_by": signals["spin"]}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The cube's pose and velocities, the joints' speeds, how much it turned recently, the time."""
        return torch.cat([
            cube_place(signals, self.palm), symmetric_attitude(signals["cube_quat_w"]), cube_motion(signals),
            0.3 * signals["joint_vel"], signals["turned"][:, None], signals["mission_time"][:, None] / EPISODE], -1)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The formula, as its decomposition sees it."""
        return self.tracker.success(carry)


def tipped(quat_wxyz: Tensor) -> Tensor:
    """0 where a face of the cube is level, up to 1 - 1/sqrt(3) on a corner, [N]."""
    w, x, y, z = quat_wxyz.unbind(-1)
    row = torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)
    return 1 - row.abs().max(-1).values



def make(
    *, formula: str = FORMULA, constants: Mapping[str, Any] | None = None, robot: str = "leap_hand", sees: str = "cube",
    gait: str = "none", step: float = STEP, control_dt: float = 0.05, substeps: int = 6,
    reward: Mapping[str, float] | None = None,
) -> Task:
    """The task for the hand ``robot``.

    ``sees``: "cube" or "joints". ``gait``: "none", where actions move the joint targets by up to ``step`` rad, or
    "stored", where they move them off an open-loop gait (:mod:`temporeal.sim.task_parts.gaits`), by up to three times
    that.
    """
    if gait not in GAITS:
        raise ValueError(f"gait is {gait!r}; legal: {', '.join(GAITS)}")
    check_range("cube_rotate", "step", step, 0.0, pi, "rad", above=True)
    spec = hands.hand(robot)
    constants = {**CONSTANTS, "palm": PALMS[robot], **dict(constants or {})}
    scene: Scene = hands.hand_scene(spec)
    extra = Turned(control_dt)
    parsed = parse(formula, task_schema(scene, extra), constants)
    act = (StepAction(spec, COMMAND, step=(step,) * JOINTS) if gait == "none" else
           GaitAction(spec, COMMAND, 3 * step, control_dt))

    def initial(draw: Draw) -> dict[str, Tensor]:
        return hands.start(robot, draw)

    return Task(
        name="cube_rotate",
        scene=scene,
        command=COMMAND,
        control_dt=control_dt,
        substeps=substeps,
        episode_s=EPISODE,
        formula=parsed,
        formula_text=formula,
        constants=constants,
        observe=Observe(act, spec, hands.check_sees(sees)),
        act=act,
        objective=Objective(FormulaTracker(parsed, control_dt), weights(Reward, reward), spec),
        initial=initial,
        extra=extra,
        stop="hold",
    )
