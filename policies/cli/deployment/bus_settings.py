"""The settings of the group ``deploy``, and whether the bus and the robot that they name can be used."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from temporeal.policies.runs.errors import BadInput, bad_input

WORD, NUMBER, FLAG, NULL = "a word", "a whole number", "true or false", "null"
KINDS: Mapping[str, tuple[str, ...]] = {
    "transport": (WORD,), "domain": (NUMBER, NULL), "namespace": (WORD,), "interface": (WORD, NULL),
    "signals": (WORD, NULL), "worker": (WORD, NULL), "loopback": (FLAG,), "priority": (WORD,), "core": (NUMBER, NULL),
    "awake": (FLAG,), "autostart": (FLAG,), "record": (FLAG,)}
"""The kinds that each setting may have: a default of null shows none, and neither does a user's file."""


def deploy_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """The settings of the group deploy, complete and each of its kind; their values are checked where they are used."""
    from temporeal.policies.runs.settings.compose import section
    from temporeal.policies.runs.settings.values import kind, shown

    deploy = section("deploy", overrides)
    for name in (*KINDS, *deploy):
        if name not in deploy or name not in (*KINDS, "name"):
            fault = f"has no setting {name!r}" if name in deploy else f"lacks the setting {name!r}"
            raise BadInput(f"deploy {fault}; legal, and all needed: {', '.join(KINDS)}")
    for name, kinds in KINDS.items():
        got = "an empty word" if deploy[name] == "" and NULL in kinds else kind(deploy[name])
        if got not in kinds:
            raise BadInput(f"deploy.{name}={shown(deploy[name])}: expected {' or '.join(kinds)}, got {got}")
    return deploy


def check_free(deploy: Mapping[str, Any]) -> None:
    """Refuse a robot that another guard holds already."""
    from temporeal_bridge.link.datagrams import LinkError
    from temporeal_bridge.link.sockets import default_path, lock_guard

    try:
        os.close(lock_guard(default_path(deploy["domain"], deploy["namespace"])))
    except (LinkError, OSError) as error:
        raise BadInput(str(error)) from error


def check_bus(
    deploy: Mapping[str, Any], robot: str, artifact: Path | None = None, instructions: Sequence[str] = ()
) -> None:
    """Refuse what every node would refuse, before any is started; with an ``artifact``, what it needs, too, and what it
    cannot be told."""
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal.robots.spec import load_robot
    from temporeal_bridge.interface.loading import load_interface
    from temporeal_bridge.launching.preflight import check_mission, check_processes, check_worker
    from temporeal_bridge.transports.transport import TransportError, domain_id

    try:
        with bad_input():
            spec = load_robot(robot)
            interface = load_interface(spec, deploy["interface"], deploy["signals"])
            if artifact is not None:
                manifest = load_manifest(artifact)
                check_mission(manifest, spec, interface, instructions)
                check_worker(deploy["worker"], manifest)
            check_processes(*(deploy[key] for key in ("transport", "namespace", "priority", "core", "awake")))
        domain_id(deploy["domain"])
    except TransportError as error:
        raise BadInput(str(error)) from error
