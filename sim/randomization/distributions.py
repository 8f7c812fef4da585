"""Domain randomization: named distributions over whatever can be set per world, and draws keyed by the episode.

    distributions = parse_randomization({"mass": {"kind": "sources"}, "cube.*": {"kind": "scale", "low": 0.5,
                                         "high": 2.0, "by": "log_uniform"}}, backend.parameters)
    draw_parameters(backend.parameters, distributions, seed, worlds, episode)      # name -> [K, count]

The same functions draw what a camera rig takes (poses, lights, colours, textures). A draw depends on the name of the
parameter, (seed, world, episode) and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.spec import Parameter
from temporeal.sim.compiler.keyed_random import KeyedDraws
from temporeal.sim.randomization.posterior import Posterior, check_whole, for_parameter

Numbers = float | tuple[float, ...]  # for all components, or one each
Parameters = Mapping[str, Parameter]

TAKES: dict[str, tuple[str, ...]] = {
    "sources": ("scale",), "uniform": ("low", "high"), "log_uniform": ("low", "high"),
    "normal": ("std", "mean", "low", "high"), "scale": ("by", "low", "high", "std"),
    "add": ("by", "low", "high", "std"), "choice": ("values", "weights"), "constant": ("value",),
    "rotation": ("low", "high"), "posterior": ()}
KINDS = tuple(TAKES)
COMMON = ("kind", "shared", "components", "when", "optional")
NEEDS = {"uniform": ("low", "high"), "log_uniform": ("low", "high"), "normal": ("std",), "choice": ("values",),
         "constant": ("value",), "rotation": ("high",)}
BY = {"uniform": ("low", "high"), "log_uniform": ("low", "high"), "normal": ("std",)}
REACH = 3.0  # standard deviations at which a normal distribution of a bounded quantity ends
SIGNED = ("com", "gravity_w", "wind_w", "force_w", "torque_w", "torque_b", "pos", "turn", "dir")  # may be negative
POSITIVE = ("mass", "inertia", "strength", "arm", "torque_per_thrust", "tau_up", "tau_down", "motor_gain", "fovy")
DISTURBANCES = ("wind_w", "force_w", "torque_w", "torque_b")  # may change in mid-episode
LARGEST_UNIT = 1.0 - 2.0**-24


@dataclass(frozen=True)
class Distribution:
    """One parameter's distribution; numbers are for all components, or a tuple with one for each.

    ========================  ======================================================================================
    ``sources``               uniform over the published range, shrunk towards nominal by ``scale`` in [0, 1]
    ``uniform``               between ``low`` and ``high``
    ``log_uniform``           its logarithm is uniform; 0 < ``low``
    ``normal``                about ``mean`` (nominal if left out) with ``std``; see :func:`bounds` for where it ends
    ``scale``                 nominal times a factor drawn ``by`` uniform, log_uniform (``low``, ``high``) or normal
                              (about 1 with ``std``, ends at three)
    ``add``                   nominal plus a number drawn ``by`` uniform, or normal (about 0)
    ``choice``                one of ``values``, with ``weights``
    ``constant``              ``value``
    ``rotation``              of 3 components, a rotation vector (rad): any axis, angle uniform in [``low``, ``high``]
    ``posterior``             with all others of this kind, from what flights left open (``posterior``)
    ========================  ======================================================================================

    ``shared``: one draw for all components, such as a battery that weakens all rotors alike. ``components``: by place,
    distributions of single components; the others follow the other fields (nominal where ``kind`` is "").
    ``when``: ``"episode"``, ``"start"`` (once per world, for the whole training), or seconds (least, most) between
    changes in mid-episode (:mod:`temporeal.sim.randomization.disturbances`).
    """

    kind: str
    scale: float = 1.0
    low: Numbers = -inf
    high: Numbers = inf
    std: Numbers = 0.0
    mean: Numbers | None = None
    by: str = "uniform"
    values: tuple[Numbers, ...] = ()
    weights: tuple[float, ...] = ()
    value: Numbers = 0.0
    shared: bool = False
    components: Mapping[int, Distribution] = field(default_factory=dict)
    when: str | tuple[float, float] = "episode"
    posterior: Posterior | None = None


# ---------------------------------------------------------------- from configuration


def parse_randomization(
    raw: Mapping[str, Any] | None, parameters: Parameters, where: str = "randomize", posterior: Posterior | None = None
) -> dict[str, Distribution]:
    """Distributions by parameter name from configuration; every name and number is checked.

    A name may be a pattern (``*.mass``); an exact name comes before patterns, a later pattern before an earlier one.
    ``null`` in place of a distribution leaves a parameter at its nominal value. ``optional: true`` beside ``kind``:
    no error where there is no such parameter. ``posterior``: what those of this kind are drawn from.
    """
    chosen: dict[str, Any] = {}
    given = dict(raw or {})
    for name, spec in given.items():
        found = [name] if name in parameters else [p for p in parameters if fnmatchcase(p, name)]
        if not found and not (isinstance(spec, Mapping) and spec.get("optional") is True):
            raise ValueError(f"{where}: there is no parameter {name!r}; legal: {', '.join(parameters)}")
        chosen |= {p: spec for p in found if p == name or p not in given}
    found = {name: parse_distribution(f"{where}.{name}", spec, name, parameters[name], posterior)
             for name, spec in chosen.items() if spec is not None}
    if len({str(dist.when) for dist in found.values() if dist.posterior is not None}) > 1:
        raise ValueError(f"{where}: parameters of kind posterior are drawn together: when is the same for all")
    check_whole([name for name, dist in found.items() if dist.posterior is not None], posterior, where)
    return found


def parse_distribution(
    where: str, raw: Any, name: str, parameter: Parameter, posterior: Posterior | None = None
) -> Distribution:
    """One distribution of the parameter ``name``, checked."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"{where} is a distribution such as {{kind: sources}}, got {raw!r}")
    spec = dict(raw)
    components, optional = spec.pop("components", None), spec.pop("optional", False)
    if not isinstance(optional, bool):
        raise ValueError(f"{where}.optional is true or false, got {optional!r}")
    if components is not None and "kind" not in spec:
        spec["kind"] = ""
    elif spec.get("kind") not in KINDS:
        raise ValueError(f"{where}.kind is {spec.get('kind')!r}; legal: {', '.join(KINDS)}")
    kind = spec["kind"]
    if kind == "posterior" and (idle := sorted(map(str, {*raw} - {"kind", "when", "optional"}))):
        raise ValueError(f"{where}: {', '.join(idle)} say nothing of kind posterior, whose parameters and components "
                         "are drawn together; legal beside kind: when. Another distribution replaces it whole, such "
                         "as {kind: uniform, low: ..., high: ...}")
    legal = (*COMMON, *TAKES.get(kind, ()))
    if unknown := sorted(map(str, set(spec) - set(COMMON) - {key for keys in TAKES.values() for key in keys})):
        raise ValueError(f"{where}: unknown keys {unknown}; legal with kind {kind or 'of each component'}: "
                         f"{', '.join(legal)}")
    spec = {key: value for key, value in spec.items() if key in legal}  # composed settings keep another kind's keys
    together = for_parameter(posterior, where, name) if kind == "posterior" else None
    dist = Distribution(**_converted(where, spec, len(parameter.nominal)), posterior=together)
    _check_fields(where, dist, spec, parameter)
    if components is not None:
        dist = _with_components(where, dist, components, name, parameter)
    _check_reach(where, dist, name, parameter)
    _check_when(where, dist, name)
    return dist


