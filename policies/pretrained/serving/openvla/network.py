"""OpenVLA's and OpenVLA-OFT's network, of transformers' Llama and vision towers that are written here.

transformers has no ``openvla``, and Python files that come with weights are not run. Written after the papers (arXiv
2406.09246, 2502.19645) and github.com/moojink/openvla-oft (MIT, ``modeling_prismatic.py``), by the names of its
weights; the authors' code gives the same numbers (``tests/interop/test_original_chunks.py``).

    [begin, patches of the pictures, (state), words, A * H empty places, end]  ->  Llama  ->  head or tokens

B worlds, P patches, D width of the language model, A numbers of an action, H rows of a chunk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaModel, LlamaRotaryEmbedding

from temporeal.robots.handed_over.files import Refused

State = dict[str, Tensor]
Shapes = Mapping[str, Sequence[int]]
VISION = "vision_backbone."
TOWERS = ("featurizer", "fused_featurizer")  # DINOv2, SigLIP
HEADS = 16  # of attention, in vit_large_patch14_reg4_dinov2 and vit_so400m_patch14_siglip_224 (timm)
UNREAD = re.compile(r"language_model\.model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq$|"
                    r"vision_backbone\.(fused_)?featurizer\.(norm|fc_norm|attn_pool|head)\.")
"""Weights that nothing reads: features are those of the last layer but one."""
TEXT = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "vocab_size", "rms_norm_eps", "rope_theta", "max_position_embeddings", "pad_token_id")
"""Keys of ``text_config`` that are read."""
FIXED: Mapping[str, Any] = {"rope_scaling": None, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu"}
"""Those that every published OpenVLA leaves as they are; others would be another network."""


class Multiplied(nn.Module):
    """A residual's factor for each component (timm's LayerScale, by the name that OpenVLA gives its weight)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale_factor = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [B, P, W]."""
        return torch.mul(x, self.scale_factor)


class Attention(nn.Module):
    """Attention of all patches to all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [B, P, W]."""
        worlds, patches, width = x.shape
        parts = self.qkv(x).view(worlds, patches, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(*parts.unbind(0))
        mixed: Tensor = self.proj(found.transpose(1, 2).reshape(worlds, patches, width))
        return mixed


class Block(nn.Module):
    """A layer of a vision transformer."""

    def __init__(self, width: int, hidden: int, scaled: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, hidden), "fc2": nn.Linear(hidden, width)})
        self.ls1, self.ls2 = (Multiplied(width) if scaled else nn.Identity() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [B, P, W]."""
        x = x + self.ls1(self.attn(self.norm1(x)))
        added: Tensor = self.mlp["fc2"](nn.functional.gelu(self.mlp["fc1"](self.norm2(x))))
        found: Tensor = x + self.ls2(added)
        return found


class Tower(nn.Module):
    """A vision transformer with the sizes of its weights: those up to the last layer but one, whose features are used.

    DINOv2 has a class token and registers before its patches, which are left out of what it gives; SigLIP has none.
    """

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        width, colours, patch, _ = shapes["patch_embed.proj.weight"]
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(colours, width, patch, patch)})
        self.pos_embed = nn.Parameter(torch.zeros(tuple(shapes["pos_embed"])))
        self.before = [name for name in ("cls_token", "reg_token") if name in shapes]
        for name in self.before:
            self.register_parameter(name, nn.Parameter(torch.zeros(tuple(shapes[name]))))
        hidden, scaled = shapes["blocks.0.mlp.fc1.weight"][0], "blocks.0.ls1.scale_factor" in shapes
        self.blocks = nn.ModuleList(Block(width, hidden, scaled) for _ in range(layers(shapes)))
        self.width, self.pixels = width, round(shapes["pos_embed"][1] ** 0.5) * patch

    def forward(self, pictures: Tensor) -> Tensor:
        """Features [B, P, W] of ``pictures`` [B, 3, pixels, pixels]."""
        x = self.patch_embed["proj"](pictures).flatten(2).transpose(1, 2) + self.pos_embed
        before = [getattr(self, name).expand(len(x), -1, -1) for name in self.before]
        x = torch.cat([*before, x], 1)
        for block in self.blocks:
            x = block(x)
        patches: Tensor = x[:, sum(token.shape[1] for token in before):]
        return patches


def layers(shapes: Shapes) -> int:
    """How many blocks there are."""
    return len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})


class Projector(nn.Module):
    """Linear layers ``fc1``, ``fc2``, ... with GELU between them, with the sizes of their weights."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        for name in sorted(shapes):
            if name.endswith(".weight"):
                self.add_module(name.removesuffix(".weight"), nn.Linear(shapes[name][1], shapes[name][0]))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [..., in]."""
        for k, layer in enumerate(self.children()):
            x = layer(nn.functional.gelu(x) if k else x)
        return x


class Residual(nn.Module):
    """A block of the action head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ffn = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [B, H, W]."""
        found: Tensor = x + self.ffn(x)
        return found


class ActionHead(nn.Module):
    """OpenVLA-OFT's regression (``L1RegressionActionHead``): the last hidden states [B, H, A * D] of a row's places to
    its numbers [B, H, A], -1 to 1."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        hidden, given = shapes["fc1.weight"]
        blocks = len({name.split(".")[1] for name in shapes if name.startswith("mlp_resnet_blocks.")})
        self.layer_norm1, self.fc1 = nn.LayerNorm(given), nn.Linear(given, hidden)
        self.mlp_resnet_blocks = nn.ModuleList(Residual(hidden) for _ in range(blocks))
        self.layer_norm2, self.fc2 = nn.LayerNorm(hidden), nn.Linear(hidden, shapes["fc2.weight"][0])

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [B, H, A * D]."""
        x = nn.functional.relu(self.fc1(self.layer_norm1(x)))
        for block in self.mlp_resnet_blocks:
            x = block(x)
        found: Tensor = self.fc2(self.layer_norm2(x))
        return found


