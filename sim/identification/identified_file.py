"""``identified.yaml``: what was found, in a file that whoever reads it can check.

Numbers and texts only. :func:`read` refuses what does not have exactly these keys, what is no number, intervals that do
not hold their value, and a covariance that is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over.files import read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.sim.identification.identify import Identified
from temporeal.sim.identification.noise import TERMS
from temporeal.sim.identification.parameters import SIDE_90, simulator_parameters
from temporeal.sim.identification.verdicts import IDENTIFIED, STATUSES, posterior_of, verdicts

FORMAT, VERSION = "temporeal identified quadrotor", 1
LARGEST = 1 << 22
KEYS: Mapping[str, type | tuple[type, ...]] = {
    "format": str, "version": int, "robot": str, "revision": str, "logs": list, "fit": dict, "parameters": dict,
    "covariance": dict, "simulator": dict, "sensors": dict}
OF_LOG = ("name", "sha256", "seconds", "step_s")
OF_FIT = ("converged", "rounds", "stretches", "stretch_s", "reference_v", "draws", "independent_draws",
          "sampled_widths")
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
        "format": FORMAT, "version": VERSION, "robot": found.robot, "revision": revision,
        "logs": [{"name": each.name, "sha256": each.digest, "seconds": round(each.seconds, 3),
                  "step_s": round(each.step, 9)} for each in problem.records],
        "fit": {"converged": found.fit.converged, "rounds": found.fit.rounds,
                "stretches": sum(map(len, problem.begins)),
                "stretch_s": round(problem.length * problem.records[0].step, 9),
                "reference_v": float(problem.reference_v),
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
    fitted, many = (simulator_parameters(found.asked, theta) for theta in (mean[None], drawn))
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
    check(dict(what), str(path))
    text = yaml.safe_dump(dict(what), sort_keys=False, width=110, default_flow_style=None)
    write_whole(path, text.encode())


def read(path: Path) -> dict[str, Any]:
    """The content of a file that somebody handed over."""
    return check(from_yaml(read_text(path, LARGEST), str(path)), str(path))


def check(what: Any, where: str) -> dict[str, Any]:
    """``what``, if it is an identification."""
    keyed(what, KEYS, where)
    for key, kind in KEYS.items():
        if not isinstance(what[key], kind):
            raise WrongFile(f"{where}: {key} is {what[key]!r}; {kind} is needed")
    if what["format"] != FORMAT or what["version"] != VERSION:
        raise WrongFile(f"{where}: format {what['format']!r}, version {what['version']!r}; {FORMAT!r}, {VERSION} is "
                        "read")
    for k, log in enumerate(what["logs"]):
        keyed(log, OF_LOG, f"{where}: logs[{k}]")
    keyed(what["fit"], OF_FIT, f"{where}: fit")
    for name, each in what["parameters"].items():
        parameter(each, f"{where}: parameters.{name}")
    for name, each in what["simulator"].items():
        keyed(each, OF_SIMULATOR, f"{where}: simulator.{name}")
    covariance(what, where)
    return dict(what)


def keyed(what: Any, keys: Any, where: str) -> None:
    """Refuse other keys than these."""
    if not isinstance(what, dict) or set(what) != set(keys):
        got = ", ".join(map(str, what)) if isinstance(what, dict) else repr(what)[:60]
        raise WrongFile(f"{where} has {got}; needed are {', '.join(keys)}")


def parameter(each: Any, where: str) -> None:
    """Refuse a parameter whose numbers contradict each other."""
    keyed(each, OF_PARAMETER, where)
    found = [each[key] for key in ("low", "value", "high", "prior_low", "prior_high", "shrink")]
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) and np.isfinite(x) for x in found):
        raise WrongFile(f"{where}: low, value, high, prior_low, prior_high and shrink are numbers, got {found}")
    if not found[0] <= found[1] <= found[2] or not found[3] < found[4]:
        raise WrongFile(f"{where}: value {found[1]} is not within {found[0]} to {found[2]}, or the prior "
                        f"{found[3]} to {found[4]} is empty")
    if each["status"] not in STATUSES:
        raise WrongFile(f"{where}: status {each['status']!r}; {', '.join(STATUSES)} are legal")


def covariance(what: Mapping[str, Any], where: str) -> None:
    """Refuse a covariance that is none, or of other parameters."""
    found = what["covariance"]
    keyed(found, ("order", "mean", "matrix"), f"{where}: covariance")
    if found["order"] != list(what["parameters"]):
        raise WrongFile(f"{where}: covariance.order is not the order of parameters")
    try:
        mean, matrix = np.array(found["mean"], dtype=float), np.array(found["matrix"], dtype=float)
    except (TypeError, ValueError) as error:
        raise WrongFile(f"{where}: covariance: {error}") from error
    count = len(found["order"])
    if mean.shape != (count,) or matrix.shape != (count, count) or not np.isfinite(matrix).all():
        raise WrongFile(f"{where}: covariance has shapes {mean.shape} and {matrix.shape}; {count} numbers, and as many "
                        "rows of as many, are needed")
    scale = np.sqrt(np.abs(np.diag(matrix))) + 1e-300
    scaled = matrix / np.outer(scale, scale)
    if not np.allclose(scaled, scaled.T, atol=1e-5) or np.linalg.eigvalsh(scaled).min() < -1e-4:
        raise WrongFile(f"{where}: covariance.matrix is not symmetric, or has a negative variance")
