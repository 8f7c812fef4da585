"""The folder of an OpenVLA or OpenVLA-OFT model: what is in it, and whether a mapping fits it. Nothing is loaded.

The published OpenVLA-OFT checkpoints hold the action head and the projector of proprioception as pickles (``.pt``),
which are refused. Written as safetensors, by the same names of tensors, they are:

    action_head.safetensors         model.layer_norm1, .fc1, .mlp_resnet_blocks.*, .layer_norm2, .fc2
    proprio_projector.safetensors   fc1, fc2

Checkpoints say neither how many rows a chunk has nor by which statistics it is scaled: the mapping does (``openvla``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporeal.policies.pretrained.serving.folders import WEIGHTS, ModelFolder, json_of
from temporeal.policies.pretrained.serving.interface import Interface
from temporeal.policies.pretrained.serving.openvla.pictures import Normal, normal_of
from temporeal.policies.pretrained.serving.openvla.statistics import BOUNDS, Scale, scale_of
from temporeal.policies.pretrained.serving.tensor_files import header
from temporeal.robots.handed_over.files import Refused, member

HEAD, PROPRIO, INDEX = "action_head.safetensors", "proprio_projector.safetensors", "model.safetensors.index.json"
DECODING = ("parallel", "autoregressive")
BACKBONE = "dinosiglip-vit-so-224px"  # of every published OpenVLA: DINOv2 and SigLIP, side by side
LANGUAGE = ("llama2-7b-pure", "llama2-13b-pure", "llama2-7b-chat", "llama2-13b-chat", "vicuna-v15-7b", "vicuna-v15-13b")
"""Language models of the Llama architecture that a config may name (``configuration_prismatic.py``)."""
MOST_WORDS = 1 << 20  # more than any vocabulary has
DDP = "module."  # before names of tensors that several processes trained


@dataclass(frozen=True)
class Settings:
    """What no file of a checkpoint says; the key ``openvla`` of a mapping.

    Args:
        decoding: ``parallel``: OpenVLA-OFT, all numbers at once, attention both ways. ``autoregressive``: OpenVLA.
        rows: of a chunk (``NUM_ACTIONS_CHUNK``: LIBERO 8, ALOHA 25, Bridge 5); 1 for OpenVLA.
        bounds: statistics that are -1 and 1: ``q99`` (LIBERO, Bridge) or ``min_max`` (ALOHA).
        center_crop: whether nine tenths of each picture are used, as for models trained with random crops.
    """

    decoding: str
    rows: int
    bounds: str
    center_crop: bool


@dataclass(frozen=True)
class Bins:
    """How tokens stand for numbers.

    Args:
        count: edges of bins from -1 to 1 (``n_action_bins``).
        padding: words without a meaning at the vocabulary's end (``pad_to_multiple_of``).
    """

    count: int
    padding: int


@dataclass(frozen=True)
class Checkpoint:
    """A folder that fits its mapping.

    Args:
        action, proprio: scales; proprio is None where the model does not read the robot's state.
        head: whether numbers come from an action head; else from tokens, by ``bins``. ``normal``: of pictures.
    """

    folder: ModelFolder
    settings: Settings
    action: Scale
    proprio: Scale | None
    head: bool
    normal: Normal
    bins: Bins

    def weights(self) -> list[Path]:
        """The files of the network."""
        return weight_files(self.folder.path)


def checkpoint_of(folder: ModelFolder, dataset: str, given: Mapping[str, Any] | Settings | None) -> Checkpoint:
    """What is in ``folder``, with statistics of ``dataset``."""
    scale_of(folder, dataset)
    if given is None:
        raise Refused(f"{folder.path} is an OpenVLA model: no file of it says how it decodes. The mapping must, for "
                      "example openvla: {decoding: parallel, rows: 8, bounds: q99, center_crop: true}")
    settings = given if isinstance(given, Settings) else Settings(**given)
    check_settings(settings, folder.path)
    check_network(folder)
    head = has(folder, HEAD)
    if settings.decoding == "autoregressive" and (head or has(folder, PROPRIO)):
        raise Refused(f"{folder.path} holds parts of OpenVLA-OFT ({HEAD}, {PROPRIO}), which decodes in parallel; the "
                      "mapping says autoregressive")
    action = scale_of(folder, dataset, "action", settings.bounds)
    proprio = scale_of(folder, dataset, "proprio", settings.bounds) if has(folder, PROPRIO) else None
    found = Checkpoint(folder, settings, action, proprio, head, normal_of(folder.path), bins_of(folder))
    check_sizes(found)
    return found


def has(folder: ModelFolder, name: str) -> bool:
    """Whether the folder has a file."""
    return (folder.path / name).is_file()


def check_settings(settings: Settings, path: Path) -> None:
    """They are possible ones."""
    if settings.decoding not in DECODING or settings.bounds not in BOUNDS:
        raise Refused(f"openvla: decoding is {settings.decoding!r}, bounds {settings.bounds!r}; legal: "
                      f"{', '.join(DECODING)}; {', '.join(BOUNDS)}")
    if settings.decoding == "autoregressive" and settings.rows != 1:
        raise Refused(f"{path}: OpenVLA (decoding: autoregressive) gives one row, the mapping says {settings.rows}")


def check_network(folder: ModelFolder) -> None:
    """Vision towers, language model and decoding are those that are written here."""
    for key, legal in (("vision_backbone_id", (BACKBONE,)), ("llm_backbone_id", LANGUAGE)):
        if folder.config.get(key) not in legal:
            raise Refused(f"{folder.path}: its {key} is {str(folder.config.get(key))[:60]!r}; served: "
                          f"{', '.join(legal)}")
    known = {HEAD, PROPRIO, *(file.name for file in weight_files(folder.path))}
    if unread := sorted(file.name for file in folder.path.glob("*.safetensors") if file.name not in known):
        raise Refused(f"{folder.path} holds {unread[0]}, which nothing here reads: served are OpenVLA-OFT's regression "
                      "head and its tokens, not its diffusion head, and no FiLM")


def bins_of(folder: ModelFolder) -> Bins:
    """Those of the config, or, where it does not say, of every published OpenVLA."""
    return Bins(whole(folder, "n_action_bins", 256, 2), whole(folder, "pad_to_multiple_of", 64, 0))


def whole(folder: ModelFolder, key: str, published: int, least: int) -> int:
    """A whole number of the config; ``published``: where it is not there."""
    value = folder.config.get(key, published)
    if type(value) is not int or not least <= value <= MOST_WORDS:
        raise Refused(f"{folder.path}: its {key} is {str(value)[:60]!r}; a whole number from {least} to {MOST_WORDS} "
                      "is needed")
    return value


def check_words(found: Checkpoint, words: int) -> None:
    """The vocabulary of so many ``words`` has one for each bin."""
    bins = found.bins
    if bins.count > words - bins.padding:
        raise Refused(f"{found.folder.path}: the last words stand for n_action_bins={bins.count} bins, and the "
                      f"vocabulary has {words} words, pad_to_multiple_of={bins.padding} of them without a meaning")


def check_sizes(found: Checkpoint) -> None:
    """The statistics have as many numbers as the head gives and the projector reads."""
    path = found.folder.path
    for name, tensor, axis, scale in ((HEAD, "model.fc2.weight", 0, found.action),
                                      (PROPRIO, "fc1.weight", 1, found.proprio)):
        if not has(found.folder, name) or scale is None:
            continue
        shapes = {key.removeprefix(DDP): entry.get("shape") for key, entry in header(path / name).items()}
        shape = shapes.get(tensor)
        if not isinstance(shape, list) or len(shape) != 2:
            raise Refused(f"{path / name} has no matrix {tensor}; it holds: {', '.join(sorted(shapes))[:300]}")
        if shape[axis] != scale.low.size:
            raise Refused(f"{path / name} is for {shape[axis]} numbers, the statistics have {scale.low.size}")


def check_asked(found: Checkpoint, inputs: int, size: int, instruction: bool) -> int:
    """The rows of a chunk, if the model reads so many inputs and an instruction, and gives ``size`` numbers."""
    path, state = found.folder.path, found.proprio is not None
    if not instruction:
        raise Refused(f"the model in {path} needs an instruction; the mapping gives none")
    if inputs < 1 + state or (found.settings.decoding == "autoregressive" and inputs != 1):
        raise Refused(f"the model in {path} reads {reads(found)}; the mapping gives {inputs} inputs")
    if size != found.action.low.size:
        raise Refused(f"the action of the model in {path} has {found.action.low.size} numbers, the mapping takes "
                      f"{size}")
    return found.settings.rows


def reads(found: Checkpoint) -> str:
    """What the model reads, in words."""
    pictures = "one picture" if found.settings.decoding == "autoregressive" else "one picture or several"
    if found.proprio is None:
        return f"{pictures}, and no state (it holds no {PROPRIO})"
    return f"{pictures}, and the robot's state as one input of {found.proprio.low.size} numbers"


def check_interface(found: Checkpoint, interface: Interface) -> int:
    """The rows of a chunk, if the model takes the inputs of ``interface`` and gives its action."""
    rows = check_asked(found, len(interface.inputs), interface.action.shape[0], interface.instruction)
    pictures = [f for f in interface.inputs if f.dtype == "uint8"]
    states = [f.shape for f in interface.inputs if f.dtype != "uint8"]
    wanted = [] if found.proprio is None else [found.proprio.low.shape]
    if states != wanted or not pictures:
        raise Refused(f"the model in {found.folder.path} reads {reads(found)}; the mapping gives {len(pictures)} "
                      f"pictures and inputs of the shapes {[list(shape) for shape in states]}")
    pixels = found.normal.pixels
    for f in pictures:
        if len(f.shape) != 3 or f.shape[2] != 3 or (f.shape[:2] != (pixels, pixels) and not f.resize):
            raise Refused(f"{f.name} is {list(f.shape)}; the model reads pictures [{pixels}, {pixels}, 3]: resize: "
                          "true in the mapping scales them")
    return rows


def weight_files(folder: Path) -> list[Path]:
    """The files of the network's weights: one, or those of its index."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        raise Refused(f"{folder} holds neither {WEIGHTS} nor {INDEX}: the network's weights (adapters of LoRA must be "
                      "merged into them)")
    named = json_of(folder, INDEX).get("weight_map")
    if not isinstance(named, dict) or not named:
        raise Refused(f"{folder / INDEX} has no weight_map")
    return [member(folder, name) for name in sorted({str(name) for name in named.values()})]
