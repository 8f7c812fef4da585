"""Whether a world of drawn formulas is that of its system: a proof is worth what its world is.

``check_world(world)`` compares what a world says (a setting of the user's, or the header of a file that was handed
over) with the system that flies its formulas, :mod:`temporeal.sim.stl.distribution.settings` for what that is.
"""

from __future__ import annotations

import torch

from temporeal.robots.registry import UnknownName
from temporeal.sim.stl.distribution.drawing import start_settings
from temporeal.sim.stl.distribution.missions import AVOIDED, NAMES
from temporeal.sim.stl.distribution.motions import limits, loaded
from temporeal.sim.stl.distribution.settings import MOST_AVOIDED, World, worlds
from temporeal.sim.stl.distribution.settings import world as that_comes_along
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.system import System
from temporeal.sim.task_parts.systems import system_of

NEAR = 2e-3  # m: of a start; homes are written in millimetres
REGIONS = frozenset((*NAMES, *(f"{AVOIDED}{k + 1}" for k in range(MOST_AVOIDED))))


def check_world(world: World, where: str) -> None:
    """A ValueError that names ``where`` the ``world`` is not as its system is: what it names, how often it acts, how
    fast it is, where it starts."""
    try:
        _check(world)
    except (ValueError, UnknownName) as error:
        raise ValueError(f"{where}: {error}") from error


def _check(world: World) -> None:
    system = system_of(world.system)
    if (robot := system.scene.robot.name) != loaded(world.robot).name:
        raise ValueError(f"robot is {world.robot!r:.60}, and system {world.system!r:.60} is of {robot!r}")
    if world.dt != system.control_dt:
        raise ValueError(f"dt is {world.dt:g} s, and system {world.system!r:.60} acts each {system.control_dt:g} s")
    if world.signal not in system.signals or system.signals[world.signal].shape != (3,):
        legal = ", ".join(name for name, spec in system.signals.items() if spec.shape == (3,))
        raise ValueError(f"signal is {world.signal!r:.60}; of three numbers are {legal}")
    if any(x < a or y > b for a, x, y, b in zip(system.fence["low"], world.low, world.high, system.fence["high"])):
        raise ValueError(f"low {world.low} and high {world.high} must lie within the arena of system "
                         f"{world.system!r:.60}, {system.fence['low']} to {system.fence['high']}")
    limits(world)  # a ValueError where the robot has another command
    _check_pace(world, system)
    _check_texts(world)
    _check_start(world, system)


def _check_pace(world: World, system: System) -> None:
    """A glider is at most as fast as that of the world that comes along, or, without one, as the system's pace."""
    if world.system not in worlds():
        if world.speed > system.pace:
            raise ValueError(f"speed is {world.speed:g} m/s; at most the system's pace of {system.pace:g} is legal")
        return
    known = that_comes_along(world.system)
    if world.model != known.model:
        raise ValueError(f"model is {world.model}; system {world.system} moves as a {known.model}")
    for name, unit in (("speed", "m/s"), ("acceleration", "m/s^2")) if known.model == "glider" else ():
        if getattr(world, name) > (most := getattr(known, name)):
            raise ValueError(f"{name} is {getattr(world, name):g} {unit}; at most {most:g} is legal, that of "
                             f"configs/formulas/{world.system}.yaml")


def _check_texts(world: World) -> None:
    """``place``, ``avoid`` and ``keep`` are formulas over what a witness has."""
    names = [name for region in REGIONS for name in (region, f"{region}_r")]
    if taken := sorted(set(world.constants) & set(names)):
        raise ValueError(f"constants: {', '.join(taken)} are names of drawn regions; give others")
    seen = (world.signal, "base_quat_w") if world.model == "cart" else (world.signal,)
    schema = {name: spec for name, spec in loaded(world.robot).signals.items() if name in seen}
    text = f"({world.named(world.place, 'a')})\n& ({world.named(world.avoid, 'o1')})\n& ({world.keep})"
    region = {"a": [0.0, 0.0, 0.0], "a_r": 1.0, "o1": [0.0, 0.0, 0.0], "o1_r": 1.0}
    try:
        parse(text, schema, {**region, **world.constants})
    except FormulaError as error:
        raise ValueError(f"place & avoid & keep is no formula of a place a and a disc o1: {error}") from error


def _check_start(world: World, system: System) -> None:
    """The system starts at rest where the witness does, whatever it draws."""
    middle = [0.5 * (a + b) for a, b in zip(world.low, world.high)]
    place = middle if world.home is None else list(world.home)
    state = system.initial(lambda _, count: torch.tensor([[0.0], [1.0]]).expand(2, count),
                           start_settings(world, (*place, 0.0)[:3], 0.0))
    seen = dict(state) if system.model is None else {**system.model.signals(system.model.state(state)), **state}
    found = seen[world.signal].double()[:, : len(place)]
    if not bool((found - torch.tensor(place).double()).abs().max() <= NEAR):
        raise ValueError(f"start and home: the witness starts at {place}, and system {world.system!r:.60} at "
                         f"{found[0].tolist()} to {found[1].tolist()}; low and high are not set there, and nothing is "
                         "spread")
    if bool((state.get("base_vel_w", torch.zeros(1)) != 0).any()):
        raise ValueError("start: the witness starts at rest, and the system does not: set its speed to 0")
