"""Policies of LeRobot (0.4.4) from a local folder: SmolVLA, pi0, pi0.5, ACT, Diffusion.

What LeRobot's ``from_pretrained`` does is done here in steps that can fail: pi0's returns a network of random weights
where the file cannot be read (``modeling_pi0.py``: "Returning model without loading pretrained weights"), the
processors are built from class names in JSON files, and names of other models are looked up on a hub. Here weights must
fit exactly, processors are LeRobot's own for the kind of policy with the statistics that were checked, and the
vision-language model's configuration and tokenizer come from a folder beside the weights (``backbone``).

pi0 and pi0.5 run on transformers as released: :mod:`temporeal.policies.pretrained.serving.pi_network`.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.pretrained.serving.features import check_interface
from temporeal.policies.pretrained.serving.folders import KINDS, WEIGHTS, ModelFolder, refuse_code
from temporeal.policies.pretrained.serving.interface import Interface
from temporeal.policies.pretrained.serving.statistics import PIPELINES, normalization_of, steps_of
from temporeal.robots.handed_over.files import Refused

BACKBONE = "backbone"  # the folder beside the weights with the vision-language model's configuration and tokenizer
FIXED = {"compile_model": False, "pretrained_path": None, "pretrained_backbone_weights": None, "push_to_hub": False,
         "load_vlm_weights": False, "use_peft": False}
"""Settings of configs that would compile, download or look elsewhere: the weights are all in the folder."""


class LeRobotModel:
    """A policy of LeRobot, as :class:`temporeal.policies.pretrained.serving.server.Model`."""

    def __init__(self, folder: ModelFolder, request: Mapping[str, Any]) -> None:
        torch.set_num_threads(int(request["threads"]))
        found = normalization_of(folder, request["dataset"], tuple(request["raw"]))
        backbone = backbone_of(folder, request)
        self.config = config_of(folder, backbone, request["device"])
        self.folder, self.history, self.device = folder, request["history"], request["device"]
        self.policy = policy_of(folder, self.config, backbone)
        self.before, self.after = processors_of(folder, self.config, found.statistics, backbone)
        self.facts = {
            "kind": folder.kind, "files": folder.digest(), "dataset": found.dataset, "statistics": found.source,
            "notes": list(found.notes), "versions": {name: metadata.version(name) for name in (
                "lerobot", "transformers", "torch")}}

    def check(self, interface: Interface) -> int:
        """The rows of a chunk, if the policy takes these inputs and gives this action."""
        return check_interface(self.folder, interface, self.history)

    def infer(self, inputs: dict[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
        """Rows [N, H, A]."""
        torch.manual_seed(seed)
        batch: dict[str, Any] = {name: self.tensor(name, value) for name, value in inputs.items()}
        if sentences is not None:
            batch["task"] = list(sentences)
        with torch.inference_mode():
            action = self.after(rows_of(self.policy, self.before(batch)))
        found: np.ndarray = action.float().cpu().numpy()
        return found

    def tensor(self, name: str, value: np.ndarray) -> Tensor:
        """An input as LeRobot's datasets give it: pictures [N, 3, H, W] in [0, 1]."""
        if value.dtype != np.uint8:
            return torch.from_numpy(value.copy())
        picture = torch.from_numpy(value.copy()).permute(0, 3, 1, 2).float() / 255.0
        _, height, width = self.folder.features("input_features")[name][1]
        if picture.shape[2:] == (height, width):
            return picture
        return torch.nn.functional.interpolate(picture, (height, width), mode="bilinear", antialias=True)


def rows_of(policy: Any, batch: dict[str, Any]) -> Tensor:
    """A chunk [N, H, A], still normalized, of a policy that remembers nothing."""
    policy.reset()
    if policy.name != "diffusion":
        found: Tensor = policy.predict_action_chunk(batch)
        return found
    first = policy.select_action(batch)  # it alone fills the history; the other rows wait in its queue
    return torch.stack([first, *policy._queues["action"]], 1)


def backbone_of(folder: ModelFolder, request: Mapping[str, Any]) -> Path | None:
    """The folder with the vision-language model's configuration and tokenizer; None for policies without one."""
    if not KINDS[folder.kind].reads_text:
        return None
    path = Path(request["backbone"]) if request["backbone"] else folder.path / BACKBONE
    if not path.is_dir():
        named = str(folder.config.get("vlm_model_name", "paligemma"))[:80]
        raise Refused(f"a policy of kind {folder.kind} needs the configuration and the tokenizer of its vision-"
                      f"language model (its config names {named!r}; nothing is downloaded): put them into "
                      f"{folder.path / BACKBONE}, or name their folder with --backbone")
    refuse_code(path)
    return path


