"""``identified.yaml``: what was found, in a file that whoever reads it can check.

Numbers and texts only. :func:`read` refuses what does not have exactly these keys, what is no finite number, intervals
that do not hold their value, a covariance that is none, and means that are not the parameters' values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over.files import read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.sim.identification.noise import TERMS
from temporeal.sim.identification.parameters import SIDE_90
from temporeal.sim.identification.settings import VOLTS
from temporeal.sim.identification.verdicts import Identified, posterior_of, verdicts
from temporeal.sim.randomization.statuses import IDENTIFIED, STATUSES

FORMAT, JOINTS, VERSION = "temporeal identified quadrotor", "temporeal identified joints", 2
LARGEST = 1 << 22
KEYS: Mapping[str, type | tuple[type, ...]] = {
    "format": str, "version": int, "robot": str, "revision": str, "logs": list, "fit": dict, "parameters": dict,
    "covariance": dict, "simulator": dict, "sensors": dict}
OF_LOG = ("name", "sha256", "seconds", "step_s")
OF_FIT = ("converged", "rounds", "stretches", "stretch_s", "reference_v", "draws", "independent_draws",
          "sampled_widths")
"""Of a quadrotor's; of joints' with ``physics_s`` in place of ``reference_v``."""
POSITIVE = (1e-9, np.inf)
OWN: Mapping[str, tuple[str, tuple[float, float]]] = {FORMAT: ("reference_v", VOLTS), JOINTS: ("physics_s", POSITIVE)}
"""By format, what of a fit it has alone, and its range: V at which a command is a setpoint; s of a physics step."""
OF_PARAMETER = ("unit", "value", "low", "high", "status", "why", "prior_low", "prior_high", "shrink", "logarithm")
OF_SIMULATOR = ("value", "low", "high")


class WrongFile(ValueError):
    """A file that is no identification."""


def content(found: Identified, revision: str) -> dict[str, Any]:
    """What the file says, in numbers and texts alone."""
    told = verdicts(found)
    mean, covariance = posterior_of(found)
    problem = found.problem
    return {
        "format": found.format, "version": VERSION, "robot": found.robot, "revision": revision,
        "logs": [{"name": each.name, "sha256": each.digest, "seconds": round(each.seconds, 3),
                  "step_s": round(each.step, 9)} for each in problem.records],
        "fit": {"converged": found.fit.converged, "rounds": found.fit.rounds,
                "stretches": sum(map(len, problem.begins)),
                "stretch_s": round(problem.length * problem.records[0].step, 9),
                OWN[found.format][0]: float(found.setting),
                "draws": 0 if found.draws is None else len(found.draws.theta),
                "independent_draws": 0.0 if found.draws is None else rounded(found.draws.independent),
                "sampled_widths": sampled_widths(found)},
        "parameters": {each.quantity.name: {
            "unit": each.quantity.unit, "value": rounded(each.value), "low": rounded(each.low),
            "high": rounded(each.high), "status": each.status, "why": each.why, "prior_low": rounded(each.prior[0]),
            "prior_high": rounded(each.prior[1]), "shrink": rounded(min(each.shrink, 9.99)),
            "logarithm": each.quantity.log} for each in told},
        "covariance": {"order": [each.name for each in found.asked], "mean": [rounded(each, 9) for each in mean],
                       "matrix": [[rounded(each, 9) for each in row] for row in covariance]},
        "simulator": simulator(found), "sensors": sensors(found)}


def sampled_widths(found: Identified) -> list[float]:
    """The least and the most of: width of a parameter's 90 % by draws, over that of the normal approximation, of what
    is identified. Empty without draws. Far from 1, the posterior is not normal, or there are too few draws."""
    if found.draws is None:
        return []
    low, high = np.quantile(found.draws.theta, [0.05, 0.95], axis=0)
    ratios = (high - low) / (2 * SIDE_90 * found.posterior.sd)
    told = [each.status == IDENTIFIED for each in verdicts(found)]
    return numbers([ratios[told].min(), ratios[told].max()]) if any(told) else []


def simulator(found: Identified) -> dict[str, dict[str, list[float]]]:
    """The backend's parameters: at the fit, and the central 90 % of draws from the posterior."""
    mean, covariance = posterior_of(found)
    rng = np.random.default_rng(0)
    drawn = rng.multivariate_normal(mean, covariance, 2000, method="eigh")
    fitted, many = (found.simulated(theta) for theta in (mean[None], drawn))
    return {name: {"value": numbers(fitted[name][0]), "low": numbers(np.quantile(many[name], 0.05, axis=0)),
                   "high": numbers(np.quantile(many[name], 0.95, axis=0))} for name in fitted}


