"""Certificates for the tests of TLS."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def signed(name: str, key: Any, issuer: str, by: Any, ca: bool) -> Any:
    """A certificate of ``name``'s key, signed by ``by``."""
    now = datetime.datetime.now(datetime.timezone.utc)
    title = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer)]
    return (x509.CertificateBuilder().subject_name(title[0]).issuer_name(title[1]).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(by, hashes.SHA256()))


def authority(name: str) -> tuple[str, Any, Any]:
    """Name, key and certificate of an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    return name, key, signed(name, key, name, key, True)


def certify(folder: Path, name: str, by: tuple[str, Any, Any], trusted: tuple[str, Any, Any]) -> None:
    """A TLS folder: a certificate of ``by``, and the authority that is ``trusted``."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(trusted[2].public_bytes(pem))
    (folder / "cert.pem").write_bytes(signed(name, key, by[0], by[1], False).public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    (folder / "key.pem").chmod(0o600)
