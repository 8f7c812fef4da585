"""LeRobot policies with random weights, and what they answer: run in the environment of pretrained models.

    PYTHON -I tiny_policies.py OVERLAY KIND OUT

OVERLAY: a folder of packages that comes first, or -. KIND: smolvla, act or diffusion.

Writes OUT/policy as LeRobot itself saves one, and OUT/expected.npz: inputs, and the chunk that LeRobot gives for them.
"""

import os
import sys

if sys.argv[1] != "-":
    sys.path.insert(0, sys.argv[1])
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

import json
from pathlib import Path

import numpy as np
import torch

torch.set_num_threads(1)
LIBRARY = torch.library.Library("torchvision", "DEF")
LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from lerobot.configs.types import FeatureType, PolicyFeature  # noqa: E402
from lerobot.policies.factory import make_pre_post_processors  # noqa: E402

SIZE = 64
INPUTS = {"observation.state": PolicyFeature(FeatureType.STATE, (9,)),
          "observation.images.front": PolicyFeature(FeatureType.VISUAL, (3, SIZE, SIZE))}
OUTPUTS = {"action": PolicyFeature(FeatureType.ACTION, (8,))}
SENTENCES = ["push the red cube", "open the drawer"]


def statistics():
    """Of made-up data."""
    draw = np.random.default_rng(3)
    found = {}
    for name, feature in {**INPUTS, **OUTPUTS}.items():
        shape = (3, 1, 1) if len(feature.shape) == 3 else feature.shape
        low = draw.uniform(-1.0, 0.0, shape)
        high = draw.uniform(0.5, 1.0, shape)
        found[name] = {"mean": (low + high) / 2, "std": (high - low) / 4, "min": low, "max": high}
    return {name: {key: torch.tensor(value, dtype=torch.float32) for key, value in of.items()}
            for name, of in found.items()}


def smolvla(out):
    """SmolVLA on a SmolVLM of some hundred thousand parameters, whose configuration and tokenizer are beside it."""
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy

    backbone(out / "policy" / "backbone")
    return SmolVLAPolicy, SmolVLAConfig(
        input_features=INPUTS, output_features=OUTPUTS, device="cpu", chunk_size=10, n_action_steps=10,
        vlm_model_name=str(out / "policy" / "backbone"), num_vlm_layers=2, resize_imgs_with_padding=(64, 64),
        num_steps=3, max_state_dim=12, max_action_dim=12, push_to_hub=False)


def backbone(folder):
    """Configuration, tokenizer and picture processor of a tiny SmolVLM."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        PreTrainedTokenizerFast,
        SmolVLMConfig,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    words = ["<unk>", "<pad>", "<bos>", "<eos>", "<image>", "<fake_token_around_image>", "<global-img>",
             "<end_of_utterance>", "push", "the", "red", "cube", "open", "drawer"]
    raw = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    special = words[4:8]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="<unk>", pad_token="<pad>", bos_token="<bos>", eos_token="<eos>",
        additional_special_tokens=special, extra_special_tokens={
            "image_token": "<image>", "fake_image_token": "<fake_token_around_image>",
            "global_image_token": "<global-img>", "end_of_utterance_token": "<end_of_utterance>"})
    processor = SmolVLMProcessor(
        SmolVLMImageProcessor(size={"longest_edge": 64}, max_image_size={"longest_edge": 64}), tokenizer,
        SmolVLMVideoProcessor(size={"longest_edge": 64}, max_image_size={"longest_edge": 64},
                              video_sampling={"max_frames": 4, "fps": 1, "video_size": {"longest_edge": 64}}),
        image_seq_len=16)
    processor.save_pretrained(folder)
    text = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": len(words), "pad_token_id": 1,
            "bos_token_id": 2, "eos_token_id": 3}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
              "image_size": 64, "patch_size": 16}
    SmolVLMConfig(text_config=text, vision_config=vision, image_token_id=4, scale_factor=2, pad_token_id=1,
                  tie_word_embeddings=False).save_pretrained(folder)


def act(out):
    """ACT with two small transformers; its picture encoder is a ResNet-18."""
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    return ACTPolicy, ACTConfig(
        input_features=INPUTS, output_features=OUTPUTS, device="cpu", chunk_size=6, n_action_steps=6, dim_model=32,
        n_heads=2, dim_feedforward=32, n_encoder_layers=1, n_vae_encoder_layers=1, latent_dim=4,
        pretrained_backbone_weights=None, push_to_hub=False)


def diffusion(out):
    """Diffusion policy with a small U-Net and four denoising steps."""
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    return DiffusionPolicy, DiffusionConfig(
        input_features=INPUTS, output_features=OUTPUTS, device="cpu", down_dims=(16, 32), n_groups=4,
        diffusion_step_embed_dim=16, num_train_timesteps=4, push_to_hub=False)


def batch(kind, arrays):
    """As a user of LeRobot makes it."""
    picture = torch.from_numpy(arrays["observation.images.front"]).permute(0, 3, 1, 2).float() / 255.0
    found = {"observation.state": torch.from_numpy(arrays["observation.state"]), "observation.images.front": picture}
    return {**found, "task": SENTENCES} if kind == "smolvla" else found


def chunk(policy, inputs, kind):
    """The policy's answer by LeRobot's public functions."""
    policy.reset()
    with torch.no_grad():
        if kind != "diffusion":
            return policy.predict_action_chunk(inputs)
        return torch.stack([policy.select_action(inputs) for _ in range(policy.config.n_action_steps)], 1)


def main(kind, out):
    """Build, save, answer."""
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    found, config = {"smolvla": smolvla, "act": act, "diffusion": diffusion}[kind](out)
    policy = found(config).eval()
    policy.save_pretrained(out / "policy")
    before, after = make_pre_post_processors(config, dataset_stats=statistics())
    before.save_pretrained(out / "policy")
    after.save_pretrained(out / "policy")
    (out / "policy" / "train_config.json").write_text(json.dumps({"dataset": {"repo_id": "someone/pushes"}}))
    draw = np.random.default_rng(0)
    arrays = {"observation.state": draw.uniform(-1, 1, (2, 9)).astype(np.float32),
              "observation.images.front": draw.integers(0, 256, (2, SIZE, SIZE, 3), np.uint8)}
    inputs = before(batch(kind, arrays))
    torch.manual_seed(11)
    action = after(chunk(policy, inputs, kind)).numpy()
    np.savez(out / "expected.npz", **arrays, action=action)


if __name__ == "__main__":
    main(sys.argv[2], Path(sys.argv[3]))
