"""Domain randomization: named distributions over a robot's physical parameters and disturbances, per episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from robots.spec import Parameter
from sim.random import normal, stream, uniform

DISTURBANCES = {"wind_w": 3, "force_w": 3, "torque_b": 3, "command_delay": 1}  # components; default 0
KINDS = ("sources", "uniform", "normal")


@dataclass(frozen=True)
class Distribution:
    """One parameter's distribution.

    ``sources``: uniform over the published range, shrunk towards the nominal value by ``scale`` in [0, 1].
    ``uniform``: between ``low`` and ``high`` (each component). ``normal``: mean 0, standard deviation ``std``.
    ``shared``: one draw for all components, such as a battery that weakens all rotors alike.
    """

    kind: str
    scale: float = 1.0
    low: float = 0.0
    high: float = 0.0
    std: float = 0.0
    shared: bool = False


def parse_randomization(
    raw: Mapping[str, Any] | None, parameters: Mapping[str, Parameter]
) -> dict[str, Distribution]:
    """Distributions by parameter name from configuration; every name and kind is checked."""
    out = {}
    for name, spec in dict(raw or {}).items():
        if name not in parameters:
            raise ValueError(f"randomize: there is no parameter {name!r} here; legal: {', '.join(parameters)}")
        if not isinstance(spec, Mapping):
            raise ValueError(f"randomize.{name} is a distribution such as {{kind: sources}}, got {spec!r}")
        spec = dict(spec)
        if spec.get("kind") not in KINDS:
            raise ValueError(f"randomize.{name}.kind is {spec.get('kind')!r}; legal: {', '.join(KINDS)}")
        unknown = set(spec) - {f.name for f in fields(Distribution)}
        if unknown:
            raise ValueError(f"randomize.{name}: unknown keys {sorted(unknown)}; legal: "
                             f"{', '.join(f.name for f in fields(Distribution))}")
        for key in ("scale", "low", "high", "std"):
            value = spec.get(key, 0.0)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
                raise ValueError(f"randomize.{name}.{key} is a finite number, got {value!r}")
        dist = Distribution(**spec)
        if dist.kind == "sources" and name in DISTURBANCES:
            raise ValueError(f"randomize.{name}: 'sources' needs a parameter with published values, not a disturbance")
        if not 0 <= dist.scale <= 1 or dist.low > dist.high or dist.std < 0:
            raise ValueError(f"randomize.{name}: needs 0 <= scale <= 1, low <= high and std >= 0, got {dist}")
        if name not in DISTURBANCES and dist.kind == "normal":
            raise ValueError(f"randomize.{name}: 'normal' is around 0, for disturbances; legal here: sources, uniform")
        if dist.kind == "uniform" and dist.low < 0 and (name not in DISTURBANCES or name == "command_delay"):
            raise ValueError(f"randomize.{name}: a physical parameter is not negative, got low = {dist.low}")
        out[name] = dist
    return out


def draw_parameters(
    parameters: Mapping[str, Parameter], distributions: Mapping[str, Distribution], seed: int, ids: Tensor,
    episode: Tensor,
) -> dict[str, Tensor]:
    """Parameters [K, ...] of the worlds ``ids`` [K] in their ``episode`` [K]; keyed, so independent of N and order."""
    out = {}
    for name, dist in distributions.items():
        count = len(parameters[name].nominal)
        key = stream(f"randomize.{name}")
        draws = 1 if dist.shared else count
        if dist.kind == "normal":
            value = dist.std * normal(seed, ids, episode, key, draws).expand(-1, count)
        else:
            u = uniform(seed, ids, episode, key, draws).expand(-1, count)
            if dist.kind == "uniform":
                value = dist.low + (dist.high - dist.low) * u
            else:
                p = parameters[name]
                nominal, low, high = (torch.tensor(x, device=u.device) for x in (p.nominal, p.low, p.high))
                low, high = nominal + dist.scale * (low - nominal), nominal + dist.scale * (high - nominal)
                value = low + (high - low) * u
        out[name] = value[:, 0] if count == 1 else value
    return out
