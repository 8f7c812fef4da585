"""OpenVLA by transformers, as far as it loads without code of its own. **Never run.**

transformers itself has no ``openvla``: the published checkpoints bring Python files (``auto_map``), which are never run
here. They load where the user has installed the package ``prismatic`` (github.com/moojink/openvla-oft) into the
environment: code that the user chose, not the model's folder. Without it this says so, after the folder's statistics
have been checked. Of OpenVLA-OFT only a checkpoint without files of its own (action head, projector of proprioception:
pickles) would load.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

from temporeal.policies.pretrained.serving.folders import ModelFolder
from temporeal.policies.pretrained.serving.interface import Interface
from temporeal.policies.pretrained.serving.openvla_statistics import action_statistics
from temporeal.robots.handed_over.files import Refused

PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
"""Of openvla/openvla README and its ``vla-scripts``; instructions in lower case."""


class OpenVLAModel:
    """OpenVLA's network, as :class:`temporeal.policies.pretrained.serving.server.Model`: one row of seven numbers, or
    the chunk of OpenVLA-OFT."""

    def __init__(self, folder: ModelFolder, request: Mapping[str, Any]) -> None:
        self.dataset = request["dataset"]
        self.statistics = action_statistics(folder, self.dataset)
        if importlib.util.find_spec("prismatic") is None:
            raise Refused(f"{folder.path} is an OpenVLA model (its statistics of {self.dataset!r} are good). "
                          "transformers has no such architecture, and the code that comes with the weights is not run."
                          " Install the package prismatic (github.com/moojink/openvla-oft) into the environment and "
                          "name its Python with --python")
        self.processor, self.model = network_of(folder, request["device"])
        self.device = request["device"]
        self.facts: dict[str, Any] = {"kind": "openvla", "files": folder.digest(), "dataset": self.dataset,
                                      "statistics": "key", "notes": [], "versions": {}}

    def check(self, interface: Interface) -> int:
        """The rows of a chunk: one picture, a sentence, seven numbers."""
        pictures = [f for f in interface.inputs if f.dtype == "uint8"]
        if len(pictures) != 1 or len(interface.inputs) != 1 or not interface.instruction:
            raise Refused("OpenVLA reads one picture and an instruction")
        if interface.action.shape != self.statistics["q01"].shape:
            raise Refused(f"OpenVLA's action has {self.statistics['q01'].size} numbers, the mapping takes "
                          f"{list(interface.action.shape)}")
        return int(getattr(self.model.config, "num_actions_chunk", 1))

    def infer(self, inputs: dict[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
        """Rows [N, H, 7], one world after the other."""
        import torch
        from PIL import Image

        (pictures,), rows = inputs.values(), []
        for picture, sentence in zip(pictures, sentences or [], strict=True):
            words = PROMPT.format(instruction=sentence.lower())
            given = self.processor(words, Image.fromarray(picture)).to(self.device, dtype=torch.bfloat16)
            with torch.inference_mode():
                action = self.model.predict_action(**given, unnorm_key=self.dataset, do_sample=False)
            action = action[0] if isinstance(action, tuple) else action
            rows.append(np.atleast_2d(np.asarray(action, np.float32)))
        return np.stack(rows)


def network_of(folder: ModelFolder, device: str) -> tuple[Any, Any]:
    """Processor and network, by the classes of the user's package."""
    import torch
    from transformers import AutoConfig, AutoModelForVision2Seq

    found = importlib.import_module("prismatic.extern.hf.configuration_prismatic").OpenVLAConfig
    network = importlib.import_module("prismatic.extern.hf.modeling_prismatic").OpenVLAForActionPrediction
    processor = importlib.import_module("prismatic.extern.hf.processing_prismatic").PrismaticProcessor
    AutoConfig.register("openvla", found)
    AutoModelForVision2Seq.register(found, network)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    model = network.from_pretrained(folder.path, torch_dtype=torch.bfloat16, use_safetensors=True, **options)
    return processor.from_pretrained(folder.path, **options), model.to(device).eval()
