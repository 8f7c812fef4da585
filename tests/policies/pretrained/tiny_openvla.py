"""OpenVLA and OpenVLA-OFT of two million parameters (their vocabulary), as published folders, made with numpy alone.

The weights are numbers that numpy draws by name, so that nobody need keep them: the original code was given the same
folder, and its answers are kept (``tests/interop/original_chunks.json``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.policies.pretrained.folders import write_tensors
from tests.policies.pretrained.tiny_pi import drawn, linear, write_tokenizer

SET = "libero_spatial_no_noops"
ROWS, ACTION, PROPRIO = 8, 7, 8  # of LIBERO, in the original's ``constants.py``
PIXELS, PATCH, DEPTH = 56, 14, 3
DINO, SIGLIP, WIDTH, HIDDEN, LAYERS, VOCABULARY = 32, 48, 32, 64, 2, 32064
SENTENCES = ["push the red cube", "open the Drawer"]
OFT = {"decoding": "parallel", "rows": ROWS, "bounds": "q99", "center_crop": True}
PLAIN = {"decoding": "autoregressive", "rows": 1, "bounds": "q99", "center_crop": False}
Shapes = dict[str, tuple[int, ...]]


def tower(prefix: str, width: int, dino: bool) -> Shapes:
    """Names and shapes of a vision tower; SigLIP's pooling is there and is read by nothing."""
    found = {f"{prefix}pos_embed": (1, (PIXELS // PATCH) ** 2, width), **linear(f"{prefix}norm", width),
             f"{prefix}patch_embed.proj.weight": (width, 3, PATCH, PATCH), f"{prefix}patch_embed.proj.bias": (width,)}
    for k in range(DEPTH):
        block = f"{prefix}blocks.{k}."
        found |= {**linear(f"{block}norm1", width), **linear(f"{block}norm2", width),
                  **linear(f"{block}attn.qkv", 3 * width, width), **linear(f"{block}attn.proj", width, width),
                  **linear(f"{block}mlp.fc1", 2 * width, width), **linear(f"{block}mlp.fc2", width, 2 * width)}
        if dino:
            found |= {f"{block}ls{j}.scale_factor": (width,) for j in (1, 2)}
    if dino:
        return {**found, f"{prefix}cls_token": (1, 1, width), f"{prefix}reg_token": (1, 4, width)}
    pool = f"{prefix}attn_pool."
    return {**found, f"{pool}latent": (1, 1, width), **linear(f"{pool}q", width, width),
            **linear(f"{pool}kv", 2 * width, width), **linear(f"{pool}proj", width, width),
            **linear(f"{pool}norm", width), **linear(f"{pool}mlp.fc1", 2 * width, width),
            **linear(f"{pool}mlp.fc2", width, 2 * width)}


def llama() -> Shapes:
    """Names and shapes of the language model."""
    model = "language_model.model."
    found: Shapes = {f"{model}embed_tokens.weight": (VOCABULARY, WIDTH), f"{model}norm.weight": (WIDTH,),
                     "language_model.lm_head.weight": (VOCABULARY, WIDTH)}
    for k in range(LAYERS):
        layer = f"{model}layers.{k}."
        found |= {f"{layer}self_attn.{name}_proj.weight": (WIDTH, WIDTH) for name in "qkvo"}
        found |= {f"{layer}mlp.gate_proj.weight": (HIDDEN, WIDTH), f"{layer}mlp.up_proj.weight": (HIDDEN, WIDTH),
                  f"{layer}mlp.down_proj.weight": (WIDTH, HIDDEN), f"{layer}input_layernorm.weight": (WIDTH,),
                  f"{layer}post_attention_layernorm.weight": (WIDTH,)}
    return found


def shapes() -> Shapes:
    """Names and shapes of the network's weights."""
    both = DINO + SIGLIP
    return {**tower("vision_backbone.featurizer.", DINO, True),
            **tower("vision_backbone.fused_featurizer.", SIGLIP, False),
            **linear("projector.fc1", 4 * both, both), **linear("projector.fc2", WIDTH, 4 * both),
            **linear("projector.fc3", WIDTH, WIDTH), **llama()}


def head() -> Shapes:
    """Of the action head."""
    wide = WIDTH * ACTION
    found = {**linear("model.layer_norm1", wide), **linear("model.fc1", WIDTH, wide),
             **linear("model.layer_norm2", WIDTH), **linear("model.fc2", ACTION, WIDTH)}
    for k in range(2):
        found |= {**linear(f"model.mlp_resnet_blocks.{k}.ffn.0", WIDTH),
                  **linear(f"model.mlp_resnet_blocks.{k}.ffn.1", WIDTH, WIDTH)}
    return found


def numbers(of: Shapes) -> dict[str, np.ndarray]:
    """Weights; those of the words are so that what is read matters, and that words of actions are said."""
    found = {name: drawn(name, shape) for name, shape in of.items()}
    for name, value in found.items():
        if "norm" in name and name.endswith("weight"):
            value += 1.0
        if "embed_tokens" in name:
            value *= 3.0
        if "lm_head" in name:
            value[31744:32000] *= 30.0
    return found


def statistics() -> dict[str, Any]:
    """``dataset_statistics.json``: the gripper is not scaled."""
    draw = np.random.default_rng(3)
    found: dict[str, Any] = {}
    for feature, size in (("action", ACTION), ("proprio", PROPRIO)):
        low, high = draw.uniform(-1.0, 0.0, size), draw.uniform(0.5, 1.0, size)
        found[feature] = {"q01": low.tolist(), "q99": high.tolist(), "min": (2 * low).tolist(),
                          "max": (2 * high).tolist()}
    found["action"]["mask"] = [True] * (ACTION - 1) + [False]
    return {SET: found}


def folder(path: Path, oft: bool = True, weights: dict[str, np.ndarray] | None = None) -> Path:
    """A checkpoint as it is published, but for the action head and the projector, which are safetensors here.
    ``weights``: of the network, where they are to be others."""
    path.mkdir(parents=True, exist_ok=True)
    norms = {"mean": [0.484375, 0.455078125, 0.40625], "std": [0.228515625, 0.2236328125, 0.224609375]}
    (path / "config.json").write_text(json.dumps({
        "model_type": "openvla", "architectures": ["OpenVLAForActionPrediction"],
        "auto_map": {"AutoConfig": "configuration_prismatic.OpenVLAConfig"}, "n_action_bins": 256,
        "vision_backbone_id": "dinosiglip-vit-so-224px", "llm_backbone_id": "llama2-7b-pure",
        "arch_specifier": "no-align+fused-gelu-mlp", "use_fused_vision_backbone": True, "pad_to_multiple_of": 64,
        "pad_token_id": 32000, "image_resize_strategy": "resize-naive", "norm_stats": statistics(),
        "text_config": {"model_type": "llama", "hidden_size": WIDTH, "intermediate_size": HIDDEN, "pad_token_id": 32000,
                        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "vocab_size": VOCABULARY}}))
    (path / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "PrismaticImageProcessor", "use_fused_vision_backbone": True,
        "image_resize_strategy": "resize-naive", "input_sizes": [[3, PIXELS, PIXELS]] * 2,
        "interpolations": ["bicubic", "bicubic"], "means": [norms["mean"], [0.5] * 3],
        "stds": [norms["std"], [0.5] * 3]}))
    (path / "dataset_statistics.json").write_text(json.dumps(statistics()))
    words = ["In", ":", "What", "action", "should", "the", "robot", "take", "to", "?", "Out", "push", "red", "cube",
             "open", "drawer"]
    write_tokenizer(path, {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 32000, "▁": 29871,
                           **{word: 300 + 17 * k for k, word in enumerate(words)}}, "<s>")
    write_network(path, numbers(shapes()) if weights is None else weights)
    if oft:
        write_tensors(path / "action_head.safetensors", {f"module.{k}": v for k, v in numbers(head()).items()})
        write_tensors(path / "proprio_projector.safetensors", numbers(
            {**linear("fc1", WIDTH, PROPRIO), **linear("fc2", WIDTH, WIDTH)}))
    return path


def write_network(path: Path, weights: dict[str, np.ndarray], shards: int = 2) -> None:
    """The network's weights in several files, with their index."""
    index: dict[str, str] = {}
    for k in range(shards):
        name = f"model-{k + 1:05}-of-{shards:05}.safetensors"
        some = dict(list(weights.items())[k::shards])
        write_tensors(path / name, some)
        index |= dict.fromkeys(some, name)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def inputs(pictures: int = 2, state: bool = True, pixels: int = PIXELS) -> dict[str, np.ndarray]:
    """Two worlds' observations."""
    draw = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {name: draw.integers(0, 256, (2, pixels, pixels, 3), np.uint8) for name in (
        "full_image", "wrist_image")[:pictures]}
    return {**found, "state": draw.uniform(-1.2, 1.2, (2, PROPRIO)).astype(np.float32)} if state else found