def _converted(where: str, spec: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The fields of a distribution, numbers checked and lists as tuples."""
    out: dict[str, Any] = {}
    for key, value in spec.items():
        if key in ("low", "high", "std", "mean", "value"):
            out[key] = _numbers(f"{where}.{key}", value, count)
        elif key == "values":
            if not isinstance(value, (list, tuple)) or not value:
                raise ValueError(f"{where}.values is a list with at least one value, got {value!r}")
            out[key] = tuple(_numbers(f"{where}.values", v, count) for v in value)
        elif key == "weights":
            given = spec.get("values")
            count = len(given) if isinstance(given, (list, tuple)) else 0
            if not isinstance(value, (list, tuple)):
                raise ValueError(f"{where}.weights is a list with one number for each of values, got {value!r}")
            out[key] = _numbers(f"{where}.weights", value, count)
        elif key == "scale":
            out[key] = _number(f"{where}.scale", value)
        elif key == "shared" and not isinstance(value, bool):
            raise ValueError(f"{where}.shared is true or false, got {value!r}")
        elif key == "by" and value not in BY:
            raise ValueError(f"{where}.by is {value!r}; legal: {', '.join(BY)}")
        elif key == "when":
            out[key] = _when(where, value)
        else:
            out[key] = value
    return out


def _number(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise ValueError(f"{where} is a finite number, got {value!r}")
    return float(value)


def _numbers(where: str, value: Any, count: int) -> Numbers:
    if not isinstance(value, (list, tuple)):
        return _number(where, value)
    if len(value) != count:
        raise ValueError(f"{where} has {len(value)} numbers; legal: one, or {count}")
    return tuple(_number(where, v) for v in value)


def _when(where: str, value: Any) -> str | tuple[float, float]:
    if value in ("episode", "start"):
        return str(value)
    if isinstance(value, Mapping) and set(value) == {"every_s"}:
        ends = value["every_s"]
        ends = list(ends) if isinstance(ends, (list, tuple)) else [ends, ends]
        if len(ends) == 2:
            low, high = (_number(f"{where}.when.every_s", e) for e in ends)
            if 0 < low <= high:
                return low, high
    raise ValueError(f"{where}.when is {value!r}; legal: episode, start, {{every_s: [least, most]}} with "
                     f"0 < least <= most")


def _check_fields(where: str, dist: Distribution, spec: Mapping[str, Any], p: Parameter) -> None:
    """What a kind needs is given, and its numbers are in order."""
    needs = BY[dist.by] if dist.kind in ("scale", "add") else NEEDS.get(dist.kind, ())
    if missing := [key for key in needs if key not in spec]:
        raise ValueError(f"{where}: kind {dist.kind} needs {' and '.join(missing)}")
    if dist.kind == "sources" and p.low == p.high:
        raise ValueError(f"{where}: 'sources' needs a parameter with a published range ({p.source}); "
                         f"give the range with another kind: {', '.join(KINDS[1:])}")
    if dist.kind == "rotation" and len(p.nominal) != 3:
        raise ValueError(f"{where}: a rotation has 3 components, this parameter {len(p.nominal)}")
    if dist.kind == "add" and dist.by == "log_uniform":
        raise ValueError(f"{where}.by is 'log_uniform', which is for factors; legal with add: uniform, normal")
    low, high, std = (_each(x, len(p.nominal)) for x in (dist.low, dist.high, dist.std))
    if not 0 <= dist.scale <= 1 or any(a > b for a, b in zip(low, high)) or min(std) < 0:
        raise ValueError(f"{where}: needs 0 <= scale <= 1, low <= high and std >= 0, got "
                         f"{ {k: v for k, v in spec.items() if k in ('scale', 'low', 'high', 'std')} }")
    if dist.kind == "normal":
        _check_normal(where, dist, p)
    if "log_uniform" in (dist.kind, dist.by) and min(low) <= 0:
        raise ValueError(f"{where}: log_uniform needs low > 0, got {min(low):g}")
    if dist.kind == "rotation" and not 0 <= max(0.0, min(low)) <= max(high) <= 3.15:
        raise ValueError(f"{where}: angles lie from 0 to pi rad, got {dist.low} to {dist.high}")
    if dist.weights and (min(dist.weights) < 0 or sum(dist.weights) <= 0):
        raise ValueError(f"{where}.weights are not negative and not all 0, got {list(dist.weights)}")


def _check_normal(where: str, dist: Distribution, p: Parameter) -> None:
    """Some of the draws lie between the ends that are given."""
    count = len(p.nominal)
    mean = p.nominal if dist.mean is None else _each(dist.mean, count)
    for m, s, low, high in zip(mean, *(_each(x, count) for x in (dist.std, dist.low, dist.high))):
        if m + REACH * s < low or m - REACH * s > high:
            raise ValueError(f"{where}: low to high, {low:g} to {high:g}, is out of reach of a normal distribution "
                             f"about {m:g} with std {s:g}: none of it is within {REACH:g} std of the mean; set mean "
                             f"(nominal if left out), or take kind uniform")


def _with_components(
    where: str, dist: Distribution, raw: Any, name: str, parameter: Parameter
) -> Distribution:
    """``dist`` with the distributions of single components: ``{2: {...}, "4-6": {...}}``."""
    count, found = len(parameter.nominal), dict[int, Distribution]()
    if not isinstance(raw, Mapping) or not raw:
        raise ValueError(f"{where}.components is a mapping from places, 0 to {count - 1}, to distributions, "
                         f"got {raw!r}")
    for places, spec in raw.items():
        first, _, last = str(places).partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or not int(first) <= int(last or first) < count:
            raise ValueError(f"{where}.components: {places!r} is not a place; legal: 0 to {count - 1}, or a-b for both "
                             f"ends and what lies between")
        if isinstance(spec, Mapping) and set(spec) & {"components", "when", "shared"}:
            raise ValueError(f"{where}.components.{places}: components, when and shared stand one level up")
        for i in range(int(first), int(last or first) + 1):
            found[i] = parse_distribution(f"{where}.components.{places}", spec, name, component(parameter, i))
    return Distribution(**{**vars(dist), "components": found})


def component(p: Parameter, i: int) -> Parameter:
    """The parameter's component ``i`` alone."""
    return Parameter((p.nominal[i],), (p.low[i],), (p.high[i],), p.unit, p.source)


def is_signed(name: str, p: Parameter) -> bool:
    """Whether values of the parameter may be negative."""
    return name.rpartition(".")[2] in SIGNED or min(p.low) < 0


def _check_reach(where: str, dist: Distribution, name: str, p: Parameter) -> None:
    """No draw is a value that the parameter cannot have."""
    low, high = bounds(dist, p, name)
    last = name.rpartition(".")[2]
    others = ", ".join(k for k in KINDS if k != dist.kind)
    if not is_signed(name, p) and min(low) < 0:
        raise ValueError(f"{where}: a physical parameter is not negative, and {dist.kind or 'this'} reaches "
                         f"{min(low):g} (low = {dist.low}); narrow it, or take another kind: {others}")
    if last in POSITIVE and any(lo <= 0 for lo, n in zip(low, p.nominal) if n > 0):
        raise ValueError(f"{where}: {last} is greater than 0, and {dist.kind or 'this'} reaches 0; narrow it, or take "
                         f"another kind: {others}")
    if max(high) > p.most + 1e-9:  # of sums in float
        raise ValueError(f"{where}: {last} is at most {p.most:g} {p.unit} in this simulator, and {dist.kind or 'this'} "
                         f"reaches {max(high):g}; narrow it")
    if name.startswith("color.") and max(high) > 1:
        raise ValueError(f"{where}: a colour is 0 to 1, and {dist.kind} reaches {max(high):g}")
    if name.startswith("texture.") and max(high) > p.high[0]:
        raise ValueError(f"{where}: an index is 0 to {p.high[0]:g}, and {dist.kind} reaches {max(high):g}")


def _check_when(where: str, dist: Distribution, name: str) -> None:
    if isinstance(dist.when, tuple) and name.rpartition(".")[2] not in DISTURBANCES:
        raise ValueError(f"{where}.when: only disturbances change in mid-episode ({', '.join(DISTURBANCES)}); "
                         f"legal here: episode, start")


# ---------------------------------------------------------------- where a distribution ends


def bounds(dist: Distribution, p: Parameter, name: str = "") -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Least and greatest value of each component.

    A normal distribution ends at ``low`` and ``high``; on a side where none is given, three standard deviations from
    its mean. Signed quantities without ``low`` and ``high`` (a force) and those of a posterior are drawn without an
    end: there it is where 0.27 % of the draws lie beyond.
    """
    if dist.posterior is not None:
        return dist.posterior.ends[name]
    count = len(p.nominal)
    low, high = (list(side) for side in _own_bounds(dist, p, count))
    for i, part in dist.components.items():
        (low[i],), (high[i],) = bounds(part, component(p, i), name)
    return tuple(low), tuple(high)


def _own_bounds(dist: Distribution, p: Parameter, count: int) -> tuple[Sequence[float], Sequence[float]]:
    low, high, std = (_each(x, count) for x in (dist.low, dist.high, dist.std))
    if dist.kind == "sources":
        low, high = (tuple(n + dist.scale * (x - n) for n, x in zip(p.nominal, side)) for side in (p.low, p.high))
    elif dist.kind == "normal":
        mean = p.nominal if dist.mean is None else _each(dist.mean, count)
        low = tuple(m - REACH * s if a == -inf else a for a, m, s in zip(low, mean, std))
        high = tuple(m + REACH * s if b == inf else b for b, m, s in zip(high, mean, std))
    elif dist.kind in ("scale", "add"):
        if dist.by == "normal":
            middle = 1.0 if dist.kind == "scale" else 0.0
            low, high = (tuple(middle + side * REACH * s for s in std) for side in (-1, 1))
        if dist.kind == "scale":
            ends = [sorted((n * a, n * b)) for n, a, b in zip(p.nominal, low, high)]
            low, high = tuple(e[0] for e in ends), tuple(e[1] for e in ends)
        else:
            low, high = (tuple(n + x for n, x in zip(p.nominal, side)) for side in (low, high))
    elif dist.kind == "choice":
        table = [_each(v, count) for v in dist.values]
        low, high = (tuple(pick(column) for column in zip(*table)) for pick in (min, max))
    elif dist.kind == "constant":
        low = high = _each(dist.value, count)
    elif dist.kind == "rotation":
        low, high = tuple(-x for x in high), high
    elif not dist.kind:
        low = high = p.nominal
    return low, high


def _each(value: Numbers, count: int) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,) * count


# ---------------------------------------------------------------- draws


def draw_parameters(
    parameters: Parameters, distributions: Mapping[str, Distribution], seed: int, ids: Tensor, episode: Tensor,
    change: int | Tensor = 0,
) -> dict[str, Tensor]:
    """Parameters of the worlds ``ids`` [K] in their ``episode`` [K]: [K, count], [K] where the count is 1.

    ``change``: how often a parameter that changes in mid-episode has done so, [K] or one for all.
    """
    out, together = {}, dict[str, Tensor]()
    for name, dist in distributions.items():
        when = torch.zeros_like(episode) if dist.when == "start" else episode
        step = change if isinstance(dist.when, tuple) else 0
        draw = KeyedDraws(seed, ids, when, step)
        if dist.posterior is not None:
            together = together or dist.posterior.draw(draw)
            value = dist.posterior.cut(name, _possible(name, together[name]))
        else:
            value = _drawn(dist, parameters[name], name, f"randomize.{name}", draw)
        out[name] = value[:, 0] if len(parameters[name].nominal) == 1 else value
    return out


def _drawn(dist: Distribution, p: Parameter, name: str, key: str, draw: KeyedDraws) -> Tensor:
    """Values [K, count]."""
    count = len(p.nominal)
    if dist.kind:
        value = _of_kind(dist, p, name, key, draw, 1 if dist.shared or dist.kind == "choice" else count, count)
    else:
        value = torch.tensor(p.nominal, device=draw.env.device).expand(len(draw.env), count)
    if dist.components:
        columns = [_drawn(dist.components[i], component(p, i), name, f"{key}.{i}", draw) if i in dist.components
                   else value[:, i : i + 1] for i in range(count)]
        value = torch.cat(columns, -1)
    return _possible(name, value)


def _possible(name: str, value: Tensor) -> Tensor:
    """``value`` [K, count], if it is of inertias as those of bodies of matter."""
    return possible_inertia(value) if name.rpartition(".")[2] == "inertia" and value.shape[1] % 3 == 0 else value


def possible_inertia(value: Tensor) -> Tensor:
    """Principal moments [K, 3 B] with the largest of each body at most the sum of its other two: a body of matter."""
    moments = value.reshape(len(value), -1, 3)
    others = moments.sum(-1, keepdim=True) - moments
    return torch.minimum(moments, others).reshape(value.shape)


def _of_kind(
    dist: Distribution, p: Parameter, name: str, key: str, draw: KeyedDraws, draws: int, count: int
) -> Tensor:
    if dist.kind == "normal" and is_signed(name, p) and dist.low == -inf and dist.high == inf:
        mean = p.nominal if dist.mean is None else _each(dist.mean, count)
        value = _tensor(dist.std, draw) * draw.normal(key, draws).expand(-1, count)
        return value + torch.tensor(mean, device=value.device) if any(mean) else value
    if dist.kind == "rotation":
        return _rotation(dist, draw.normal(f"{key}.axis", 3), draw.uniform(key, 1))
    return quantile(dist, p, draw.uniform(key, draws).expand(-1, count))


def _tensor(value: Numbers, draw: KeyedDraws) -> Any:
    return torch.tensor(value, device=draw.env.device) if isinstance(value, tuple) else value


def _rotation(dist: Distribution, axis: Tensor, u: Tensor) -> Tensor:
    low, high = max(0.0, min(_each(dist.low, 3))), max(_each(dist.high, 3))
    return axis / axis.norm(dim=-1, keepdim=True).clamp(min=1e-12) * (low + (high - low) * u)


def quantile(dist: Distribution, p: Parameter, u: Tensor) -> Tensor:
    """The value below which a share ``u`` [K, count] in [0, 1) of the draws of each component lies: [K, count].

    Not for rotations. Single components (``components``) are not looked at.
    """
    def of(value: Numbers) -> Any:
        return torch.tensor(value, device=u.device) if isinstance(value, tuple) else value

    nominal = torch.tensor(p.nominal, device=u.device)
    if dist.kind == "sources":
        low, high = (torch.tensor(x, device=u.device) for x in (p.low, p.high))
        low, high = nominal + dist.scale * (low - nominal), nominal + dist.scale * (high - nominal)
        return low + (high - low) * u
    if dist.kind == "uniform":
        return _uniform(of(dist.low), of(dist.high), u)
    if dist.kind == "log_uniform":
        return _log_uniform(dist.low, dist.high, u)
    if dist.kind == "normal":
        low, high = _own_bounds(dist, p, len(p.nominal))
        return _normal(p.nominal if dist.mean is None else dist.mean, dist.std, low, high, u)
    if dist.kind in ("scale", "add"):
        change = _change(dist, u)
        return nominal * change if dist.kind == "scale" else nominal + change
    if dist.kind == "choice":
        weights = torch.tensor(dist.weights or (1.0,) * len(dist.values), dtype=torch.float64)
        ends = (weights.cumsum(0) / weights.sum())[:-1].to(u.device)
        place = torch.searchsorted(ends, u[:, 0].double().contiguous(), right=True)
        table = torch.tensor([_each(v, len(p.nominal)) for v in dist.values], device=u.device)
        return table[place]
    if dist.kind == "constant":
        return torch.tensor(_each(dist.value, len(p.nominal)), device=u.device).expand(len(u), -1)
    raise ValueError(f"kind {dist.kind!r} has no quantiles")


def _change(dist: Distribution, u: Tensor) -> Tensor:
    """The factor or the difference that is applied to the nominal value."""
    if dist.by == "log_uniform":
        return _log_uniform(dist.low, dist.high, u)
    if dist.by == "normal":
        middle, std = (1.0 if dist.kind == "scale" else 0.0), _each(dist.std, u.shape[1])
        low, high = (tuple(middle + side * REACH * s for s in std) for side in (-1, 1))
        return _normal(middle, dist.std, low, high, u)
    low, high = (torch.tensor(x, device=u.device) if isinstance(x, tuple) else x for x in (dist.low, dist.high))
    return _uniform(low, high, u)


def _uniform(low: Any, high: Any, u: Tensor) -> Tensor:
    out: Tensor = low + (high - low) * u
    return out


def _double(value: Any, u: Tensor) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64, device=u.device)


def _log_uniform(low: Numbers, high: Numbers, u: Tensor) -> Tensor:
    a, b = _double(low, u).log(), _double(high, u).log()
    return (a + (b - a) * u.double()).exp().float()


def _normal(mean: Any, std: Numbers, low: Sequence[float], high: Sequence[float], u: Tensor) -> Tensor:
    """A normal distribution cut off at ``low`` and ``high``, from its inverse: one draw each, none is thrown away."""
    m, a, b = (_double(x, u) for x in (mean, low, high))
    s = _double(std, u).clamp(min=1e-300)
    first, last = (torch.special.ndtr((x - m) / s) for x in (a, b))
    z = torch.special.ndtri(first + (last - first) * (u.double() + 2.0**-25))
    return torch.minimum(torch.maximum(m + s * z, a), b).float()
