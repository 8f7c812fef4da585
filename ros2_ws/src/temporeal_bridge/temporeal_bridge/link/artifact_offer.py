"""The artifact that a successor offers the guard: the very bytes of manifest and signature, as text.

They come with the request, so that the guard opens no file while it commands a robot.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from pathlib import Path
from typing import Any

from temporeal.robots.artifact.loading import read
from temporeal.robots.artifact.manifest import MANIFEST, ArtifactError, Manifest, decode
from temporeal.robots.artifact.signature import SIGNATURE, check_signed
from temporeal_bridge.link.datagrams import HEAD, LARGEST, LinkError

LARGEST_MANIFEST = 1 << 21  # bytes, unpacked


def offer(folder: Path) -> str:
    """The offer of the artifact in ``folder``."""
    signature = folder / SIGNATURE
    parts = {"folder": str(folder.absolute()), "manifest": read(folder, MANIFEST).decode(),
             "signature": signature.read_bytes().hex() if signature.exists() else ""}
    text = base64.b85encode(zlib.compress(json.dumps(parts).encode(), 9)).decode()
    if len(text) > LARGEST - HEAD.size:
        raise LinkError(f"{folder / MANIFEST} has {len(text)} bytes, packed; a takeover carries {LARGEST - HEAD.size}")
    return text


def offered(text: str, trusted: Any = None, where: str = "") -> tuple[Manifest, str]:
    """The manifest in an :func:`offer`, and the folder that it is from; :class:`ArtifactError` says what is wrong.

    Args:
        trusted: public key that must have signed it; None: no signature is needed.
        where: file of that key, for the message.
    """
    try:
        unpacking = zlib.decompressobj()
        parts = json.loads(unpacking.decompress(base64.b85decode(text), LARGEST_MANIFEST))
        manifest, signature = parts["manifest"].encode(), bytes.fromhex(parts["signature"])
        folder = str(parts["folder"])
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, binascii.Error) as error:
        raise ArtifactError(f"the successor shows no manifest: {error}") from error
    if trusted is not None:
        check_signed(manifest, signature, trusted, "the successor's offer", where)
    return decode(manifest), folder
