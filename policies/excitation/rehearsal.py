"""An excitation flown in the simulator before it is written: by the nominal robot, and by others that its spec allows.

The worlds' parameters are drawn from the spec's published ranges, rotors of one robot within 4 % of each other; what
the policy reads is a control step old and noisy. All of it must keep the formula of the plan: an excitation that
somebody's robot would leave its limits with is not written. World 0 is nominal, and its flight is the golden trace.

T control steps, N worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import resolve
from temporeal.robots.spec import RobotSpec
from temporeal.sim.backend_factory import backend_for
from temporeal.sim.identification.excitation.waves import CannotExcite
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.task import task_schema
from temporeal.sim.types import Backend

PHYSICS_S = 0.002  # of a physics step, at most
UNEQUAL = 0.04  # of a robot's rotors: how far their gains are from their mean
COMMAND_DELAY_S = 0.01
FLOWN = {"delay": COMMAND_DELAY_S, "speed_loss": 0.0}
"""What of identification's parameters is no robot's, as it is in a rehearsal: its batteries do not empty."""
NOISE = {"base_pos_w": 0.002, "base_quat_w": 0.005, "base_vel_w": 0.02, "base_ang_vel_b": 0.02, "joint_pos": 0.0001,
         "joint_vel": 0.005}
"""Standard deviations of what is measured, SI: as the simulated robots' (``ros.yaml``)."""


class Plan(Protocol):
    """What is rehearsed: :class:`temporeal.sim.identification.excitation.quadrotor.QuadrotorPlan`, or an arm's."""

    @property
    def robot(self) -> RobotSpec:
        """Whose."""
    @property
    def rate_hz(self) -> float:
        """Of commands."""
    @property
    def steps(self) -> int:
        """Number of control steps."""
    @property
    def seconds(self) -> float:
        """Of all of them."""
    @property
    def command(self) -> str:
        """That it is flown by."""
    @property
    def clauses(self) -> Mapping[str, str]:
        """Formulas that it keeps, by what they limit."""
    @property
    def constants(self) -> Mapping[str, Any]:
        """Of the formulas."""


@dataclass(frozen=True)
class Rehearsal:
    """What was flown.

    Args:
        true: signals [T + 1, N, ...]. commands: [T, N, U]. golden: of world 0, as an artifact has it.
        margins: [N] robustness by clause.
    """

    true: Mapping[str, Tensor]
    commands: Tensor
    golden: Mapping[str, np.ndarray]
    margins: Mapping[str, Tensor]

    @property
    def worst(self) -> dict[str, float]:
        """Least margin of all worlds, by clause."""
        return {name: float(value.min()) for name, value in self.margins.items()}


Start = Callable[[Any, int, torch.Generator], Mapping[str, Tensor]]
"""Plan, number of worlds and random numbers to states."""


@torch.no_grad()
def rehearse(plan: Plan, policy: Any, signals: tuple[str, ...], start: Start, *, worlds: int, seed: int = 0
             ) -> Rehearsal:
    """Fly ``policy`` in ``worlds`` simulated robots, the first one nominal and the others drawn."""
    generator = torch.Generator().manual_seed(seed)
    substeps = ceil(1.0 / (plan.rate_hz * PHYSICS_S) - 1e-9)
    backend: Backend = resolve("temporeal.sim.backends", backend_for(plan.robot)).make(
        plan.robot, worlds, plan.command, dt=1.0 / (plan.rate_hz * substeps), threads=1)
    try:
        ids = torch.arange(worlds)
        backend.set_params(ids, drawn(backend, worlds, generator))
        backend.reset(ids, start(plan, worlds, generator))
        return flown(plan, policy, signals, backend, substeps, generator)
    finally:
        backend.close()


def flown(plan: Plan, policy: Any, signals: tuple[str, ...], backend: Backend, substeps: int,
          generator: torch.Generator) -> Rehearsal:
    """The flight of all worlds."""
    schema, memory = task_schema(plan.robot), policy.initial_memory(backend.num_worlds)
    clauses = {name: parse(text, schema, plan.constants) for name, text in plan.clauses.items()}
    names = tuple(dict.fromkeys((*signals, *(name for each in clauses.values() for name in signals_in(each)))))
    kept, golden, sent = [now(backend, names)], list[dict[str, Tensor]](), list[Tensor]()
    seen = kept[0]
    for _ in range(plan.steps):
        measured = {name: noisy(name, seen[name], generator) for name in signals}
        commands, after = policy(measured, memory)
        golden.append({f"{kind}.{name}": value[0].clone() for kind, values in (
            ("signals", measured), ("memory", memory), ("commands", commands)) for name, value in values.items()})
        seen, memory = kept[-1], after
        sent.append(commands[plan.command])
        backend.step(sent[-1].contiguous(), substeps)
        kept.append(now(backend, names))
    true = {name: torch.stack([row[name] for row in kept]) for name in names}
    margins = {name: robustness(formula, true, 1.0 / plan.rate_hz)[0] for name, formula in clauses.items()}
    return Rehearsal(true, torch.stack(sent), {name: np.stack([row[name].numpy() for row in golden])
                                               for name in golden[0]}, margins)


def now(backend: Backend, names: tuple[str, ...]) -> dict[str, Tensor]:
    """Copies of the true signals."""
    found = backend.signals()
    return {name: found[name].clone() for name in names}


def noisy(name: str, value: Tensor, generator: torch.Generator) -> Tensor:
    """What is measured of ``value`` [N, ...]; quaternions keep their length."""
    out = value + NOISE.get(name, 0.0) * torch.randn(value.shape, generator=generator)
    return out / out.norm(dim=-1, keepdim=True) if name.endswith("_quat_w") else out


def drawn(backend: Backend, n: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Parameters of ``n`` robots, [n, ...] by name; the first is nominal."""
    out = {}
    for name, parameter in backend.robot.parameters.items():
        if name not in backend.parameters:
            continue
        low, high = torch.tensor(parameter.low), torch.tensor(parameter.high)
        share = torch.rand(n, len(low), generator=generator)
        if name == "motor_gain":
            share, unequal = share[:, :1], UNEQUAL * (2 * torch.rand(n, len(low), generator=generator) - 1)
            value = (low + (high - low) * share) * (1 + unequal)
        else:
            value = low + (high - low) * share
        value[0] = torch.tensor(parameter.nominal)
        out[name] = value.reshape(backend.params()[name].shape)
    if "command_delay" in backend.parameters:
        out["command_delay"] = torch.full_like(backend.params()["command_delay"], COMMAND_DELAY_S)
    return out


def check(plan: Plan, found: Rehearsal) -> None:
    """Refuse an excitation with which a robot would leave its limits."""
    for name, margin in found.margins.items():
        left = int((~(margin > 0)).sum())
        if left:
            who = "the nominal robot" if not margin[0] > 0 else f"{left} of {len(margin)} robots that its spec allows"
            raise CannotExcite(f"simulated, {who} would leave the limits of this excitation ({name}: by "
                               f"{-float(margin.min()):.3g}): smaller amplitudes are needed, or wider limits")
