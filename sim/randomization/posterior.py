"""A randomization that is what flights of the robot left open: correlated draws from an identification's posterior.

    posterior = parse_posterior(content, "crazyflie", QUADROTOR)      # QUADROTOR: what the draws are made into
    posterior.draw(KeyedDraws(seed, worlds, episode))                 # name -> [K, size], float32

Drawn is what identification fitted, normal in its coordinates (logarithms where a quantity is positive), all together:
whoever turns out to have strong motors also has the mass that goes with them. What the logs could not tell has its
prior in the posterior and is drawn from that. The parameters of the simulator are made of each draw as identification
makes them; what can not be (negative drag) is cut to what can. Besides, the battery: its voltage is uniform over the
range that was flown. A draw depends on (seed, world, episode) alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from temporeal.robots.signals import is_number
from temporeal.sim.compiler.keyed_random import KeyedDraws
from temporeal.sim.randomization.statuses import STATUSES

Numbers = NDArray[np.float64]
Made = dict[str, Numbers]

FORMAT, VERSION = "temporeal posterior of a quadrotor", 1
KEYS = ("format", "version", "robot", "revision", "logs", "converged", "reference_v", "voltage", "order", "status",
        "logarithm", "mean", "covariance")
STREAM = "randomize.posterior"
SAMPLES, TAIL = 4096, 0.00135
"""Draws that say where a parameter ends; the share of them beyond each end, as of three standard deviations."""
VOLTS, SHARE = (1.0, 60.0), (0.5, 1.5)
"""Of a reference voltage, V; of a battery's in it: a lithium cell ends at 4.2 and about 3 V."""
SYMMETRIC, LEAST, RIDGE = 1e-5, -1e-4, 1e-9
"""Of a correlation matrix whose covariance is written with nine digits: how far it may be from symmetric, how far below
zero its least eigenvalue, and where that is lifted to."""


