"""A classifier of success as a folder that proves itself: success.onnx (raw signals -> chance that the task is done),
manifest.json and golden.npz, which is replayed when the folder is read. Nothing in it can run code.

    manifest.json  robot, rate and signals that it learned of; threshold, samples in a row, and what these did to
                   held-out episodes; SHA-256 of the run's weights; settings of the training, versions, revision;
                   SHA-256 of the other two files

T moments, N of a batch.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.data.episodes.interface import Interface
from temporeal.policies.export.provenance import revision, versions
from temporeal.policies.export.writer import OPSET, example, write
from temporeal.policies.nets.encoders import is_words
from temporeal.policies.progress.success_classifier import SuccessClassifier, threshold_of
from temporeal.policies.training.chunks.learner import interface_of, plain_interface
from temporeal.policies.training.progress_models.thresholds import Threshold
from temporeal.robots.artifact.loading import read, refuse_other_folder
from temporeal.robots.artifact.manifest import DTYPES, GOLDEN, MANIFEST, ArtifactError, Damaged, digest, plain
from temporeal.robots.artifact.runtime import check_tensors, open_session, verified
from temporeal.robots.atomic_files import staged
from temporeal.robots.handed_over.arrays import read_npz
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.handed_over.texts import from_json
from temporeal.robots.signals import SignalSpec, is_number

KIND, NETWORK = "temporeal success 1", "success.onnx"
DONE, MOMENTS = "done", 16  # name of the output; moments of the golden trace
TOLERANCE = 1e-4  # of a chance: rounding of another machine


class Flat(nn.Module):
    """The classifier with positional tensors, as ONNX graphs have them."""

    def __init__(self, model: SuccessClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, *signals: Tensor) -> Tensor:
        """The chance [N]."""
        return self.model.value(self.model.encoder(dict(zip(self.model.names, signals))))


def export_success(model: SuccessClassifier, out: Path, training: Mapping[str, Any]) -> ExportedClassifier:
    """Write ``model`` to the folder ``out``, and return it read and tested. ``training``: the settings."""
    if model.interface is None or model.chosen is None:
        raise ArtifactError("a classifier that was read from its run, with its threshold, is exported")
    refuse_other_folder(out)
    specs, generator = tuple(model.interface.signals.values()), torch.Generator().manual_seed(0)
    golden = {spec.name: moments_of(spec, generator) for spec in specs}
    with torch.no_grad():
        done = Flat(model)(*golden.values())
    buffer = io.BytesIO()
    np.savez(buffer, **{DONE: done.numpy(), **{f"signals.{name}": value.numpy() for name, value in golden.items()}})
    data = {NETWORK: traced(model, specs), GOLDEN: buffer.getvalue()}
    manifest = {"kind": KIND, "interface": plain_interface(model.interface), "threshold": model.chosen.to_json(),
                "weights": model.weights, "training": plain(training, "training"), "versions": versions(),
                "git_revision": revision(),
                "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "files": {name: digest(content) for name, content in data.items()}}
    data[MANIFEST] = json.dumps(manifest, indent=1).encode()
    with staged(out) as folder:
        for name, content in data.items():
            write(folder / name, content)
        ExportedClassifier.load(folder)
    return ExportedClassifier.load(out)


def moments_of(spec: SignalSpec, generator: torch.Generator) -> Tensor:
    """Random values [T, *shape] of a signal."""
    if is_words(spec):
        return torch.randint(2, (MOMENTS, *spec.shape), generator=generator, dtype=getattr(torch, spec.dtype))
    if spec.dtype == "uint8":
        return torch.randint(256, (MOMENTS, *spec.shape), generator=generator, dtype=torch.uint8)
    return torch.randn(MOMENTS, *spec.shape, generator=generator)


def traced(model: SuccessClassifier, specs: Sequence[SignalSpec]) -> bytes:
    """The ONNX file, for any batch size."""
    buffer, names = io.BytesIO(), [spec.name for spec in specs]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # as in temporeal.policies.export.writer
        torch.onnx.export(
            Flat(deepcopy(model)).cpu().eval(), tuple(example(specs, 2)), buffer,  # type: ignore[arg-type]
            input_names=names, output_names=[DONE], opset_version=OPSET, dynamo=False,
            dynamic_axes={name: {0: "n"} for name in (*names, DONE)})
    return buffer.getvalue()


class ExportedClassifier:
    """A :class:`temporeal.policies.training.progress_models.protocol.ProgressModel` of such a folder.

    Attributes:
        learned: robot, rate and signals of the episodes that it learned from.
        chosen: its threshold, and what that does.
        weights: SHA-256 of those of the run that it was exported from.
    """

    def __init__(self, interface: Interface, chosen: Threshold, weights: str, session: Any) -> None:
        self.learned, self.chosen, self.weights, self.session = interface, chosen, weights, session
        self.interface: Interface | None = interface
        self.names = tuple(interface.signals)

    @staticmethod
    def load(folder: Path) -> ExportedClassifier:
        """Read the folder, and replay its golden trace. What it is not is an :class:`ArtifactError`."""
        try:
            content: Any = from_json(read(folder, MANIFEST), str(folder / MANIFEST))
            if content["kind"] != KIND:
                raise ValueError(f"its kind is {str(content['kind'])[:40]!r}, not {KIND!r}")
            interface, chosen = sound(interface_of(content["interface"])), threshold_of(content["threshold"])
            weights = checksum(content.get("weights"))
            network, golden = (verified(folder, name, content["files"][name]) for name in (NETWORK, GOLDEN))
            trace = moments_in(read_npz(golden, GOLDEN), interface)
        except (Refused, AttributeError, LookupError, TypeError, ValueError) as error:
            raise Damaged(f"{folder} holds no classifier of success: {error}") from error
        found = ExportedClassifier(interface, chosen, weights, open_session(network, NETWORK))
        found.check(trace)
        return found

    def check(self, trace: Mapping[str, np.ndarray]) -> None:
        """The network has the manifest's inputs, and says of the ``trace`` what was said."""
        specs = self.learned.signals
        check_tensors("input", {name: spec.shape for name, spec in specs.items()}, self.session.get_inputs(), NETWORK,
                      {name: spec.dtype for name, spec in specs.items()})
        check_tensors("output", {DONE: ()}, self.session.get_outputs(), NETWORK, {})
        try:
            found = self.chance({name: trace[f"signals.{name}"] for name in specs})
        except Exception as error:  # onnxruntime's types are private and differ between versions
            raise Damaged(f"{NETWORK} does not take the moments of {GOLDEN}: {error}") from error
        off = float(np.abs(found - trace[DONE]).max()) if found.shape == trace[DONE].shape else np.inf
        if not off <= TOLERANCE:
            raise ArtifactError(f"the self-test failed: the network is off by {off:g} from what {GOLDEN} says, "
                                f"{TOLERANCE:g} is allowed")

    def chance(self, signals: Mapping[str, np.ndarray]) -> np.ndarray:
        """That the task is done [N], of signals [N, *shape]."""
        feed = {name: np.ascontiguousarray(signals[name], spec.dtype) for name, spec in self.learned.signals.items()}
        found: np.ndarray = self.session.run([DONE], feed)[0]
        return found

    def values(self, signals: Mapping[str, Tensor]) -> Tensor:
        """[T] of one episode."""
        return torch.from_numpy(self.chance({name: signals[name].numpy() for name in self.names}))

    def start(self, n: int, every: int = 1) -> None:
        """Nothing is remembered of an episode."""

    def update(self, signals: Mapping[str, Tensor], begins: Tensor | None = None) -> Tensor:
        """[N] at the next samples."""
        return self.values(signals)


