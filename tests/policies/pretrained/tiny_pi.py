"""pi0 and pi0.5 of some ten thousand parameters, as folders that LeRobot writes, made with numpy alone.

The weights are numbers that numpy draws by name, so that nobody need keep them: the original code was given the same
folder, and its answers are kept (``tests/interop/original_chunks.json``).
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from tests.policies.pretrained.folders import write_tensors

SET = "someone/pushes"
STATE, ACTION, ROWS, PADDED = 8, 7, 6, 10  # as in LIBERO
CAMERAS = {"observation.images.front": (48, 64), "observation.images.wrist": (32, 32)}
SENTENCES = ["push the red cube", "open the drawer"]
WORDS = 400
KINDS = ("pi0", "pi05")
HEAD, LANGUAGE, EXPERT, VISION = 8, (16, 2, 32), (24, 2, 40), (16, 2, 24)  # width, layers, width of MLPs
PATCH, PICTURE, HEADS, SHARED = 8, 32, 2, 1
VLM = "model.paligemma_with_expert.paligemma."


def gemma(prefix: str, of: tuple[int, int, int], condition: int = 0) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Gemma; with a condition, its norms are adaptive."""
    width, layers, mlp = of
    norm: dict[str, tuple[int, ...]] = {"weight": (width,)}
    if condition:
        norm = {"dense.weight": (3 * width, condition), "dense.bias": (3 * width,)}
    found = {f"{prefix}norm.{name}": shape for name, shape in norm.items()}
    for k in range(layers):
        layer = f"{prefix}layers.{k}."
        found |= {f"{layer}{which}.{name}": shape for which in ("input_layernorm", "post_attention_layernorm")
                  for name, shape in norm.items()}
        found |= {f"{layer}self_attn.{name}_proj.weight": shape for name, shape in {
            "q": (HEADS * HEAD, width), "k": (SHARED * HEAD, width), "v": (SHARED * HEAD, width),
            "o": (width, HEADS * HEAD)}.items()}
        found |= {f"{layer}mlp.{name}_proj.weight": shape for name, shape in {
            "gate": (mlp, width), "up": (mlp, width), "down": (width, mlp)}.items()}
    return found