def sensors(found: Identified) -> dict[str, dict[str, float]]:
    """Of each channel the terms of its noise, and how many of its samples count as one."""
    noise = found.fit.noise
    return {channel: {**dict(zip(TERMS, numbers(terms))), "alike": rounded(float(alike))}
            for channel, terms, alike in zip(found.problem.channels, noise.terms, noise.alike)}


def numbers(values: Any) -> list[float]:
    """As plain numbers of six digits."""
    return [rounded(float(each)) for each in values]


def rounded(value: float, digits: int = 6) -> float:
    """``value`` to ``digits`` digits that count."""
    return float(f"{float(value):.{digits}g}")


def write(path: Path, what: Mapping[str, Any]) -> None:
    """Write the file whole or not at all; it is checked before."""
    check(dict(what), str(path), JOINTS if what["format"] == JOINTS else FORMAT)
    text = yaml.safe_dump(dict(what), sort_keys=False, width=110, default_flow_style=None)
    write_whole(path, text.encode())


def read(path: Path, kind: str = FORMAT) -> dict[str, Any]:
    """The content of a file that somebody handed over, of the format ``kind``."""
    try:
        what = from_yaml(read_text(path, LARGEST), str(path))
    except yaml.YAMLError as error:
        raise WrongFile(f"{path}: {error}") from error
    return check(what, str(path), kind)


def check(what: Any, where: str, kind: str = FORMAT) -> dict[str, Any]:
    """``what``, if it is an identification of the format ``kind``, of :data:`OWN`."""
    keyed(what, KEYS, where)
    for key, types in KEYS.items():
        if not isinstance(what[key], types):
            raise WrongFile(f"{where}: {key} is {shown(what[key])}; {types} is needed")
    if what["format"] != kind or what["version"] != VERSION:
        raise WrongFile(f"{where}: format {shown(what['format'])}, version {shown(what['version'])}; {kind!r}, "
                        f"{VERSION} is read")
    if not what["logs"]:
        raise WrongFile(f"{where}: logs is empty; one at least is needed")
    for k, log in enumerate(what["logs"]):
        texts(log, OF_LOG, ("name", "sha256"), f"{where}: logs[{k}]")
        ranged(log, {"seconds": POSITIVE, "step_s": POSITIVE}, f"{where}: logs[{k}]")
    check_fit(what["fit"], f"{where}: fit", kind)
    for name, each in what["parameters"].items():
        parameter(each, f"{where}: parameters.{name}")
    for name, each in what["simulator"].items():
        ends(each, f"{where}: simulator.{name}")
    for name, each in what["sensors"].items():
        keyed(each, (*TERMS, "alike"), f"{where}: sensors.{name}")
        ranged(each, dict.fromkeys((*TERMS, "alike"), (0.0, np.inf)), f"{where}: sensors.{name}")
    covariance(what, where)
    return dict(what)


def shown(value: Any) -> str:
    """For an error, and not the whole of it."""
    try:
        return repr(value)[:60]
    except ValueError:  # more digits than Python prints
        return "a number of very many digits"


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number that a float holds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return bool(np.isfinite(float(value)))
    except OverflowError:
        return False


def keyed(what: Any, keys: Any, where: str) -> None:
    """Refuse other keys than these."""
    if not isinstance(what, dict) or set(what) != set(keys):
        got = ", ".join(map(shown, what)) if isinstance(what, dict) else shown(what)
        raise WrongFile(f"{where} has {got}; needed are {', '.join(keys)}")


def texts(what: Any, keys: Sequence[str], wanted: Sequence[str], where: str) -> None:
    """Refuse other keys than these, and ``wanted`` that are no text."""
    keyed(what, keys, where)
    for key in wanted:
        if not isinstance(what[key], str):
            raise WrongFile(f"{where}: {key} is {shown(what[key])}; a text is needed")


def ranged(what: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]], where: str) -> None:
    """Refuse what is no number, or none of its range."""
    for key, (low, high) in ranges.items():
        if not is_number(what[key]) or not low <= what[key] <= high:
            raise WrongFile(f"{where}: {key} is {shown(what[key])}; a number of {low:g} to {high:g} is needed")


