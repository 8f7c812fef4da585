"""Signed artifacts: with a trusted key, what its owner did not sign does not load, and says why."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs import deploy
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.runs import exporting, run_folders
from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import GOLDEN, MANIFEST, POLICY, ArtifactError, canonical, digest
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.artifact.signature import SIGNATURE, SignatureError, make_key, sign
from temporeal.robots.spec import load_robot

pytest.importorskip("cryptography", reason="signatures need the extra `sign`")

ROBOT = load_robot("crazyflie")


class Still(nn.Module):
    """The smallest policy: a command out of the height."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = gain

    def initial_memory(self, n: int) -> dict[str, Any]:
        return {}

    def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"ctbr_cmd": self.gain * signals["height"][:, None] * torch.ones(1, 4)}, {}


def write_artifact(path: Path, gain: float = 0.1) -> Path:
    heights = np.linspace(0, 1, 5, dtype=np.float32)
    golden = {"signals.height": heights, "commands.ctbr_cmd": gain * np.tile(heights[:, None], (1, 4))}
    spec = ArtifactSpec(
        robot=ROBOT, signals=("height",), command="ctbr_cmd", rate_hz=50.0, formula_text="G[0,1] (height > 0)",
        constants={}, horizon_s=1.0, training={}, seed=0, stop="level", name="still", git_revision="test")
    return export(Still(gain), path, spec, golden).path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A signed artifact, the secret key and the public one."""
    folder = tmp_path_factory.mktemp("signed")
    key = folder / "team.pem"
    public = make_key(key)
    artifact = write_artifact(folder / "artifact")
    sign(artifact, key)
    return artifact, key, public


@pytest.fixture
def copy(made: tuple[Path, Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "artifact"))


def test_the_owner_of_the_key_is_believed(made: tuple[Path, Path, Path]) -> None:
    artifact, _, public = made
    assert Artifact.load(artifact, ROBOT, trust=public).self_test().steps == 5
    assert load_manifest(artifact, public).name == "still"
    assert Artifact.load(artifact, ROBOT).manifest.name == "still"  # who trusts everybody needs no key
    assert (artifact / SIGNATURE).stat().st_size == 64


def without_signature(folder: Path) -> None:
    (folder / SIGNATURE).unlink()


def signature_cut(folder: Path) -> None:
    (folder / SIGNATURE).write_bytes((folder / SIGNATURE).read_bytes()[:63])


def signature_changed(folder: Path) -> None:
    data = bytearray((folder / SIGNATURE).read_bytes())
    data[10] ^= 1
    (folder / SIGNATURE).write_bytes(data)


def manifest_changed_with_its_digest(folder: Path) -> None:
    """What the digest alone does not find: it is made right again by whoever changes the manifest."""
    content = json.loads((folder / MANIFEST).read_bytes())
    content["name"] = "evil"
    content.pop("sha256")
    content["sha256"] = digest(canonical(content).encode())
    (folder / MANIFEST).write_text(json.dumps(content))
    assert load_manifest(folder).name == "evil"


def of_another_artifact(folder: Path) -> None:
    """Files of another artifact under this one's signature."""
    other = write_artifact(folder.with_name("other"), gain=0.2)
    for name in (MANIFEST, POLICY, GOLDEN):
        (folder / name).write_bytes((other / name).read_bytes())


def signed_by_a_stranger(folder: Path) -> None:
    make_key(folder.with_name("stranger.pem"))
    sign(folder, folder.with_name("stranger.pem"))


