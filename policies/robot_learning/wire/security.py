"""Who may speak: a token that both sides hold in a file, and TLS with certificates on both sides.

The token is needed always. Without TLS it and all else goes over the wire as plain text: to this machine alone, unless
that is asked for by name.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from temporeal.policies.runs.errors import BadInput

if TYPE_CHECKING:
    import grpc

LETTERS = 32  # of a token, at least
HEADER = "authorization"  # of the metadata of a call
CERTIFICATES = ("ca.pem", "cert.pem", "key.pem")  # of a TLS folder: who is trusted, who this is, and its key
LARGEST_FILE = 1 << 16  # bytes of a token or a certificate


@dataclass(frozen=True)
class Security:
    """What secures a connection.

    Args:
        token: of both sides. tls: a folder of :data:`CERTIFICATES`; None: plain text.
    """

    token: str
    tls: Path | None = None


def security(address: str, token: Path, tls: Path | None, plaintext: bool) -> Security:
    """What secures the connection to ``address``; plain text beyond this machine only where it was asked for."""
    if tls is not None:
        for name in CERTIFICATES:
            check_private(tls / name, "a TLS folder holds " + ", ".join(CERTIFICATES), name == "key.pem")
    elif not is_here(address) and not plaintext:
        raise BadInput(f"{address} is another machine, and without TLS the token and all that is learned go there as "
                       f"plain text: tls=FOLDER with {', '.join(CERTIFICATES)} "
                       "(docs/how-to/learning-on-the-robot.md), or plaintext=true on a network that is yours alone")
    return Security(read_token(token), tls)


def is_here(address: str) -> bool:
    """Whether ``address``, host:port, is this machine's loopback."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(address: str, word: str) -> str:
    """``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) < 1 << 16:
        raise BadInput(f"{word}={address}: a host and a port, as in 127.0.0.1:15061")
    return address


def make_token(path: Path) -> None:
    """Write a new token for its owner alone, where there is no file yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(LETTERS) + "\n")


def read_token(path: Path) -> str:
    """The token in a file."""
    check_private(path, "the learner writes one into its run's folder; copy that file (mode 600)", True)
    token = path.read_text().strip()
    if len(token) < LETTERS or not token.isascii() or not token.isalnum():
        raise BadInput(f"token={path} holds {len(token)} letters; at least {LETTERS} letters and digits are needed")
    return token


def check_private(path: Path, rule: str, private: bool) -> None:
    """A plain, small file that is there; where it is ``private``, for its owner alone."""
    try:
        found = path.stat()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}; {rule}") from error
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_FILE:
        raise BadInput(f"{path} is no plain file of at most {LARGEST_FILE:,} bytes; {rule}")
    if private and stat.S_IMODE(found.st_mode) & 0o077:
        raise BadInput(f"{path} has mode {stat.S_IMODE(found.st_mode):o}: others may read it; chmod 600 {path}")


def same_token(given: str, mine: str) -> bool:
    """Whether two tokens are equal, in a time that does not tell how far they are."""
    a, b = (hashlib.sha256(text.encode(errors="replace")).digest() for text in (given, mine))
    return hmac.compare_digest(a, b)


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """What a call carries."""
    return ((HEADER, f"Bearer {token}"),)


def token_in(call: tuple[tuple[str, str | bytes], ...] | None) -> str:
    """The token that a call carries; "" without one."""
    found = next((value for key, value in call or () if key == HEADER), "")
    return found.removeprefix("Bearer ") if isinstance(found, str) else ""


def server_credentials(tls: Path) -> grpc.ServerCredentials:
    """Of a learner: only who has a certificate of this authority is spoken to."""
    import grpc

    ca, certificate, key = ((tls / name).read_bytes() for name in CERTIFICATES)
    return grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)


def channel_credentials(tls: Path) -> grpc.ChannelCredentials:
    """Of an actor."""
    import grpc

    ca, certificate, key = ((tls / name).read_bytes() for name in CERTIFICATES)
    return grpc.ssl_channel_credentials(ca, key, certificate)