def check_fit(each: Any, where: str, kind: str) -> None:
    """Refuse a fit that none was."""
    own, within = OWN[kind]
    keyed(each, [own if key == OWN[FORMAT][0] else key for key in OF_FIT], where)
    if not isinstance(each["converged"], bool):
        raise WrongFile(f"{where}: converged is {shown(each['converged'])}; true or false is needed")
    for key, least in (("rounds", 1), ("stretches", 1), ("draws", 0)):
        if isinstance(each[key], bool) or not isinstance(each[key], int) or each[key] < least:
            raise WrongFile(f"{where}: {key} is {shown(each[key])}; a whole number of {least} at least is needed")
    ranged(each, {"stretch_s": POSITIVE, own: within, "independent_draws": (0.0, np.inf)}, where)
    widths = each["sampled_widths"]
    if not isinstance(widths, list) or len(widths) not in (0, 2) or not all(map(is_number, widths)):
        raise WrongFile(f"{where}: sampled_widths is {shown(widths)}; no number or two are needed")


def ends(each: Any, where: str) -> None:
    """Refuse a simulator's parameter that is not three lists of as many numbers, or whose low is above its high."""
    keyed(each, OF_SIMULATOR, where)
    lists = [each[key] for key in OF_SIMULATOR]
    if not all(isinstance(one, list) and one and len(one) == len(lists[0]) and all(map(is_number, one))
               for one in lists):
        raise WrongFile(f"{where}: value, low and high are lists of as many numbers each, got "
                        f"{', '.join(map(shown, lists))}")
    if any(low > high for low, high in zip(each["low"], each["high"])):
        raise WrongFile(f"{where}: low {shown(each['low'])} is above high {shown(each['high'])}")


def parameter(each: Any, where: str) -> None:
    """Refuse a parameter whose numbers contradict each other."""
    texts(each, OF_PARAMETER, ("unit", "status", "why"), where)
    found = [each[key] for key in ("low", "value", "high", "prior_low", "prior_high", "shrink")]
    if not all(map(is_number, found)):
        raise WrongFile(f"{where}: low, value, high, prior_low, prior_high and shrink are numbers, got "
                        f"{', '.join(map(shown, found))}")
    if not isinstance(each["logarithm"], bool):
        raise WrongFile(f"{where}: logarithm is {shown(each['logarithm'])}; true or false is needed")
    if each["logarithm"] and min(found[0], found[3]) <= 0 or found[5] < 0:
        raise WrongFile(f"{where}: {shown(found)}; numbers above 0 are needed where logarithm is true, and a shrink of "
                        "0 at least")
    if not found[0] <= found[1] <= found[2] or not found[3] < found[4]:
        raise WrongFile(f"{where}: value {found[1]} is not within {found[0]} to {found[2]}, or the prior "
                        f"{found[3]} to {found[4]} is empty")
    if each["status"] not in STATUSES:
        raise WrongFile(f"{where}: status {shown(each['status'])}; {', '.join(STATUSES)} are legal")


def covariance(what: Mapping[str, Any], where: str) -> None:
    """Refuse a covariance that is none, or of other parameters."""
    found = what["covariance"]
    keyed(found, ("order", "mean", "matrix"), f"{where}: covariance")
    if found["order"] != list(what["parameters"]):
        raise WrongFile(f"{where}: covariance.order is not the order of parameters")
    rows = found["matrix"] if isinstance(found["matrix"], list) else []
    for row in (found["mean"], *rows):
        if not isinstance(row, list) or not all(map(is_number, row)):
            raise WrongFile(f"{where}: covariance.mean and each row of covariance.matrix are lists of numbers, got "
                            f"{shown(row)}")
    count, sizes = len(found["order"]), sorted({len(row) for row in rows})
    mean = np.array(found["mean"], dtype=float)
    matrix = np.array(rows, dtype=float) if len(sizes) == 1 else np.zeros((len(rows), 0))
    if not count or mean.shape != (count,) or matrix.shape != (count, count):
        raise WrongFile(f"{where}: covariance has shapes {mean.shape} and {matrix.shape}; {count} numbers, and as many "
                        "rows of as many, are needed")
    scale = np.sqrt(np.abs(np.diag(matrix))) + 1e-300
    scaled = matrix / np.outer(scale, scale)
    if not np.allclose(scaled, scaled.T, atol=1e-5) or np.linalg.eigvalsh(scaled).min() < -1e-4:
        raise WrongFile(f"{where}: covariance.matrix is not symmetric, or has a negative variance")
    for name, x, sd in zip(found["order"], mean, np.sqrt(np.diag(matrix))):
        each = what["parameters"][name]
        value = np.log(each["value"]) if each["logarithm"] else each["value"]
        if abs(x - value) > 1e-3 * sd + 1e-5 * (1.0 if each["logarithm"] else abs(value)):  # six digits are written
            raise WrongFile(f"{where}: covariance.mean of {name} is {x:.6g}, where parameters has {value:.6g}"
                            + (" as the logarithm" if each["logarithm"] else ""))
