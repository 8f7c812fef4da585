"""A pretrained policy as a function from measured signals to rows of commands.

    with opened(Path("smolvla_pushes"), read_mapping(Path("map.yaml")), robot, where) as policy:
        rows = policy.infer(signals)        # [N, H, U]

``infer`` is what :class:`temporeal.policies.runs.chunks.Player` plays; a residual policy takes it as its frozen base.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.pretrained.binding import Binding, Robot, bind
from temporeal.policies.pretrained.client import Request, Server, Where
from temporeal.policies.pretrained.mapping import Mapping as Map
from temporeal.policies.pretrained.mapping import MappingError
from temporeal.policies.pretrained.serving.features import check_asked, check_interface
from temporeal.policies.pretrained.serving.folders import KINDS, ModelFolder, open_folder
from temporeal.policies.pretrained.serving.openvla.checkpoint import check_asked as openvla_asked
from temporeal.policies.pretrained.serving.openvla.checkpoint import check_interface as openvla_interface
from temporeal.policies.pretrained.serving.openvla.checkpoint import checkpoint_of
from temporeal.policies.pretrained.serving.statistics import Normalization, normalization_of

AT_ONCE = 16  # worlds in one inference: what a large model needs for each is hundreds of megabytes


@dataclass(frozen=True)
class Pretrained:
    """A pretrained policy that is being served."""

    binding: Binding
    server: Server

    def infer(self, signals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The rows [N, H, U] of the command for measured signals [N, *shape]. The noise that flow and diffusion
        policies begin with is drawn by the mapping's seed and the number of the inference."""
        worlds = len(next(iter(signals.values())))
        return np.concatenate([self.some({name: value[k : k + AT_ONCE] for name, value in signals.items()})
                               for k in range(0, worlds, AT_ONCE)])

    def some(self, signals: Mapping[str, np.ndarray]) -> np.ndarray:
        """:meth:`infer` of a few worlds."""
        inputs = self.binding.inputs(signals)
        sentences = self.binding.sentences(signals, len(next(iter(inputs.values()))))
        seed = self.binding.mapping.seed + self.server.number
        return self.binding.rows(self.server.ask(inputs, sentences, seed), signals)

    def facts(self) -> dict[str, Any]:
        """What results keep: hashes of weights, mapping and interface, dataset, versions."""
        return {**self.server.facts, "mapping": self.binding.mapping.digest(),
                "interface": self.binding.interface.digest(), "rows": self.server.rows}


def check(path: Path, mapping: Map) -> tuple[ModelFolder, Normalization | None]:
    """The model in ``path``, if it is one for ``mapping``, and its statistics, checked without loading it; None of
    OpenVLA's, which are in its config."""
    folder = open_folder(path)
    sentence = bool(mapping.sentence or mapping.sentence_signal)
    if folder.kind == "openvla":
        check_unused(mapping, path)
        openvla_asked(checkpoint_of(folder, mapping.dataset, mapping.openvla), len(mapping.inputs), mapping.size,
                      sentence)
        return folder, None
    if mapping.openvla is not None:
        raise MappingError(f"openvla is of OpenVLA's kind of model; {path} is of kind {folder.kind}")
    check_asked(folder, mapping.inputs, mapping.size, sentence, mapping.history)
    return folder, normalization_of(folder, mapping.dataset, mapping.not_normalized)


def check_unused(mapping: Map, path: Path) -> None:
    """Keys that would do nothing for an OpenVLA model."""
    for key in ("not_normalized", "history"):
        if getattr(mapping, key):
            raise MappingError(f"{path} is an OpenVLA model, for which {key} does nothing")


@contextmanager
def opened(
    path: Path, mapping: Map, robot: Robot, where: Where, backbone: Path | None = None, device: str = "cpu",
    threads: int = 1,
) -> Iterator[Pretrained]:
    """Serve the policy in ``path`` to ``robot`` by ``mapping``."""
    binding = bind(mapping, robot)
    folder, _ = check(path, mapping)
    if folder.kind == "openvla":
        openvla_interface(checkpoint_of(folder, mapping.dataset, mapping.openvla), binding.interface)
    else:
        check_interface(folder, binding.interface, mapping.history)
    beside = None if backbone is None else str(backbone.resolve())
    request = Request(str(path.resolve()), mapping.dataset, beside, device, threads, mapping.not_normalized,
                      mapping.history, mapping.openvla)
    with Server.start(request, binding.interface, where) as server:
        yield Pretrained(binding, server)


def library_of(folder: ModelFolder) -> str:
    """The library that runs a model."""
    return KINDS[folder.kind].library
