"""The sizes of the networks of LeRobot's pi0 and pi0.5, read off the shapes of their weights. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporeal.policies.pretrained.serving.folders import CONFIG, WEIGHTS, ModelFolder, lenient
from temporeal.policies.pretrained.serving.tensor_files import header
from temporeal.robots.handed_over.files import Refused

PREFIX = "paligemma_with_expert."
VISION, LANGUAGE = PREFIX + "paligemma.model.vision_tower.vision_model.", PREFIX + "paligemma.model.language_model."
EXPERT, UNREAD = PREFIX + "gemma_expert.model.", PREFIX + "gemma_expert.lm_head.weight"
HEADS = {"head_dim": 256, "vision_heads": 16}
"""What shapes of weights do not tell: of PaliGemma 3B (github.com/google-research/big_vision, gemma and So400m/14)."""


@dataclass(frozen=True)
class Gemma:
    """Sizes of a Gemma; LeRobot's names."""

    width: int
    depth: int
    mlp_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class Sizes:
    """Of the networks of a policy.

    Args:
        vision: keys of transformers' SiglipVisionConfig. ``words``: rows of the embedding.
    """

    language: Gemma
    expert: Gemma
    vision: Mapping[str, int]
    words: int


def sizes_of(folder: ModelFolder, backbone: Path | None) -> Sizes:
    """The sizes that the weights in ``folder`` have; numbers of heads from the backbone's configuration, if it is
    there, else PaliGemma's."""
    path, heads = folder.path / WEIGHTS, heads_of(backbone)
    shapes: dict[str, Any] = {
        name.removeprefix("model."): entry.get("shape") for name, entry in header(path).items()}
    try:
        words = shapes.get(PREFIX + "paligemma.lm_head.weight") or shapes[LANGUAGE + "embed_tokens.weight"]
        return Sizes(gemma(shapes, LANGUAGE, heads["head_dim"]), gemma(shapes, EXPERT, heads["head_dim"]),
                     siglip(shapes, heads["vision_heads"]), words[0])
    except KeyError as error:
        raise Refused(f"{path} holds weights of another architecture than {folder.kind}'s: {error} is missing") from (
            error)
    except (IndexError, TypeError, ValueError) as error:
        raise Refused(f"{path} holds weights of other shapes than {folder.kind}'s: {error}") from error


def siglip(shapes: Mapping[str, Any], heads: int) -> dict[str, int]:
    """The sizes of the vision tower."""
    width, _, patch, _ = shapes[VISION + "embeddings.patch_embedding.weight"]
    places, _ = shapes[VISION + "embeddings.position_embedding.weight"]
    return {"hidden_size": width, "patch_size": patch, "image_size": round(places**0.5) * patch,
            "num_hidden_layers": depth(shapes, VISION + "encoder.layers."), "num_attention_heads": heads,
            "intermediate_size": shapes[VISION + "encoder.layers.0.mlp.fc1.weight"][0]}


def heads_of(backbone: Path | None) -> dict[str, int]:
    """``head_dim`` of the language model and ``vision_heads``."""
    if backbone is None or not (backbone / CONFIG).is_file():
        return dict(HEADS)
    config = lenient(backbone / CONFIG, backbone)
    text, vision = (found if isinstance(found := config.get(key), dict) else {} for key in (
        "text_config", "vision_config"))
    found = {"head_dim": text.get("head_dim", HEADS["head_dim"]),
             "vision_heads": vision.get("num_attention_heads", HEADS["vision_heads"])}
    if not all(type(value) is int and 0 < value <= 4096 for value in found.values()):
        raise Refused(f"{backbone / CONFIG}: head_dim and num_attention_heads are {list(found.values())}; whole "
                      "numbers above 0 are needed")
    return found


def depth(shapes: Mapping[str, Any], prefix: str) -> int:
    """How many layers there are under a name."""
    return len({name[len(prefix):].split(".")[0] for name in shapes if name.startswith(prefix)})


def gemma(shapes: Mapping[str, Any], prefix: str, head_dim: int) -> Gemma:
    """The sizes of the Gemma under a name."""
    layer = f"{prefix}layers.0."
    rows, width = shapes[layer + "self_attn.q_proj.weight"]
    return Gemma(width, depth(shapes, f"{prefix}layers."), shapes[layer + "mlp.gate_proj.weight"][0], rows // head_dim,
                 shapes[layer + "self_attn.k_proj.weight"][0] // head_dim, head_dim)
