"""Quadrotors in crazyflow 0.4.0 (github.com/learnsyslab/crazyflow, MIT), a process of its own.

Its first-principles dynamics at 500 Hz (explicit Euler, float32) with this robot's parameters: mass, inertia, thrust
curve, arm, drag. Beyond ours it has each propeller's inertia (gyroscopic and reaction torque), a torque curve of its
own form (scaled to the robot's torque at hover), and rotors that slow down by a law quadratic in speed, of which the
robot's time constant is the slope at hover. It has no wind.
"""

from __future__ import annotations

import base64

import numpy as np

from temporeal.robots.crazyflie.spec import MAX_RPM
from temporeal.sim.scene import Scene
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.reality.simulators.worlds import Worlds, to_world

HERTZ = 500


class Crazyflow(Worlds):
    """N quadrotors."""

    name = "crazyflow"

    def __init__(self, scene: Scene, num_worlds: int, dt: float) -> None:
        if round(1 / dt) != HERTZ:
            raise ValueError(f"crazyflow is flown at {HERTZ} Hz here, got a step of {dt:g} s")
        self.peer = Peer("crazyflow")
        self.peer.ask("make", worlds=num_worlds, hertz=HERTZ)
        self.stale = True
        super().__init__(scene, num_worlds, dt)

    def changed(self, ids: np.ndarray) -> None:
        """Tell it the parameters before the next step."""
        self.stale = True

    def describe(self) -> None:
        """The parameters of all worlds, as its process takes them."""
        every, p = np.arange(self.num_worlds), self.rotors.params
        curve = p["motor_gain"][:, None] * p["thrust_curve"][None] / (MAX_RPM ** np.arange(3.0))[None, :, None]
        hover = MAX_RPM * self.rotors.hover_speed(every).mean(0, keepdims=True)
        rows = [p["mass"], p["arm"][:1], p["inertia"], curve.reshape(12, -1), p["torque_per_thrust"], hover,
                p["tau_up"], p["tau_down"], p["drag"]]
        self.peer.ask("describe", rows=text(np.concatenate(rows).T))
        self.stale = False

    def advance(self, setpoints: np.ndarray) -> None:
        """One step of its own."""
        if self.stale:
            self.describe()
        pose, p = self.pose, self.rotors.params
        quat = pose["base_quat_w"]
        state = np.concatenate([pose["base_pos_w"], quat[[1, 2, 3, 0]], pose["base_vel_w"], pose["base_ang_vel_b"],
                                MAX_RPM * self.rotors.speed])
        push = np.concatenate([p["force_w"], to_world(quat, p["torque_b"])])
        answer = self.peer.ask("step", state=text(state.T), setpoints=text(MAX_RPM * setpoints.T), push=text(push.T))
        after = np.frombuffer(base64.b64decode(answer)).reshape(self.num_worlds, -1).T
        self.pose = {"base_pos_w": after[:3].copy(), "base_quat_w": after[[6, 3, 4, 5]], "base_vel_w":
                     after[7:10].copy(), "base_ang_vel_b": after[10:13].copy()}
        self.rotors.speed = after[13:17] / MAX_RPM

    def close(self) -> None:
        """End its process."""
        self.peer.close()


def text(rows: np.ndarray) -> str:
    """Rows as its process takes them."""
    return base64.b64encode(np.ascontiguousarray(rows, dtype=np.float64).tobytes()).decode()