@dataclass(frozen=True)
class Kind:
    """What a posterior is of.

    Args:
        needed: quantities that it must have. exponent: the one that a battery needs besides. positive: those whose
            logarithm is drawn. made: parameters that the simulator is given.
        make: these of quantities [P] by name, of the voltage's share of the reference [P] (None: no battery) and of the
            task's control period [s], the longest delay that the simulator has.
        scales: parameters, and those that are nothing without them.
    """

    needed: tuple[str, ...]
    exponent: str
    positive: tuple[str, ...]
    made: tuple[str, ...]
    make: Callable[[Mapping[str, Numbers], Numbers | None, float], Made]
    scales: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Posterior:
    """mean: [Q], root: [Q, Q] of the covariance, in fitted coordinates. share: least and greatest voltage over the
    reference; None: no battery. period: of the task's control [s]. limits: by parameter, least and greatest [size] that
    the simulator takes: normal draws have no end, and the few beyond are cut to these."""

    kind: Kind
    order: tuple[str, ...]
    mean: Numbers
    root: Numbers
    share: tuple[float, float] | None
    period: float = inf
    limits: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def parameters(self, normal: Numbers, uniform: Numbers) -> Made:
        """The simulator's parameters [P, size] of standard normal [P, Q] and uniform [P] numbers."""
        theta = self.mean + np.zeros_like(normal)
        for k, column in enumerate(self.root.T):  # in this order, whatever the number of rows: a product has others
            theta += normal[:, k, None] * column
        quantities = {name: np.exp(theta[:, k]) if name in self.kind.positive else theta[:, k]
                      for k, name in enumerate(self.order)}
        share = None if self.share is None else self.share[0] + (self.share[1] - self.share[0]) * uniform
        return self.kind.make(quantities, share, self.period)

    def draw(self, draw: KeyedDraws) -> dict[str, Tensor]:
        """Parameters [K, size] by name, of one row each of ``draw``. On a GPU they are made by the CPU."""
        normal, uniform = draw.normal(STREAM, len(self.order)), draw.uniform(f"{STREAM}.voltage", 1)[:, 0]
        made = self.parameters(normal.cpu().double().numpy(), uniform.cpu().double().numpy())
        return {name: torch.from_numpy(value).to(draw.env.device, torch.float32) for name, value in made.items()}

    def cut(self, name: str, value: Tensor) -> Tensor:
        """Draws [K, size] of a parameter, those beyond its limits cut to them."""
        return value.clamp(*self.limits[name]) if name in self.limits else value

    @cached_property
    def ends(self) -> dict[str, tuple[tuple[float, ...], tuple[float, ...]]]:
        """By parameter, where all but :data:`TAIL` of the draws of each component lie."""
        rng = np.random.default_rng(0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            made = self.parameters(rng.standard_normal((SAMPLES, len(self.order))), rng.random(SAMPLES))
        if wild := [name for name, value in made.items() if not np.isfinite(value).all()]:
            raise ValueError(f"draws of {', '.join(wild)} are no finite numbers: means or variances are too large")
        return {name: tuple(tuple(np.quantile(value, share, axis=0).tolist()) for share in (TAIL, 1 - TAIL))
                for name, value in made.items()}  # type: ignore[misc]  # two ends


# ---------------------------------------------------------------- from configuration


def parse_posterior(raw: Any, robot: str, kind: Kind, where: str = "randomize.posterior", period: float = inf
                    ) -> Posterior:
    """The posterior that ``raw`` describes, for ``robot`` whose control period is ``period`` [s]; every name and number
    is checked."""
    what = checked(raw, kind, where)
    if what["robot"] != robot:
        raise ValueError(f"{where} is of robot {what['robot']!r}, and the task is of {robot!r}: identify that one")
    covariance, mean = np.array(what["covariance"], float), np.array(what["mean"], float)
    volts = what["voltage"]
    share = None if volts is None else (volts[0] / what["reference_v"], volts[1] / what["reference_v"])
    found = Posterior(kind, tuple(what["order"]), mean, root_of(covariance, where), share, period)
    try:
        _ = found.ends
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return found


def for_parameter(posterior: Posterior | None, where: str, name: str) -> Posterior:
    """The posterior, if it says something of the parameter ``name``."""
    if posterior is None:
        raise ValueError(f"{where}: kind posterior needs one: randomize=FILE, where FILE is of `temporeal identify "
                         "--randomization FILE`")
    if name not in posterior.kind.made:
        raise ValueError(f"{where}: a posterior says nothing of {name!r}; it does of {', '.join(posterior.kind.made)}")
    return posterior


def check_whole(drawn: Sequence[str], posterior: Posterior | None, where: str) -> None:
    """Refuse to draw from a posterior what only makes sense beside another parameter that is not."""
    for name, scaled in (posterior.kind.scales if posterior is not None else {}).items():
        if name not in drawn and (left := [each for each in scaled if each in drawn]):
            raise ValueError(f"{where}.{name} is not of kind posterior, and {' and '.join(left)} are: flights show "
                             f"them per {name}, so that with another one robots would not fly. If you measured it, say "
                             f"so to temporeal identify: --known {name}=VALUE,SD")


def checked(raw: Any, kind: Kind, where: str) -> dict[str, Any]:
    """``raw``, if it is a posterior of this kind, of whichever robot."""
    if not isinstance(raw, Mapping) or set(raw) != set(KEYS):
        got = ", ".join(map(str, raw)) if isinstance(raw, Mapping) else repr(raw)
        raise ValueError(f"{where} has {got[:200]}; needed are {', '.join(KEYS)}")
    if raw["format"] != FORMAT or type(raw["version"]) is not int or raw["version"] != VERSION:  # True is 1
        raise ValueError(f"{where}: format {raw['format']!r:.60}, version {raw['version']!r:.20}; read is {FORMAT!r}, "
                         f"{VERSION}")
    for key in ("robot", "revision"):
        if not isinstance(raw[key], str):
            raise ValueError(f"{where}.{key} is {raw[key]!r:.60}; a text is needed")
    if not isinstance(raw["converged"], bool):
        raise ValueError(f"{where}.converged is {raw['converged']!r:.60}; true or false is needed")
    _check_logs(raw["logs"], where)
    _check_order(raw, kind, where)
    _check_status(raw, where)
    _check_battery(raw, kind, where)
    count = len(raw["order"])
    _check_list(raw["mean"], count, f"{where}.mean")
    rows = raw["covariance"]
    if not isinstance(rows, (list, tuple)) or len(rows) != count:
        raise ValueError(f"{where}.covariance: {count} rows are needed, one for each of order")
    for k, row in enumerate(rows):
        _check_list(row, count, f"{where}.covariance[{k}]")
    root_of(np.array(rows, float), where)
    return dict(raw)


def root_of(covariance: Numbers, where: str) -> Numbers:
    """R with R R^T = ``covariance`` [Q, Q], the lower triangular one. It is unique, so that every machine draws the
    same (eigenvectors of equal eigenvalues are whatever a library makes of them). Refuses what is no covariance."""
    variance = np.diag(covariance)
    scale = np.sqrt(np.abs(variance)) + 1e-150
    scaled = covariance / np.outer(scale, scale)
    even = 0.5 * (scaled + scaled.T)
    least = np.linalg.eigvalsh(even).min()
    if (variance < 0).any() or not np.allclose(scaled, scaled.T, atol=SYMMETRIC) or least < LEAST:
        raise ValueError(f"{where}.covariance is not symmetric, or has a negative variance in some direction: no "
                         "covariance")
    return np.asarray(scale[:, None] * np.linalg.cholesky(even + (RIDGE - min(least, 0.0)) * np.eye(len(even))))


def _check_list(row: Any, count: int, where: str) -> None:
    if not isinstance(row, (list, tuple)) or len(row) != count or not all(map(is_number, row)):
        raise ValueError(f"{where} is {row!r:.80}; {count} finite numbers are needed, one for each of order")


def _check_logs(logs: Any, where: str) -> None:
    if not isinstance(logs, (list, tuple)) or not logs:
        raise ValueError(f"{where}.logs is {logs!r:.60}; a list of one at least is needed")
    for each in logs:
        if not isinstance(each, Mapping) or set(each) != {"name", "sha256"} or not all(
                isinstance(value, str) for value in each.values()):
            raise ValueError(f"{where}.logs: {each!r:.80}; name and sha256, both texts, are needed")


def _check_order(raw: Mapping[str, Any], kind: Kind, where: str) -> None:
    """Every quantity once, and none that nobody knows."""
    order, legal = raw["order"], (*kind.needed, kind.exponent)
    if not isinstance(order, (list, tuple)) or not all(isinstance(name, str) for name in order):
        raise ValueError(f"{where}.order is {order!r:.80}; a list of names is needed")
    if unknown := [name for name in order if name not in legal]:
        raise ValueError(f"{where}.order: no such quantity: {', '.join(unknown)[:200]}; legal: {', '.join(legal)}")
    if missing := [name for name in kind.needed if name not in order]:
        raise ValueError(f"{where}.order lacks {', '.join(missing)}")
    if len(set(order)) < len(order):
        raise ValueError(f"{where}.order has a name twice")
    positive = [name for name in order if name in kind.positive]
    if raw["logarithm"] != positive:
        raise ValueError(f"{where}.logarithm is {raw['logarithm']!r:.80}; of these the logarithm is drawn: "
                         f"{', '.join(positive)}")


def _check_status(raw: Mapping[str, Any], where: str) -> None:
    """One for each of order."""
    status = raw["status"]
    if not isinstance(status, Mapping) or set(status) != set(raw["order"]) or not all(
            isinstance(each, str) and each in STATUSES for each in status.values()):
        raise ValueError(f"{where}.status is {status!r:.80}; for each of order one of {', '.join(STATUSES)} is needed")


def _check_battery(raw: Mapping[str, Any], kind: Kind, where: str) -> None:
    """A range of voltages, with the quantity that says what they do; or none."""
    volts, reference = raw["voltage"], raw["reference_v"]
    if not is_number(reference) or not VOLTS[0] <= reference <= VOLTS[1]:
        raise ValueError(f"{where}.reference_v is {reference!r:.60}; {VOLTS[0]:g} to {VOLTS[1]:g} V are legal")
    check_voltage(volts, reference, where)
    if volts is not None and kind.exponent not in raw["order"]:
        raise ValueError(f"{where}.voltage is {list(volts)}, and order lacks {kind.exponent}, which says what a "
                         "voltage does: null is legal")


def check_voltage(volts: Any, reference: float, where: str) -> None:
    """Refuse what is no range [V] of a battery about its reference."""
    if volts is None:
        return
    least, most = (share * reference for share in SHARE)
    if (not isinstance(volts, (list, tuple)) or len(volts) != 2 or not all(map(is_number, volts))
            or not least <= volts[0] <= volts[1] <= most):
        raise ValueError(f"{where}.voltage is {volts!r:.60}; null, or [least, most] within {least:.3g} to {most:.3g} V"
                         f", as a battery is about reference_v, {reference:g} V (temporeal identify --voltage)")
