"""Policies for the controller: an artifact in this process, or one that a worker runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy
from temporeal_bridge.controller.mailbox import ControllerMailbox
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.mission import check_fits


def load_artifact(path: Path, robot: RobotSpec, interface: Interface, trust: Path | None = None) -> Artifact:
    """The artifact, if it fits robot and interface and its self-test passes. ``trust``: file of the public key that
    must have signed it; None: no signature is needed."""
    manifest = load_manifest(path, trust)
    check_fits(manifest, robot, interface)  # what it is for is said before what is wrong inside it
    artifact = Artifact.load(path, manifest=manifest)
    if manifest.chunk is not None:
        raise ArtifactError(f"{path} gives chunks: run it in a worker_node, and name its folder (--worker FOLDER)")
    artifact.self_test()
    return artifact


def connect_worker(
    path: Path, robot: RobotSpec, interface: Interface, folder: Path, clock: Callable[[], float],
    trust: Path | None = None,
) -> ChunkedPolicy:
    """The artifact, if it fits, as run by the worker that uses ``folder``, now or later: its network, which may be
    large, is loaded and tested there. ``trust``: see :func:`load_artifact`."""
    manifest = load_manifest(path, trust)
    check_fits(manifest, robot, interface)
    return ChunkedPolicy(manifest, ControllerMailbox(folder, manifest), clock)