def sound(interface: Interface) -> Interface:
    """It, where robot, rate and signals are what networks and worlds can be compared with."""
    if not isinstance(interface.robot, str) or not is_number(interface.rate_hz) or interface.rate_hz <= 0:
        raise ValueError(f"robot is {str(interface.robot)[:40]!r}, rate_hz {str(interface.rate_hz)[:40]!r}; a name and "
                         "a finite number > 0 are needed")
    if not interface.signals:
        raise ValueError("it reads no signals")
    for name, spec in interface.signals.items():
        if spec.dtype not in DTYPES:
            raise ValueError(f"signal {name} is of type {spec.dtype}; legal are {', '.join(DTYPES)}")
    return interface


def checksum(value: object) -> str:
    """The SHA-256 of the run's weights."""
    if not isinstance(value, str) or len(value) != 64 or set(value) - set("0123456789abcdef"):
        raise ValueError(f"weights is {str(value)[:70]}, not a SHA-256: export the run again")
    return value


def moments_in(trace: Mapping[str, np.ndarray], interface: Interface) -> Mapping[str, np.ndarray]:
    """The golden ``trace``: chances [T], and each signal [T, *shape] in its type, T at least 1."""
    needed: dict[str, tuple[tuple[int, ...], str]] = {
        DONE: ((), "float32"),
        **{f"signals.{name}": (spec.shape, spec.dtype) for name, spec in interface.signals.items()}}
    if set(trace) != set(needed):
        raise ValueError(f"{GOLDEN} has {', '.join(trace)[:200]}; {DONE} and the signals are needed")
    if trace[DONE].ndim != 1 or not len(trace[DONE]):
        raise ValueError(f"{GOLDEN}: {DONE} is {list(trace[DONE].shape)}; at least one moment is needed")
    for name, (shape, dtype) in needed.items():
        there, wanted = trace[name], (len(trace[DONE]), *shape)
        if there.shape != wanted or there.dtype != dtype:
            raise ValueError(f"{GOLDEN}: {name} is {there.dtype} {list(there.shape)}, {dtype} {list(wanted)} is needed")
    return trace