class Network(nn.Module):
    """Vision towers, their projection, and the language model, with the sizes and by the names of the weights."""

    def __init__(self, shapes: Shapes, config: Any) -> None:
        super().__init__()
        self.vision_backbone = nn.ModuleDict({name: Tower(below(shapes, f"{VISION}{name}.")) for name in TOWERS})
        self.projector = Projector(below(shapes, "projector."))
        words = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.language_model = nn.ModuleDict({"model": LlamaModel(config), "lm_head": words})

    @property
    def language(self) -> Any:
        """The language model without its head."""
        return self.language_model["model"]

    def seen(self, pictures: Tensor) -> Tensor:
        """Patches [B, M * P, D] of M ``pictures`` [B, M, 6, pixels, pixels], of each picture by both towers."""
        found = []
        for picture in pictures.unbind(1):
            features = [self.vision_backbone[name](part) for name, part in zip(
                TOWERS, picture.chunk(2, 1), strict=True)]
            found.append(self.projector(torch.cat(features, 2)))
        return torch.cat(found, 1)

    def embedded(self, tokens: Tensor) -> Tensor:
        """Embeddings [B, S, D] of tokens [B, S]."""
        found: Tensor = self.language.embed_tokens(tokens)
        return found

    def hidden(self, embeddings: Tensor) -> Tensor:
        """The last hidden states [B, S, D]: each place attends to all."""
        size = embeddings.shape[1]
        everything = embeddings.new_zeros(len(embeddings), 1, size, size)
        found: Tensor = self.language(inputs_embeds=embeddings, attention_mask=everything, use_cache=False)[0]
        return found

    def likeliest(self, hidden: Tensor) -> Tensor:
        """The likeliest tokens [B, S] after hidden states [B, S, D]."""
        found: Tensor = self.language_model["lm_head"](hidden).argmax(-1)
        return found

    def continued(self, embeddings: Tensor, count: int) -> Tensor:
        """The likeliest ``count`` next tokens [B, count], one after the other: each place attends to those before."""
        found, cache = list[Tensor](), None
        for _ in range(count):
            given = self.language(inputs_embeds=embeddings, past_key_values=cache, use_cache=True)
            cache = given.past_key_values
            found.append(self.likeliest(given.last_hidden_state[:, -1:]))
            embeddings = self.embedded(found[-1])
        return torch.cat(found, 1)


def below(found: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """What is named below ``prefix``."""
    return {name[len(prefix):]: value for name, value in found.items() if name.startswith(prefix)}


def shapes_of(state: State) -> dict[str, tuple[int, ...]]:
    """Shape of each weight."""
    return {name: tuple(value.shape) for name, value in state.items()}


def built(kind: Any, state: State, what: str, *more: Any) -> Any:
    """A network of the class ``kind`` with the weights of ``state``, all of them and no others; the numbers are not
    copied."""
    try:
        with torch.device("meta"):
            found = kind(shapes_of(state), *more)
        missing, unknown = found.load_state_dict(state, strict=False, assign=True)
    except (KeyError, ValueError, TypeError, IndexError, RuntimeError) as error:
        raise Refused(f"{what} holds weights of another architecture than OpenVLA's ({type(error).__name__}: "
                      f"{str(error)[:600]})") from error
    if missing or unknown:
        raise Refused(f"{what} holds weights of another architecture than OpenVLA's: {len(missing)} are missing "
                      f"({', '.join(missing[:3])}), {len(unknown)} are not known ({', '.join(unknown[:3])})")
    return found.eval()


def network_of(state: State, text: Mapping[str, Any], what: str) -> Network:
    """The network with published weights ``state``; ``text``: ``text_config``."""
    config = language_config(text, what)
    last = tuple(f"{VISION}{name}.blocks.{layers(below(shapes_of(state), f'{VISION}{name}.')) - 1}." for name in TOWERS)
    found: Network = built(Network, {name: value for name, value in state.items() if not (
        UNREAD.match(name) or name.startswith(last))}, what, config)
    found.language.rotary_emb = LlamaRotaryEmbedding(config)  # not among the weights, and made without memory
    return found


def language_config(text: Mapping[str, Any], what: str) -> LlamaConfig:
    """Llama's configuration of ``text_config``."""
    if changed := [key for key, value in FIXED.items() if text.get(key, value) != value]:
        raise Refused(f"{what}: its text_config has {changed[0]} {str(text[changed[0]])[:40]!r}; served is "
                      f"{FIXED[changed[0]]}")
    given = {key: value for key, value in text.items() if key in TEXT}
    if wrong := [key for key, value in given.items() if type(value) not in (int, float) or value <= 0]:
        raise Refused(f"{what}: its text_config has {wrong[0]} {str(given[wrong[0]])[:40]!r}; a number above 0 is "
                      "needed")
    return LlamaConfig(**given)


def numbers_of(state: State, what: str) -> State:
    """``state``, if it is floating-point numbers of one type."""
    kinds = {value.dtype for value in state.values()}
    if len(kinds) != 1 or not next(iter(kinds)).is_floating_point:
        raise Refused(f"{what} holds numbers of the types {', '.join(sorted(map(str, kinds)))}; one floating-point "
                      "type is served, no quantized weights")
    return state