def config_of(folder: ModelFolder, backbone: Path | None, device: str) -> Any:
    """LeRobot's configuration of the policy."""
    from lerobot.configs.policies import PreTrainedConfig

    policy_class(folder.kind)  # its import registers the configuration
    changed = {key: value for key, value in {**FIXED, "vlm_model_name": str(backbone)}.items() if key in folder.config}
    with tempfile.TemporaryDirectory() as private:
        Path(private, "config.json").write_text(json.dumps({**folder.config, **changed, "device": device}))
        try:
            return PreTrainedConfig.from_pretrained(private, local_files_only=True)
        except Exception as error:  # draccus raises many kinds, and its own say less than their cause
            why = error.__cause__ or error
            raise Refused(f"{folder.path}: LeRobot cannot read its config ({type(why).__name__}: {why})") from error


def policy_class(kind: str) -> Any:
    """LeRobot's class of a policy. Names are ours: no config chooses what is imported."""
    if kind == "smolvla":
        from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy as Found
    elif kind == "pi0":
        from lerobot.policies.pi0.modeling_pi0 import PI0Policy as Found
    elif kind == "pi05":
        from lerobot.policies.pi05.modeling_pi05 import PI05Policy as Found
    elif kind == "act":
        from lerobot.policies.act.modeling_act import ACTPolicy as Found
    else:
        from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy as Found
    return Found


def policy_of(folder: ModelFolder, config: Any, backbone: Path | None) -> Any:
    """The policy with the weights of the folder, all of them and no others."""
    from safetensors.torch import load_file

    found, state = policy_class(folder.kind), load_file(folder.path / WEIGHTS)
    if folder.kind in ("pi0", "pi05"):
        from temporeal.policies.pretrained.serving import pi_network

        pi_network.prepare(importlib.import_module(found.__module__), folder, backbone)
        state = pi_network.state_of(state)
    policy = found(config)
    load_exactly(policy, state, folder.path)
    policy.to(config.device)
    return policy.eval()


def load_exactly(policy: Any, state: dict[str, Tensor], folder: Path) -> None:
    """Load weights that fit; tensors that the policy shares are written once."""
    from safetensors.torch import _find_shared_tensors

    try:
        missing, unexpected = policy.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise Refused(f"{folder / WEIGHTS} holds weights of another architecture than its config's: "
                      f"{str(error)[:600]}") from error
    shared = [names for names in _find_shared_tensors(policy.state_dict()) if names & set(state)]
    missing = [name for name in missing if not any(name in names for names in shared)]
    if missing or unexpected:
        raise Refused(f"{folder / WEIGHTS} holds weights of another architecture than its config's: {len(missing)} are "
                      f"missing ({', '.join(missing[:3])}), {len(unexpected)} are not known "
                      f"({', '.join(unexpected[:3])})")


def processors_of(
    folder: ModelFolder, config: Any, statistics: Mapping[str, Mapping[str, np.ndarray]], backbone: Path | None
) -> tuple[Any, Any]:
    """LeRobot's pipelines before and after the policy, if they are those that were saved with it."""
    from lerobot.policies.factory import make_pre_post_processors
    from lerobot.processor import tokenizer_processor

    if backbone is not None:  # pi0's pipeline names a tokenizer on the hub
        tokenizer = tokenizer_processor.AutoTokenizer.from_pretrained(str(backbone), local_files_only=True)
        tokenizer_processor.AutoTokenizer = type("Local", (), {"from_pretrained": lambda *a, **k: tokenizer})
    as_tensors = {name: {key: torch.from_numpy(value).float() for key, value in values.items()}
                  for name, values in statistics.items()}
    before, after = make_pre_post_processors(config, dataset_stats=as_tensors)
    for pipeline, name in zip((before, after), PIPELINES, strict=True):
        check_steps(folder.path, name, [type(step)._registry_name for step in pipeline.steps])
    return before, after


def check_steps(folder: Path, name: str, ours: list[str]) -> None:
    """The saved pipeline has the steps of this kind of policy, and renames nothing."""
    steps = list(steps_of(folder, name))
    theirs = [step["registry_name"] for step in steps]
    if theirs != ours:
        raise Refused(f"{folder / name} has the steps {', '.join(theirs)}; of this kind of policy they are "
                      f"{', '.join(ours)}: its inputs are prepared otherwise than here")
    if any((step.get("config") or {}).get("rename_map") for step in steps):
        raise Refused(f"{folder / name} renames observations: name the features in the mapping as the policy's config "
                      "does, and save the policy without the renaming")