@pytest.mark.parametrize(("damage", "told"), [
    (without_signature, "is not signed"),
    (signature_cut, "has 63 bytes; an Ed25519 signature has 64"),
    (signature_changed, "is not a signature of manifest.json by the key"),
    (manifest_changed_with_its_digest, "was changed after it was signed"),
    (of_another_artifact, "is not a signature of manifest.json by the key"),
    (signed_by_a_stranger, "it is another's"),
])
def test_what_is_not_signed_by_the_trusted_key_is_refused(
    copy: Path, made: tuple[Path, Path, Path], damage: Callable[[Path], None], told: str
) -> None:
    damage(copy)
    for load in (lambda: Artifact.load(copy, ROBOT, trust=made[2]), lambda: load_manifest(copy, made[2])):
        with pytest.raises(SignatureError, match=told):
            load()


@pytest.mark.parametrize("name", [POLICY, GOLDEN])
def test_the_signature_covers_every_file(copy: Path, made: tuple[Path, Path, Path], name: str) -> None:
    """Through the digests in the manifest."""
    other = write_artifact(copy.with_name("other"), gain=0.2)
    (copy / name).write_bytes((other / name).read_bytes())
    with pytest.raises(ArtifactError, match=f"{name} was changed after export"):
        Artifact.load(copy, ROBOT, trust=made[2])


def test_an_untrusted_manifest_is_not_even_parsed(copy: Path, made: tuple[Path, Path, Path]) -> None:
    (copy / MANIFEST).write_bytes(b"{" * 100_000)
    with pytest.raises(SignatureError, match="is not a signature"):
        load_manifest(copy, made[2])


