"""What crosses the channel of a model: its inputs and its action, by name, shape, type and unit, and their hash.

Both sides state it and compare; a model that wants something else is refused before the first inference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from temporeal.policies.pretrained.serving.channel import ChannelError

KEYS = {"inputs", "action", "rate_hz", "instruction"}


@dataclass(frozen=True)
class Field:
    """One array of one world.

    Args:
        name: as the model calls it (``observation.state``).
        shape: of one sample; pictures are [H, W, 3].
        dtype: ``uint8`` of pictures, else ``float32``.
        unit: of the numbers, in the model's own units.
        resize: whether a picture may be scaled to the size that the model was trained with.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    unit: str = "1"
    resize: bool = False


@dataclass(frozen=True)
class Interface:
    """What a model is given, and what it gives: action [A] of each of the H rows of a chunk.

    Args:
        rate_hz: rows are so far apart.
        instruction: whether a sentence comes with each inference.
    """

    inputs: tuple[Field, ...]
    action: Field
    rate_hz: float
    instruction: bool

    def described(self) -> dict[str, Any]:
        """As plain values."""
        return {"inputs": [described(f) for f in self.inputs], "action": described(self.action),
                "rate_hz": float(self.rate_hz), "instruction": self.instruction}

    def digest(self) -> str:
        """SHA-256 of what the interface says."""
        return digest_of(self.described())


def described(field: Field) -> dict[str, Any]:
    """A field as plain values."""
    return {**asdict(field), "shape": list(field.shape)}


def digest_of(value: Any) -> str:
    """SHA-256 of a plain value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def interface_of(stated: Any, digest: Any) -> Interface:
    """The interface that a peer states, if ``digest`` is its hash."""
    try:
        if set(stated) != KEYS or type(stated["instruction"]) is not bool:
            raise ValueError(f"its keys are {sorted(stated)}; legal: {sorted(KEYS)}")
        found = Interface(tuple(field_of(entry) for entry in stated["inputs"]), field_of(stated["action"]),
                          float(stated["rate_hz"]), stated["instruction"])
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ChannelError(f"the interface that the peer states cannot be read: {error}") from error
    if found.digest() != digest:
        raise ChannelError(f"the interface has the hash {found.digest()[:12]}, the peer states {str(digest)[:12]}")
    return found


def field_of(entry: Mapping[str, Any]) -> Field:
    """The field that plain values describe."""
    if set(entry) != {"name", "shape", "dtype", "unit", "resize"}:
        raise ValueError(f"a field has the keys {sorted(entry)}")
    return Field(str(entry["name"]), tuple(int(size) for size in entry["shape"]), str(entry["dtype"]),
                 str(entry["unit"]), bool(entry["resize"]))
