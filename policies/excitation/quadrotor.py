"""The policy that excites a quadrotor: it holds the robot, and adds what the plan says for each control step.

The cascade is that of the demonstrators (``policies/data/demonstrators/quadrotors.py``: place, speed, attitude with
three poles at one frequency, so that the rotors' lag costs no stability), with what a real robot's measurements allow:
slower poles, which bear 30 ms of latency, and the angular acceleration from the rotors' model rather than from
differences of a noisy gyro. The plan is a table in the graph; the memory says which row is next.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, pi

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.data.demonstrators.quadrotors import Motors, astray
from temporeal.sim.identification.excitation.quadrotor import ROOM, QuadrotorPlan, turns
from temporeal.sim.identification.excitation.waves import smooth
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY
from temporeal.sim.rotations import rotation

SIGNALS = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b")
PLACE = 0.9  # rad/s: the three poles of place, speed and their integral
TURN, YAW = 12.0, 3.0  # rad/s: the three poles of attitude
FAR = 0.6  # m that are corrected at once, at most
SEEN = 8.0  # rad/s: both poles of the observer that finds what else accelerates the robot: weaker or unequal rotors
SHARE = 0.35  # of the rotors' hover thrusts that turns may take, excitation included


class ExcitedQuadrotor(nn.Module):
    """Signals [N, ...] and memory to commands [N, 4], and the memory after a control step.

    Memory: ``tick`` control steps since the start; ``origin`` [3] and ``heading`` where the robot was then; ``lacked``
    [3] m s the integral of its distance. An observer, about three axes [rad/s^2] and upwards [m/s^2]: ``made`` [4]
    the accelerations that the rotors' model makes (beyond hovering), ``besides`` [4] those that the robot has beyond
    that, ``expected`` [4] the body rates and the speed upwards that both together make.
    """

    def __init__(self, plan: QuadrotorPlan) -> None:
        super().__init__()
        robot, dt = plan.robot, 1.0 / plan.rate_hz
        p = {name: parameter.nominal for name, parameter in robot.parameters.items()}
        self.command, self.dt, self.steps, self.mass = plan.settings.command, dt, plan.steps, p["mass"][0]
        self.lag = p["tau_up"][0]
        self.follow = 1.0 - exp(-dt / self.lag)
        settle = smooth(np.arange(plan.steps, dtype=np.float64) * dt / (0.8 * plan.settings.settle_s))
        table = np.concatenate([plan.place, plan.velocity, plan.acceleration, plan.turn, plan.thrust[:, None],
                                1.0 - settle[:, None], plan.power[:, None]], 1)
        spec = robot.command(self.command)
        for name, value in (
            ("table", table), ("center", plan.center), ("inner", p["rate_gain"]), ("low", spec.low),
            ("high", spec.high), ("poles", (TURN, TURN, YAW)), ("hardest", SHARE * turns(robot)),
            ("down", (0.0, 0.0, GRAVITY)),
        ):
            self.register_buffer(name, torch.tensor(np.asarray(value), dtype=torch.float32))
        self.table: Tensor
        self.center: Tensor
        self.inner: Tensor
        self.low: Tensor
        self.high: Tensor
        self.poles: Tensor
        self.hardest: Tensor
        self.down: Tensor
        self.motors = Motors(robot)

    def initial_memory(self, n: int) -> dict[str, Tensor]:
        """Of ``n`` robots at the start."""
        return {"tick": torch.zeros(n), "origin": torch.zeros(n, 3), "heading": torch.zeros(n),
                "lacked": torch.zeros(n, 3), **{name: torch.zeros(n, 4) for name in ("made", "besides", "expected")}}

    def forward(
        self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Commands and the next memory."""
        frame, tick = rotation(signals["base_quat_w"]), memory["tick"]
        row = self.table[tick.clamp(max=self.steps - 1.0).round().long()]
        first, heading = tick < 0.5, torch.atan2(frame[:, 1, 0], frame[:, 0, 0])
        start = {"origin": torch.where(first[:, None], signals["base_pos_w"], memory["origin"]),
                 "heading": torch.where(first, heading, memory["heading"])}
        seen = torch.cat([signals["base_ang_vel_b"], signals["base_vel_w"][:, 2:]], -1)
        surprise = torch.where(first[:, None], 0.0, seen - memory["expected"])
        besides = memory["besides"] + self.dt * SEEN**2 * surprise
        force, lacked = self.wanted(row, start["origin"], signals, memory["lacked"], besides[:, 3:])
        turn = self.turned(row, self.off(frame, force, heading - start["heading"]), seen[:, :3],
                           memory["made"][:, :3], besides[:, :3])
        turn = row[:, 14:] * turn
        thrust = row[:, 14] * (self.mass * (force * frame[:, :, 2]).sum(-1) + row[:, 12])
        made, wish = memory["made"], torch.cat([turn, thrust[:, None] / self.mass - GRAVITY], -1)
        upright = frame[:, 2, 2:]
        gives = torch.cat([made[:, :3], upright * (made[:, 3:] + GRAVITY) - GRAVITY], -1)
        after = {"tick": tick + 1.0, **start, "lacked": lacked, "made": made + self.follow * (wish - made),
                 "besides": besides,
                 "expected": seen - surprise + self.dt * (2 * SEEN * surprise + gives + besides)}
        return {self.command: self.given(thrust, turn, seen[:, :3])}, after

    def wanted(
        self, row: Tensor, origin: Tensor, signals: Mapping[str, Tensor], lacked: Tensor, besides: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Thrust per mass [N, 3] m/s^2, world, and the integral of the distance after this step."""
        reference = self.center + row[:, 13:14] * (origin - self.center) + row[:, 0:3]
        far = (reference - signals["base_pos_w"]).clamp(-FAR, FAR)
        lacked = (lacked + self.dt * far).clamp(-4.0, 4.0)
        slow = row[:, 3:6] - signals["base_vel_w"]
        wanted = (row[:, 6:9] + 3 * PLACE * slow + 3 * PLACE**2 * far + PLACE**3 * lacked).clamp(-5.0, 5.0)
        known = torch.cat([torch.zeros_like(lacked[:, :2]), besides.clamp(-4.0, 4.0)], -1)
        return wanted - known + self.down, lacked

    def off(self, frame: Tensor, force: Tensor, turned: Tensor) -> Tensor:
        """Rotation vector [N, 3] rad, body frame, that the attitude lacks; ``turned`` [N] rad from the heading."""
        lean = astray(frame, force / force.norm(dim=-1, keepdim=True))[:, :2]
        return torch.cat([lean, -torch.atan2(turned.sin(), turned.cos())[:, None]], -1)

    def turned(self, row: Tensor, off: Tensor, rate: Tensor, made: Tensor, besides: Tensor) -> Tensor:
        """Angular accelerations [N, 3] rad/s^2 to command: three poles at one place for attitude, rate and rotors."""
        p = self.poles
        turn = made + self.lag * (p**3 * off - 3 * p**2 * rate - 3 * p * (made + besides)) + row[:, 9:12]
        return torch.minimum(torch.maximum(turn, -self.hardest), self.hardest)

    def given(self, thrust: Tensor, turn: Tensor, rate: Tensor) -> Tensor:
        """The command [N, 4] for a thrust [N] N and angular accelerations [N, 3]."""
        if self.command == "motor_cmd":
            raw = self.motors(thrust, turn, torch.zeros_like(turn))
        else:
            raw = torch.cat([thrust[:, None], rate + turn / self.inner], -1)
        return torch.minimum(torch.maximum(raw, self.low), self.high)


def start_of(plan: QuadrotorPlan, n: int, generator: torch.Generator) -> dict[str, Tensor]:
    """States [n, ...] near the center, as a simulated flight's: up to 0.2 m, 0.17 rad, 0.2 m/s and 0.2 rad/s off. Every
    fourth is in a corner, ``ROOM`` inside the box that the formula allows, and above its floor."""
    u = 2 * torch.rand(n, 11, generator=generator) - 1
    half, direction = 0.085 * u[:, 0], pi * u[:, 1]
    quat = torch.stack([half.cos(), half.sin() * direction.cos(), half.sin() * direction.sin(), 0 * half], -1)
    off, s = 0.2 * u[:, 2:5], plan.settings
    off[3::4] = off[3::4].sign() * max(s.box_m - ROOM, 0.0)
    place = torch.tensor(plan.center).float() + off
    place[:, 2] = place[:, 2].clamp(min=min(s.floor_m + ROOM, float(plan.center[2])))
    return {"base_pos_w": place, "base_quat_w": quat,
            "base_vel_w": 0.2 * u[:, 5:8], "base_ang_vel_b": 0.2 * u[:, 8:]}
