"""Entries of ``spec.yaml`` and the model of a mobile base: its speeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from temporeal.policies.cli.own_robot.answers import Answers
from temporeal.policies.cli.own_robot.copying import copy_model
from temporeal.policies.cli.own_robot.sources import Source
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.user_robots.mobile_bases import CONTROL_HZ, ENTRIES, NEEDED, RATE_HZ

SPEEDS = {"forward": 0.5, "turn": 1.0}  # m/s, rad/s: slow, where nobody says others. Assumed


def entries(source: Source, folder: Path, answers: Answers) -> tuple[dict[str, Any], list[str]]:
    """Copy the model to ``folder``; the entries, and what was changed."""
    packages = {str(name): Path(str(place)) for name, place in answers.given.get("packages", {}).items()}
    model, notes = copy_model(source, folder, packages)
    said = dict(answers.given.get("mobile_base", {}))
    if unknown := [key for key in said if key not in ENTRIES]:
        raise BadInput(f"mobile_base: no entry {unknown[0]!r}; legal: {', '.join(ENTRIES)}")
    speeds = {**SPEEDS, **said}
    assumed = [key for key in NEEDED if key not in said]
    given: dict[str, Any] = {
        "model": model.name, "kind": "mobile_base", "mobile_base": speeds,
        "control_hz": float(answers.given.get("control_hz", CONTROL_HZ)),
        "rate_hz": float(answers.given.get("rate_hz", RATE_HZ))}
    if "license" in answers.given:
        given["license"] = str(answers.given["license"])
    if assumed:
        given["defaults"] = {key: f"{SPEEDS[key]:g}: slow; take the driver's" for key in assumed}
    return given, notes
