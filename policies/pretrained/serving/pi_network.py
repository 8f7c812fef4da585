"""The two transformers of LeRobot's pi0 and pi0.5 on transformers as released.

LeRobot 0.4.4 needs a changed transformers (the branch ``fix/lerobot_openpi`` of its fork, which no package index has)
for a few lines of mathematics. They are written here, and LeRobot's own code does the rest (prompt, noise, flow):

* a picture's features are not divided by sqrt(width), and embeddings not multiplied by it: LeRobot does what is needed;
* of pi0.5's expert, RMSNorm is adaptive (adaRMS): ``x / rms(x) * (1 + scale) + shift``, and a layer's addition to the
  stream is multiplied by ``gate``; (scale, shift, gate) are a linear function of the flow's time;
* the expert reads the keys and values of the prefix and adds none to them.

Source: github.com/Physical-Intelligence/openpi, ``models_pytorch/transformers_replace`` (Apache-2.0). Its code gives
the same chunks bit for bit (``tests/interop/test_original_chunks.py``). B worlds, S tokens, D width.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.gemma.configuration_gemma import GemmaConfig
from transformers.models.gemma.modeling_gemma import (
    GemmaAttention,
    GemmaMLP,
    GemmaRotaryEmbedding,
    apply_rotary_pos_emb,
    eager_attention_forward,
)
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from temporeal.policies.pretrained.serving.folders import ModelFolder
from temporeal.policies.pretrained.serving.pi_sizes import UNREAD, Gemma, Sizes, sizes_of
from temporeal.robots.handed_over.files import Refused

Cache = list[tuple[Tensor, Tensor]]
"""Keys and values [B, heads, S, head_dim] of each layer."""


class Norm(nn.Module):
    """RMSNorm of Gemma, adaptive where ``condition`` (its width) is given; returns what is normed and the gate."""

    def __init__(self, width: int, condition: int | None, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        if condition is None:
            self.weight = nn.Parameter(torch.zeros(width))
        else:
            self.dense = nn.Linear(condition, 3 * width)
        self.adaptive = condition is not None

    def forward(self, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """``x`` [B, S, D]; ``condition`` [B, C]."""
        normed = x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        if not self.adaptive:
            return (normed * (1.0 + self.weight.float())).to(x.dtype), None
        scale, shift, gate = self.dense(condition)[:, None].chunk(3, -1)
        return (normed * (1.0 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


class Layer(nn.Module):
    """A layer of Gemma whose norms may be adaptive."""

    def __init__(self, config: Any, k: int, condition: int | None) -> None:
        super().__init__()
        self.self_attn, self.mlp = GemmaAttention(config, k), GemmaMLP(config)
        self.input_layernorm = Norm(config.hidden_size, condition)
        self.post_attention_layernorm = Norm(config.hidden_size, condition)

    def forward(
        self, x: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, past: tuple[Tensor, Tensor] | None,
        condition: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The stream [B, S, D] after this layer, and the keys and values that it attended to."""
        normed, gate = self.input_layernorm(x, condition)
        added, seen = self.attended(normed, turns, mask, past)
        x = x + (added if gate is None else added * gate)
        normed, gate = self.post_attention_layernorm(x, condition)
        added = self.mlp(normed.to(self.mlp.up_proj.weight.dtype))
        return x + (added if gate is None else added * gate), seen

    def attended(
        self, x: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Attention to the tokens of ``past`` and to these."""
        of, shape = self.self_attn, (*x.shape[:2], -1, self.self_attn.head_dim)
        query, key, value = (project(x).view(shape).transpose(1, 2) for project in (of.q_proj, of.k_proj, of.v_proj))
        query, key = apply_rotary_pos_emb(query, key, *turns)
        if past is not None:
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        found, _ = eager_attention_forward(of, query, key, value, mask, scaling=of.scaling)
        return of.o_proj(found.reshape(*x.shape[:2], -1)), (key, value)


class Tower(nn.Module):
    """A Gemma that reads embeddings as they are; ``config`` is what LeRobot sets the kind of attention in."""

    def __init__(self, sizes: Gemma, words: int | None, condition: int | None) -> None:
        super().__init__()
        self.config: Any = GemmaConfig(
            hidden_size=sizes.width, intermediate_size=sizes.mlp_dim, num_hidden_layers=sizes.depth,
            num_attention_heads=sizes.num_heads, num_key_value_heads=sizes.num_kv_heads, head_dim=sizes.head_dim,
            vocab_size=words or 1, pad_token_id=0, hidden_activation="gelu_pytorch_tanh")
        if words is not None:
            self.embed_tokens = nn.Embedding(words, sizes.width)
        self.layers = nn.ModuleList(Layer(self.config, k, condition) for k in range(sizes.depth))
        self.norm = Norm(sizes.width, condition)
        self.rotary_emb = GemmaRotaryEmbedding(self.config)

    def forward(
        self, inputs_embeds: Tensor, attention_mask: Tensor, position_ids: Tensor, past_key_values: Cache | None,
        use_cache: bool, adarms_cond: Tensor | None,
    ) -> SimpleNamespace:
        """As LeRobot calls it: ``attention_mask`` [B, 1, S, S'] is added to the attention's logits."""
        first: Any = self.layers[0]
        x = inputs_embeds.to(first.self_attn.q_proj.weight.dtype)
        turns, cache = self.rotary_emb(x, position_ids), Cache()
        for k, layer in enumerate(self.layers):
            x, seen = layer(x, turns, attention_mask, past_key_values[k] if past_key_values else None, adarms_cond)
            cache.append(seen)
        return SimpleNamespace(last_hidden_state=self.norm(x, adarms_cond)[0],
                               past_key_values=cache if use_cache else None)


class Eyes(nn.Module):
    """PaliGemma without its head: pictures, the projection of what they show, and the language model."""

    def __init__(self, sizes: Sizes, condition: int | None) -> None:
        super().__init__()
        self.vision_tower = SiglipVisionModel(SiglipVisionConfig(**sizes.vision, vision_use_head=False))
        self.multi_modal_projector = nn.ModuleDict(
            {"linear": nn.Linear(sizes.vision["hidden_size"], sizes.language.width)})
        self.language_model = Tower(sizes.language, sizes.words, condition)


class PaliGemma(nn.Module):
    """PaliGemma; the names of weights are those of transformers."""

    def __init__(self, sizes: Sizes, condition: int | None) -> None:
        super().__init__()
        self.model = Eyes(sizes, condition)
        self.lm_head = nn.Linear(sizes.language.width, sizes.words, bias=False)
        self.lm_head.weight = self.model.language_model.embed_tokens.weight

    @property
    def language_model(self) -> Tower:
        """As LeRobot calls it."""
        return self.model.language_model

    def embedded(self, pictures: Tensor) -> Tensor:
        """The tokens [B, S, D] of ``pictures`` [B, 3, H, W]."""
        tower = self.model.vision_tower
        dtype = tower.vision_model.encoder.layers[0].self_attn.q_proj.weight.dtype
        patches = tower.vision_model.embeddings(pictures).to(dtype)
        seen = tower.vision_model.encoder(inputs_embeds=patches).last_hidden_state
        found: Tensor = self.model.multi_modal_projector["linear"](tower.vision_model.post_layernorm(seen))
        return found


def networks(parent: Any, sizes: Sizes) -> Any:
    """A class that stands for LeRobot's ``PaliGemmaWithExpertModel`` (``parent``): its functions, these networks."""

    class PaliGemmaWithExpert(parent):  # type: ignore[misc]
        """PaliGemma and the expert, with the sizes of the weights."""

        def __init__(
            self, vlm_config: Any, action_expert_config: Any, use_adarms: tuple[bool, bool] = (False, False),
            precision: str = "float32", image_size: int = 224, **training: Any,
        ) -> None:
            nn.Module.__init__(self)
            self.freeze_vision_encoder = self.train_expert_only = False  # of training; LeRobot asks
            if image_size != sizes.vision["image_size"]:
                raise Refused(f"its config scales pictures to {image_size} pixels, its weights are for "
                              f"{sizes.vision['image_size']}")
            widths = [of.width if adaptive else None for of, adaptive in zip(
                (sizes.language, sizes.expert), use_adarms, strict=True)]
            self.paligemma = PaliGemma(sizes, widths[0])
            self.gemma_expert = nn.ModuleDict({"model": Tower(sizes.expert, None, widths[1])})
            self.to_bfloat16_for_selected_params(precision)

        def embed_image(self, image: Tensor) -> Tensor:
            """The tokens of a picture."""
            return self.paligemma.embedded(image)

    return PaliGemmaWithExpert


def prepare(module: Any, folder: ModelFolder, backbone: Path | None) -> None:
    """Let LeRobot's ``module`` (modeling_pi0, modeling_pi05) of this process build the networks of the weights in
    ``folder``."""
    sizes = sizes_of(folder, backbone)
    named = {folder.config.get("action_expert_variant", "gemma_300m"): sizes.expert,
             folder.config.get("paligemma_variant", "gemma_2b"): sizes.language}
    module.get_gemma_config = lambda variant: named[variant]
    module.PaliGemmaWithExpertModel = networks(module.PaliGemmaWithExpertModel, sizes)
    check: Any = ModuleType("transformers.models.siglip.check")  # LeRobot asks it whether transformers was changed
    check.check_whether_transformers_replace_is_installed_correctly = lambda: True
    sys.modules[check.__name__] = check


def state_of(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights by LeRobot's names: openpi's have no ``model.`` before them; the expert's words are read by nothing."""
    named = {name.removeprefix("model."): value for name, value in state.items()}
    return {f"model.{name}": value for name, value in named.items() if name != UNREAD}