def siglip(prefix: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the vision tower."""
    width, layers, mlp = VISION
    found = {f"{prefix}embeddings.patch_embedding.weight": (width, 3, PATCH, PATCH),
             f"{prefix}embeddings.patch_embedding.bias": (width,),
             f"{prefix}embeddings.position_embedding.weight": ((PICTURE // PATCH) ** 2, width),
             **linear(f"{prefix}post_layernorm", width)}
    for k in range(layers):
        layer = f"{prefix}encoder.layers.{k}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            found |= linear(f"{layer}self_attn.{name}", width, width)
        found |= {**linear(f"{layer}mlp.fc1", mlp, width), **linear(f"{layer}mlp.fc2", width, mlp),
                  **linear(f"{layer}layer_norm1", width), **linear(f"{layer}layer_norm2", width)}
    return found


def linear(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    """A weight and its bias."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def shapes(kind: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights."""
    width = EXPERT[0]
    found = {**siglip(f"{VLM}model.vision_tower.vision_model."),
             **linear(f"{VLM}model.multi_modal_projector.linear", LANGUAGE[0], VISION[0]),
             **gemma(f"{VLM}model.language_model.", LANGUAGE), f"{VLM}lm_head.weight": (WORDS, LANGUAGE[0]),
             **gemma("model.paligemma_with_expert.gemma_expert.model.", EXPERT, width if kind == "pi05" else 0),
             "model.paligemma_with_expert.gemma_expert.lm_head.weight": (WORDS, width),
             **linear("model.action_in_proj", width, PADDED), **linear("model.action_out_proj", PADDED, width)}
    if kind == "pi05":
        return {**found, **linear("model.time_mlp_in", width, width), **linear("model.time_mlp_out", width, width)}
    return {**found, **linear("model.state_proj", width, PADDED),
            **linear("model.action_time_mlp_in", width, 2 * width),
            **linear("model.action_time_mlp_out", width, width)}


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of a weight: of one size whatever its width, other ones for each name."""
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    return draw.normal(0.0, 1.0, shape) * (0.3 if len(shape) < 2 else 1.5 / np.sqrt(np.prod(shape[1:])))


def statistics(kind: str) -> dict[str, dict[str, np.ndarray]]:
    """Of made-up data: quantiles for pi0.5, mean and deviation for pi0."""
    draw = np.random.default_rng(3)
    low, high = draw.uniform(-1.0, 0.0, STATE + ACTION), draw.uniform(0.5, 1.0, STATE + ACTION)
    pair = {"q01": low, "q99": high} if kind == "pi05" else {"mean": (low + high) / 2, "std": (high - low) / 4}
    return {"observation.state": {key: value[:STATE] for key, value in pair.items()},
            "action": {key: value[STATE:] for key, value in pair.items()}}


def folder(kind: str, path: Path, dtype: str = "float32") -> Path:
    """A policy as LeRobot's save_pretrained writes it, with its backbone's tokenizer and configuration."""
    path.mkdir(parents=True, exist_ok=True)
    config = configuration(kind) | {"dtype": dtype}
    (path / "config.json").write_text(json.dumps(config))
    write_weights(path, kind)
    stored = {f"{feature}.{key}": value for feature, of in statistics(kind).items() for key, value in of.items()}
    features = {**config["input_features"], **config["output_features"]}
    for side, steps in pipelines(kind, config, features).items():
        (path / f"policy_{side}.json").write_text(json.dumps({"name": f"policy_{side}", "steps": steps}))
        for step in steps:
            if "state_file" in step:
                write_tensors(path / step["state_file"], stored)
    (path / "train_config.json").write_text(json.dumps({"dataset": {"repo_id": SET}}))
    backbone(path / "backbone")
    return path


def write_weights(path: Path, kind: str) -> None:
    """``model.safetensors``."""
    write_tensors(path / "model.safetensors", {name: drawn(name, shape) for name, shape in shapes(kind).items()})


def configuration(kind: str) -> dict[str, Any]:
    """``config.json``."""
    mode = "QUANTILES" if kind == "pi05" else "MEAN_STD"
    pictures = {name: {"type": "VISUAL", "shape": [3, *size]} for name, size in CAMERAS.items()}
    return {"type": kind, "n_obs_steps": 1, "chunk_size": ROWS, "n_action_steps": ROWS, "device": "cpu",
            "max_state_dim": PADDED, "max_action_dim": PADDED, "num_inference_steps": 3,
            "image_resolution": [PICTURE, PICTURE], "tokenizer_max_length": 32, "push_to_hub": False,
            "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": mode, "ACTION": mode},
            "input_features": {"observation.state": {"type": "STATE", "shape": [STATE]}, **pictures},
            "output_features": {"action": {"type": "ACTION", "shape": [ACTION]}}}


def pipelines(kind: str, config: dict[str, Any], features: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The steps before and after the policy."""
    normal = {"eps": 1e-8, "features": features, "norm_map": config["normalization_mapping"]}
    own = ("pi05_prepare_state_tokenizer_processor_step", {"max_state_dim": PADDED, "task_key": "task"}) if (
        kind == "pi05") else ("pi0_new_line_processor", {})
    words = ("tokenizer_processor", {"max_length": 32, "task_key": "task", "padding_side": "right",
                                     "padding": "max_length", "truncation": True,
                                     "tokenizer_name": "google/paligemma-3b-pt-224"})
    device = ("device_processor", {"device": "cpu", "float_dtype": None})
    begin = [("rename_observations_processor", {"rename_map": {}}), ("to_batch_processor", {})]
    scaled = ("normalizer_processor", normal)
    before = [*begin, scaled, own, words, device] if kind == "pi05" else [*begin, own, words, device, scaled]
    after = [("unnormalizer_processor", {**normal, "features": config["output_features"]}),
             ("device_processor", {"device": "cpu", "float_dtype": None})]
    return {side: [{"registry_name": name, "config": of, **(
        {"state_file": f"policy_{side}_step_{k}_{name}.safetensors"} if "normalizer" in name else {})}
        for k, (name, of) in enumerate(steps)] for side, steps in (("preprocessor", before), ("postprocessor", after))}


def backbone(path: Path) -> None:
    """Numbers of heads, and a tokenizer of whole words."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(
        {"model_type": "paligemma", "text_config": {"model_type": "gemma", "head_dim": HEAD},
         "vision_config": {"model_type": "siglip_vision_model", "num_attention_heads": HEADS}}))
    words = ["Task", "State", "Action", ":", ";", ",", "push", "the", "red", "cube", "open", "drawer",
             *map(str, range(256))]
    write_tokenizer(path, {word: k for k, word in enumerate(["<pad>", "<eos>", "<bos>", "<unk>", *words])}, "<bos>")


def write_tokenizer(path: Path, vocabulary: dict[str, int], begin: str) -> None:
    """A tokenizer of whole words, which begins each text with ``begin``."""
    special = [word for word in vocabulary if word.startswith("<")]
    added = [{"id": vocabulary[word], "content": word, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for word in special]
    begins = [{"SpecialToken": {"id": begin, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    (path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "decoder": None, "post_processor": {
            "type": "TemplateProcessing", "single": begins,
            "pair": [*begins, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {begin: {"id": begin, "ids": [vocabulary[begin]], "tokens": [begin]}}},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}}))
    named = {f"{name}_token": word for name, word in (("pad", "<pad>"), ("unk", "<unk>"), ("bos", begin))}
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **named}))


def inputs() -> dict[str, np.ndarray]:
    """Two worlds' observations."""
    draw = np.random.default_rng(0)
    return {"observation.state": draw.uniform(-1.0, 1.0, (2, STATE)).astype(np.float32),
            **{name: draw.integers(0, 256, (2, *size, 3), np.uint8) for name, size in CAMERAS.items()}}