def test_keys_that_cannot_be_used_are_named(copy: Path, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    _, key, public = made
    pem = serialization.Encoding.PEM
    locked, other, text = tmp_path / "locked.pem", tmp_path / "ec.pem", tmp_path / "text.pem"
    locked.write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")))
    curve = ec.generate_private_key(ec.SECP256R1())
    other.write_bytes(curve.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    text.write_text("no key")
    for file, told in ((locked, "without a password"), (other, "an Ed25519 key is needed"), (public, "no secret key"),
                       (text, "no secret key"), (tmp_path / "gone", "cannot be read")):
        with pytest.raises(SignatureError, match=told):
            sign(copy, file)
    other.write_bytes(curve.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    for file, told in ((key, "is a secret key"), (other, "an Ed25519 key is needed"), (text, "no public key"),
                       (tmp_path / "gone", "cannot be read")):
        with pytest.raises(SignatureError, match=told):
            load_manifest(copy, file)


def test_a_secret_key_is_its_owner_s_alone_and_is_not_replaced(tmp_path: Path) -> None:
    key = tmp_path / "keys" / "k.pem"
    public = make_key(key)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes(), public.read_bytes()
    with pytest.raises(SignatureError, match="a key is not replaced"):
        make_key(key)
    key.unlink()
    with pytest.raises(SignatureError, match=r"k\.pem\.pub exists"):
        make_key(key)
    assert not key.exists() and public.read_bytes() == before[1]


def test_without_the_library_the_extra_is_named(
    copy: Path, made: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SignatureError, match=r"pip install -c constraints.txt '\.\[sign\]'"):
        Artifact.load(copy, ROBOT, trust=made[2])
    assert Artifact.load(copy, ROBOT).manifest.name == "still"  # without a key nothing needs it


def test_openssl_agrees(copy: Path, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Its keys work here, our signatures there, and its signatures here."""
    openssl = shutil.which("openssl")
    version = subprocess.run([openssl, "version"], capture_output=True, text=True).stdout if openssl else "none"
    if not version.startswith("OpenSSL 3"):
        pytest.skip(f"needs OpenSSL 3 (apt-get install openssl), found: {version}")

    def run(*words: object) -> None:
        done = subprocess.run([openssl, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    run("pkeyutl", "-verify", "-pubin", "-inkey", made[2], "-rawin", "-in", copy / MANIFEST, "-sigfile",
        copy / SIGNATURE)
    key, public = tmp_path / "o.pem", tmp_path / "o.pub"
    run("genpkey", "-algorithm", "ed25519", "-out", key)
    run("pkey", "-in", key, "-pubout", "-out", public)
    sign(copy, key)
    ours = (copy / SIGNATURE).read_bytes()
    run("pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", copy / MANIFEST, "-out", copy / SIGNATURE)
    assert (copy / SIGNATURE).read_bytes() == ours  # Ed25519 is deterministic
    assert Artifact.load(copy, ROBOT, trust=public).manifest.name == "still"


# the command line


def test_make_key_and_deploy_from_the_command_line(
    made: tuple[Path, Path, Path], copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "new.pem"
    assert main(["export", "--make-key", str(key)]) == 0
    assert f"{key}.pub: public, for robots" in capsys.readouterr().out
    assert main(["export", "--make-key", str(key)]) == 2
    assert "a key is not replaced" in capsys.readouterr().err
    # no node is started for an artifact that is not trusted
    words = ["deploy", str(copy), "--out", str(tmp_path / "out"), "deploy.transport=dds", "deploy.loopback=true"]
    assert main([*words, "--trust", f"{key}.pub"]) == 2
    assert "is not a signature of manifest.json by the key" in capsys.readouterr().err
    assert not (tmp_path / "out" / "bag").exists()


def test_export_signs_what_it_wrote_and_every_node_is_told_whom_to_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key, out, told = tmp_path / "k.pem", tmp_path / "artifact", {}
    public = make_key(key)
    monkeypatch.setattr(exporting, "export_run", lambda run, out, *_, **__: Artifact.load(write_artifact(out)))
    monkeypatch.setattr(run_folders, "read_run", lambda run: {"algo": {"name": "ppo"}})
    assert main(["export", str(tmp_path / "run"), "--out", str(out), "--sign", str(key), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["signed"] is True
    assert load_manifest(out, public).name == "still"

    monkeypatch.setattr(deploy, "run_nodes", lambda nodes, lost: told.update(nodes))
    monkeypatch.setattr(deploy, "read_flights", lambda path: [])
    words = ["deploy", str(out), "--trust", str(public), "--out", str(tmp_path / "out"), "deploy.transport=dds"]
    main([*words, "deploy.loopback=true", "deploy.namespace=/cf1"])
    given = {name: words for name, words in told.items() if "--artifact" in words}
    assert set(given) == {"policy_node", "guard_node", "monitor_node"}
    for words in given.values():
        assert words[words.index("--trust") + 1] == str(public)

    # exported again without a key, the old signature is gone
    assert main(["export", str(tmp_path / "run"), "--out", str(out)]) == 2  # somebody else's, for all it knows
    assert main(["export", str(tmp_path / "run"), "--out", str(out), "--overwrite"]) == 0
    assert not (out / SIGNATURE).exists()


def test_the_doctor_looks_at_no_artifact_of_a_stranger(
    copy: Path, made: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = make_key(tmp_path / "stranger.pem")
    assert main(["doctor", "--artifact", str(copy), "--trust", str(stranger)]) == 2
    assert "sign" in capsys.readouterr().err
    assert main(["doctor", "--trust", str(stranger)]) == 2
    assert "--trust needs --artifact" in capsys.readouterr().err


def test_a_bad_key_is_told_before_the_artifact_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    assert main(["export", str(tmp_path / "run"), "--sign", str(tmp_path / "gone.pem")]) == 2
    assert "gone.pem cannot be read" in capsys.readouterr().err
    assert main(["export"]) == 2
    assert "name what to export" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["eval"], ["falsify"], ["monitor"], ["view", "--policy"]])
def test_commands_that_load_an_artifact_take_only_what_the_key_signed(
    words: list[str], copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything of it is read but its manifest's bytes."""
    pytest.importorskip("viser" if words[0] == "view" else "torch")
    stranger = make_key(tmp_path / "stranger.pem")
    assert main([*words, str(copy), "--trust", str(stranger)]) == 2
    assert "is not a signature of manifest.json by the key" in capsys.readouterr().err
