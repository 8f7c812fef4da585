"""Open-loop gaits of a hand that turn a cube, as a prior for a policy: it corrects a stroke instead of inventing it.

    # searches for 20 minutes and writes sim/task_parts/grasps/leap_hand_gait.npz
    python -m temporeal.sim.task_parts.gaits leap_hand 20
    python -m temporeal.sim.task_parts.gaits leap_hand 20 on     # from the stored one

A gait is one sinusoid per joint around a posture of its own: theta(t) = offset + sine sin(w t) + cosine cos(w t).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from functools import cache
from math import pi
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.spec import RobotSpec
from temporeal.sim.maps import Limited, Memory
from temporeal.sim.rotations import turn_between
from temporeal.sim.task_parts import hands
from temporeal.sim.task_parts.hands import COMMAND, GRASPS, JOINTS

RAMP = 10.0  # control steps over which the fingers go from where they are to the gait
SPREAD = 0.4  # rad: unit of the search, of offsets and amplitudes
RATE = 0.8  # Hz: in the middle of the search, which goes by factors of exp(x / 2)


@cache
def gait(robot: str) -> Mapping[str, Tensor]:
    """The stored gait of a hand: offset, sine, cosine [16] rad; rate [] Hz."""
    file = GRASPS / f"{robot}_gait.npz"
    if not file.exists():
        have = ", ".join(sorted(f.stem.removesuffix("_gait") for f in GRASPS.glob("*_gait.npz")))
        raise ValueError(f"no gait is stored for {robot!r}, there is one for {have}; "
                         f"python -m temporeal.sim.task_parts.gaits {robot} 20 makes one in 20 minutes")
    with np.load(file, allow_pickle=False) as found:
        return {name: torch.from_numpy(found[name]).float() for name in found.files}


class GaitAction(Limited):
    """Targets follow a gait, and an action [N, 16] in [-1, 1] moves them off it by up to ``scale`` rad each.

    Memory: ``target`` and ``begun`` as for :class:`temporeal.sim.maps.StepAction`, ``clock`` (control steps) and
    ``origin``, the joints at an episode's start, from which the gait is entered in :data:`RAMP` steps.
    """

    def __init__(self, robot: RobotSpec, command: str, scale: float, dt: float) -> None:
        given = gait(robot.name)
        super().__init__(robot, command, **{name: given[name].tolist() for name in ("offset", "sine", "cosine")})
        self.offset: Tensor
        self.sine: Tensor
        self.cosine: Tensor
        self.scale, self.turn = scale, 2 * pi * float(given["rate"]) * dt
        self.memory = {"target": (JOINTS,), "begun": (), "clock": (), "origin": (JOINTS,)}

    def follow(self, measured: Tensor, memory: Memory) -> Memory:
        """The memory of this sample: at an episode's first one target and origin are ``measured`` [N, 16]."""
        begun = memory["begun"][:, None] > 0.5
        now = self.limit(measured)
        return {**memory, "target": torch.where(begun, memory["target"], now),
                "origin": torch.where(begun, memory["origin"], now), "begun": torch.ones_like(memory["begun"])}

    def phase(self, memory: Memory) -> Tensor:
        """Cosine and sine [N, 2] of the gait's phase."""
        angle = self.turn * memory["clock"]
        return torch.stack([angle.cos(), angle.sin()], -1)

    def base(self, memory: Memory) -> Tensor:
        """Targets [N, 16] of the gait alone at the sample of ``memory``."""
        phase = self.phase(memory)
        share = (memory["clock"] / RAMP).clamp(max=1.0)[:, None]
        wanted = self.offset + self.sine * phase[:, 1:] + self.cosine * phase[:, :1]
        return memory["origin"] + share * (wanted - memory["origin"])

    def move(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with the target of this step, and the clock one step on."""
        target = self.limit(self.base(memory) + self.scale * action.clamp(-1.0, 1.0))
        return {**memory, "target": target, "clock": memory["clock"] + 1.0}

    def forward(self, action: Tensor, memory: Memory) -> Tensor:
        """Command [N, 16]: the target, moved already."""
        return memory["target"]

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """Action [N, 16] that moves the target to ``command`` [N, 16], if it can be reached."""
        return (command - self.base(memory)) / self.scale


# ---------------------------------------------------------------- the search


def of_search(robot: RobotSpec, x: np.ndarray) -> dict[str, np.ndarray]:
    """Gaits of the search's points ``x`` [..., 49]."""
    return {"offset": np.array(robot.home["joint_pos"]) + SPREAD * x[..., :16], "sine": SPREAD * x[..., 16:32],
            "cosine": SPREAD * x[..., 32:48], "rate": RATE * np.exp(0.5 * x[..., 48])}


class Trial:
    """Gaits tried side by side in MuJoCo, each from ``starts`` stored starts, over ``seconds`` s.

    Worth: the rotation about the vertical, rad/s (a control step counts up to 0.075 rad), less 10 per m of the cube's
    mean distance from the palm beyond 3 cm, 1 where the cube leaves the hand, 0.1 per W of the joints' work and 0.5 per
    (N m)^2 of their torques.
    """

    def __init__(self, robot: str, points: int, starts: int, seconds: float, seed: int) -> None:
        from temporeal.sim.backends import mujoco

        self.spec, self.starts, self.steps = hands.hand(robot), starts, round(20 * seconds)
        self.palm, self.rng = torch.tensor(hands.PALMS[robot]), np.random.default_rng(seed)
        self.backend: Any = mujoco.make(hands.hand_scene(self.spec), points * starts, COMMAND, dt=0.05 / 6,
                                        device="cpu", seed=0, threads=1)
        command = self.spec.command(COMMAND)
        self.low, self.high = np.array(command.low), np.array(command.high)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Worth [points] of ``x`` [points, 49]."""
        stored = hands.grasps(self.spec.name)
        pick = np.tile(self.rng.integers(0, len(stored["joint_pos"]), self.starts), len(x))
        found = {k: np.repeat(v, self.starts, 0) for k, v in of_search(self.spec, x).items()}
        n, b = len(pick), self.backend
        b.reset(torch.arange(n), {k: v[pick] for k, v in stored.items()})
        origin, before = stored["joint_pos"][pick].numpy(), stored["cube_quat_w"][pick]
        spin, alive, off = np.zeros(n), np.ones(n, bool), np.zeros(n)  # off: all that is charged
        for t in range(self.steps):
            angle = 2 * pi * found["rate"][:, None] * 0.05 * t
            wanted = found["offset"] + found["sine"] * np.sin(angle) + found["cosine"] * np.cos(angle)
            target = np.clip(origin + min(t / RAMP, 1.0) * (wanted - origin), self.low, self.high)
            b.step(torch.tensor(target, dtype=torch.float32), 6)
            now = b.signals()
            away = (now["cube_pos_w"] - self.palm).norm(dim=-1).numpy()
            quat = now["cube_quat_w"].clone()
            alive &= away < 0.07
            turn, before = turn_between(before, quat)[0][:, 2].numpy(), quat
            if t >= 20:
                torque = now["joint_torque"].numpy()
                work = np.abs(torque * now["joint_vel"].numpy()).sum(-1)
                spin += alive * np.clip(turn, -0.075, 0.075)
                off += 10 * np.maximum(away - 0.03, 0.0) * alive + 0.1 * work + 0.5 * np.square(torque).sum(-1)
        worth = (20 * spin - off) / (self.steps - 20) - 1.0 * ~alive
        return worth.reshape(-1, self.starts).mean(1)


def as_search(robot: RobotSpec, found: Mapping[str, Tensor]) -> np.ndarray:
    """The point of the search [49] that is the gait ``found``."""
    g = {name: value.numpy().astype(float) for name, value in found.items()}
    return np.concatenate([(g["offset"] - np.array(robot.home["joint_pos"])) / SPREAD, g["sine"] / SPREAD,
                           g["cosine"] / SPREAD, [2 * np.log(g["rate"] / RATE)]])


def search(
    robot: str, minutes: float, begin: np.ndarray | None = None, points: int = 32, seed: int = 1
) -> dict[str, np.ndarray]:
    """The best gait of an evolution strategy (CMA-ES): half the time short trials from few starts, then long ones.

    ``begin``: a point [49] that is good already; there are no short trials then.
    """
    import cma

    begun, centre = time.monotonic(), np.zeros(3 * JOINTS + 1) if begin is None else begin
    short, long = (0.5, 0.5, 2, 5.0), (1.0, 0.1, 3, 7.0)
    for share, sigma, starts, span in (short, long) if begin is None else (long,):
        trial = Trial(robot, points, starts, span, seed)
        strategy = cma.CMAEvolutionStrategy(centre, sigma, {"popsize": points, "seed": seed, "verbose": -9})
        seconds = 0.0
        while seconds < 60 * minutes * share or not strategy.countiter:
            x = np.array(strategy.ask())
            worth = trial(x)
            strategy.tell(x, list(-worth))
            seconds = time.monotonic() - begun
            print(f"{seconds:5.0f} s  best {worth.max():.2f}  mean {worth.mean():.2f} rad/s", flush=True)
        centre = strategy.result.xfavorite
        trial.backend.close()
    return of_search(hands.hand(robot), centre)


def main() -> None:
    """Search and write."""
    p = argparse.ArgumentParser(
        "python -m temporeal.sim.task_parts.gaits", description="Search for a gait that turns a cube and store it."
    )
    p.add_argument("hand", choices=tuple(hands.PALMS))
    p.add_argument("minutes", type=float)
    p.add_argument("how", nargs="?", choices=("anew", "on"), default="anew", help="on: from the stored gait")
    given = p.parse_args()
    begin = as_search(hands.hand(given.hand), gait(given.hand)) if given.how == "on" else None
    np.savez_compressed(GRASPS / f"{given.hand}_gait.npz", **search(given.hand, given.minutes, begin))


if __name__ == "__main__":
    main()
