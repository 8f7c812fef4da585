"""Every node refuses an artifact that is damaged, of another robot, or not signed by whom the node is told to trust."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from temporeal.robots.artifact.manifest import GOLDEN, MANIFEST, POLICY, ArtifactError, canonical, digest
from temporeal.robots.artifact.signature import SIGNATURE, SignatureError, make_key, sign
from temporeal_bridge import guard_node, monitor_node, policy_node, worker_node
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport

NODES = {"policy_node": policy_node.make, "guard_node": guard_node.make, "monitor_node": monitor_node.make}
each_node = pytest.mark.parametrize("node", NODES)


def start(node: str, artifact: Path, robot: str = "crazyflie", trust: Path | None = None) -> Any:
    """The node as its command line makes it, on a bus of its own."""
    args = Namespace(robot=robot, interface=None, signals=None, artifact=artifact, trust=trust, worker=None,
                     start=False, takeover=False, awake=False, after="stop", instruction="", require=0.0,
                     peer_timeout=0.0, arm=None, warn_below=0.05, domain=None, link=artifact.parent / "line" / "socket")
    (artifact.parent / "line").mkdir(mode=0o700, exist_ok=True)
    return NODES[node](args, MemoryTransport(Bus(), node, "/cf1"))


@pytest.fixture
def copy(artifact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(artifact, tmp_path / "artifact"))


def rewritten(folder: Path, **changes: Any) -> None:
    """A changed manifest whose digest is right again."""
    content = {**json.loads((folder / MANIFEST).read_bytes()), **changes}
    content.pop("sha256")
    content["sha256"] = digest(canonical(content).encode())
    (folder / MANIFEST).write_text(json.dumps(content))


def truncated_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:200])


def missing_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def edited_manifest(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    assert '"horizon_s": 6.0' in text
    (folder / MANIFEST).write_text(text.replace('"horizon_s": 6.0', '"horizon_s": 60.0'))


def of_another_robot(folder: Path) -> None:
    rewritten(folder, robot="franka")


def of_a_later_program(folder: Path) -> None:
    rewritten(folder, schema_version=99)


@each_node
@pytest.mark.parametrize(("damage", "told"), [
    (truncated_manifest, "manifest.json is not JSON"),
    (missing_manifest, "is not an artifact: manifest.json"),
    (edited_manifest, "manifest.json was changed after export"),
    (of_another_robot, "the artifact is for robot 'franka', this robot is 'crazyflie'"),
    (of_a_later_program, "schema_version 99; this program reads version 1"),
])
def test_a_manifest_that_is_not_as_it_was_exported(
    node: str, copy: Path, damage: Callable[[Path], None], told: str
) -> None:
    damage(copy)
    with pytest.raises(ArtifactError, match=told):
        start(node, copy)


@pytest.mark.parametrize("name", [POLICY, GOLDEN])
@pytest.mark.parametrize("kept", [0, 100, -1])
def test_the_controller_refuses_a_truncated_file(copy: Path, name: str, kept: int) -> None:
    (copy / name).write_bytes((copy / name).read_bytes()[:kept])
    with pytest.raises(ArtifactError, match=f"{name} was changed after export: its SHA-256"):
        start("policy_node", copy)


def test_the_controller_refuses_the_files_of_another_artifact(copy: Path, tmp_path: Path) -> None:
    """One file swapped, then the digest in the manifest made to fit: the network says what it was exported with."""
    import onnx

    model = onnx.load(copy / POLICY)
    prop = next(p for p in model.metadata_props if p.key == "temporeal.contract")
    prop.value = prop.value.replace('"rate_hz":50.0', '"rate_hz":100.0')
    other = model.SerializeToString()
    (copy / POLICY).write_bytes(other)
    with pytest.raises(ArtifactError, match=r"policy\.onnx was changed after export"):
        start("policy_node", copy)
    files = json.loads((copy / MANIFEST).read_bytes())["files"]
    rewritten(copy, files={**files, POLICY: digest(other)})
    with pytest.raises(ArtifactError, match="do not belong together: rate_hz is 100.0 and 50.0"):
        start("policy_node", copy)


@each_node
def test_who_is_told_whom_to_trust_takes_nothing_else(node: str, copy: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="signatures need the extra `sign`")
    ours, theirs = make_key(tmp_path / "ours.pem"), make_key(tmp_path / "theirs.pem")
    with pytest.raises(SignatureError, match="is not signed"):
        start(node, copy, trust=ours)
    sign(copy, tmp_path / "theirs.pem")
    with pytest.raises(SignatureError, match=f"is not a signature of {MANIFEST} by the key"):
        start(node, copy, trust=ours)
    made = start(node, copy, trust=theirs)
    assert made.summary()["node"] == node
    getattr(made, "close", lambda: None)()
    (copy / SIGNATURE).unlink()
    made = start(node, copy)  # nobody to trust was named: as before there were signatures
    getattr(made, "close", lambda: None)()


def test_so_does_the_inference_worker(copy: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="signatures need the extra `sign`")
    ours = make_key(tmp_path / "ours.pem")
    with pytest.raises(SignatureError, match="is not signed"):
        worker_node.load(copy, ours)
    sign(copy, tmp_path / "ours.pem")
    assert worker_node.load(copy, ours).manifest.name == "cascade"
