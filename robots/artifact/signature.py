"""Signed artifacts: an Ed25519 signature (RFC 8032) over the bytes of the manifest.

The manifest states the SHA-256 of every other file, so that its signature covers the whole artifact. The signature is
the file ``manifest.sig`` beside it, 64 bytes, and can be checked without this program (OpenSSL 3):

    openssl pkeyutl -verify -pubin -inkey trusted.pem -rawin -in artifact/manifest.json -sigfile artifact/manifest.sig

Keys are PEM files: the secret one PKCS #8 without a password, the public one SubjectPublicKeyInfo, as
``openssl genpkey -algorithm ed25519`` and ``openssl pkey -pubout`` write them. Needs the extra ``sign``.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

from temporeal.robots.artifact.manifest import MANIFEST, ArtifactError
from temporeal.robots.handed_over import files
from temporeal.robots.optional_packages import install

SIGNATURE = "manifest.sig"
LENGTH = 64  # bytes: RFC 8032, 5.1.6
LARGEST = 1 << 16  # bytes of a key or signature at most


class SignatureError(ArtifactError):
    """An artifact not signed by the trusted key, or a key that cannot be used."""


def library() -> tuple[ModuleType, ModuleType]:
    """``cryptography``'s Ed25519 and its reader of PEM files."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise SignatureError(
            f"signatures need the package cryptography: {install('sign')} ({error})") from error
    return ed25519, serialization


def make_key(path: Path) -> Path:
    """Write a new secret key to ``path`` (readable by its owner only) and the public one to ``<path>.pub``; return its
    path.

    Neither file may exist: a lost key cannot be restored.
    """
    ed25519, serialization = library()
    public = path.with_name(path.name + ".pub")
    for file in (path, public):
        if file.exists():
            raise SignatureError(f"{file} exists: a key is not replaced; choose another name")
    secret = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    texts = {
        path: (0o600, secret.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())),
        public: (0o644, secret.public_key().public_bytes(
            pem, serialization.PublicFormat.SubjectPublicKeyInfo))}
    path.parent.mkdir(parents=True, exist_ok=True)
    for file, (mode, text) in texts.items():
        # the mode from the first moment on, and never over a file that came meanwhile
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(text)
    return public


def secret_key(path: Path) -> Any:
    """The secret key in a PEM file."""
    ed25519, serialization = library()
    try:
        key = serialization.load_pem_private_key(content(path), password=None)
    except (ValueError, TypeError) as error:  # TypeError: it is encrypted
        raise SignatureError(f"{path} is no secret key in PEM without a password: {error}") from error
    except Exception as error:  # unsupported algorithms have an exception of their own
        raise SignatureError(f"{path} is no secret key that can be used: {error}") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise SignatureError(f"{path} is a {type(key).__name__}; an Ed25519 key is needed: "
                             "temporeal export --make-key KEY.pem, or openssl genpkey -algorithm ed25519")
    return key


def public_key(path: Path) -> Any:
    """The public key in a PEM file."""
    ed25519, serialization = library()
    data = content(path)
    if b"PRIVATE KEY" in data:
        raise SignatureError(f"{path} is a secret key: trust is given to the public one ({path}.pub), and the secret "
                             "one has no place on a robot")
    try:
        key = serialization.load_pem_public_key(data)
    except Exception as error:  # ValueError, and one of its own for algorithms that it does not know
        raise SignatureError(f"{path} is no public key in PEM: {error}") from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise SignatureError(f"{path} is a {type(key).__name__}; an Ed25519 key is needed")
    return key


def content(path: Path) -> bytes:
    """The bytes of a key file."""
    try:
        return files.read(path, LARGEST)
    except OSError as error:
        raise SignatureError(f"the key {path} cannot be read: {error.strerror or error}") from error
    except files.Refused as error:
        raise SignatureError(f"the key cannot be read: {error}") from error


def sign(folder: Path, key: Path) -> None:
    """Sign the artifact in ``folder`` with the secret key in ``key``; an older signature is replaced."""
    from temporeal.robots.atomic_files import write_whole

    secret = secret_key(key)
    write_whole(folder / SIGNATURE, secret.sign((folder / MANIFEST).read_bytes()))


def verify(folder: Path, manifest: bytes, trusted: Path) -> None:
    """Refuse ``manifest``, the bytes of the one in ``folder``, unless the key in ``trusted`` signed them."""
    key = public_key(trusted)
    file = folder / SIGNATURE
    try:
        signature = files.read(file, LARGEST, within=folder)
    except files.Refused as error:
        raise SignatureError(str(error)) from error
    except FileNotFoundError:
        raise SignatureError(f"{folder} is not signed (it has no {SIGNATURE}), and only what {trusted} signed is "
                             "trusted here: temporeal export RUN --sign KEY.pem signs") from None
    except OSError as error:
        raise SignatureError(f"{file} cannot be read: {error.strerror or error}") from error
    check_signed(manifest, signature, key, str(file), str(trusted))


def check_signed(manifest: bytes, signature: bytes, key: Any, file: str, trusted: str) -> None:
    """Refuse ``manifest`` unless ``signature`` is its signature by the public ``key``. ``file`` and ``trusted``: names
    of signature and key in the message."""
    if len(signature) != LENGTH:
        raise SignatureError(f"{file} has {len(signature)} bytes; an Ed25519 signature has {LENGTH}")
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, manifest)
    except InvalidSignature:
        raise SignatureError(f"{file} is not a signature of {MANIFEST} by the key {trusted}: it is another's, or the "
                             "artifact was changed after it was signed") from None
