"""The process that holds a model: it answers inferences over the channel until its client leaves.

    PYTHON -I start.py PACKAGE OVERLAY server SOCKET REQUEST

REQUEST is a JSON text: folder, dataset, backbone (or null), device, threads, raw (features that are not normalized),
history, openvla (settings, or null). The process serves one client, and ends with it.
"""

from __future__ import annotations

import json
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from temporeal.policies.pretrained.serving import channel
from temporeal.policies.pretrained.serving.channel import ChannelError, Deadline, Message, receive, send
from temporeal.policies.pretrained.serving.interface import Interface, interface_of
from temporeal.robots.handed_over.files import Refused


class Model(Protocol):
    """A model that is served."""

    facts: dict[str, Any]
    """What results should keep: kind, digest of its files, dataset, versions, ..."""

    def check(self, interface: Interface) -> int:
        """The rows of a chunk, if the model takes the inputs of ``interface`` and gives its action; else
        :class:`Refused`."""

    def infer(self, inputs: dict[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
        """Rows [N, H, A] float32, in the units of the model's data, for inputs [N, *shape]."""


def serve(model: Model, path: Path) -> None:
    """Serve one client at the socket ``path``."""
    with channel.client_at(path) as link:
        interface, rows = agreed(model, link)
        while True:
            reply = chunk(model, interface, rows, receive(link, Deadline(channel.IDLE, "the client")))
            send(link, reply, Deadline(channel.REPLY, "the client"))


def agreed(model: Model, link: socket.socket) -> tuple[Interface, int]:
    """The handshake: versions, the interface and its hash. Returns it and the rows of a chunk."""
    hello = channel.greeted(link)
    interface = interface_of(hello.fields.get("interface"), hello.fields.get("digest"))
    rows = model.check(interface)
    facts = {"version": channel.VERSION, "digest": interface.digest(), "rows": rows, "model": model.facts}
    send(link, Message("ready", facts), Deadline(channel.REPLY, "the client"))
    return interface, rows


def chunk(model: Model, interface: Interface, rows: int, request: Message) -> Message:
    """The answer to an inference."""
    if request.kind != "infer" or request.fields.get("digest") != interface.digest():
        raise ChannelError("the request is no inference by the interface that was agreed")
    worlds = checked_inputs(interface, request.arrays)
    sentences = request.fields.get("sentences")
    if interface.instruction != (isinstance(sentences, list) and len(sentences) == worlds):
        raise ChannelError(f"{worlds} worlds need as many instructions")
    action = model.infer(dict(request.arrays), sentences, int(request.fields["seed"]))
    if action.shape != (worlds, rows, *interface.action.shape):
        raise ChannelError(f"the model gave an action of shape {list(action.shape)}, not "
                           f"{[worlds, rows, *interface.action.shape]}")
    return Message("chunk", {"number": request.fields.get("number"), "digest": interface.digest()}, {"action": action})


def checked_inputs(interface: Interface, arrays: Any) -> int:
    """The worlds of a request whose arrays are those of the interface."""
    if set(arrays) != {f.name for f in interface.inputs}:
        raise ChannelError(f"the request holds {', '.join(sorted(arrays))}; agreed: "
                           f"{', '.join(f.name for f in interface.inputs)}")
    worlds = {len(value) if value.ndim else 0 for value in arrays.values()}
    for f in interface.inputs:
        value = arrays[f.name]
        if value.shape[1:] != f.shape or str(value.dtype) != f.dtype or len(worlds) != 1:
            raise ChannelError(f"{f.name} is {value.dtype} of shape {list(value.shape)}; agreed: {f.dtype}, N by "
                               f"{list(f.shape)}")
    return worlds.pop()


def main(words: Sequence[str]) -> int:
    """Load the model of a request and serve it; what hinders it is told through the channel."""
    path, request = Path(words[0]), json.loads(words[1])
    try:
        model = loaded(request)
    except Exception as error:  # whatever a library raises: the client must hear of it
        traceback.print_exc(file=sys.stderr)
        model = Unloadable(error)
    serve(model, path)
    return 0


class Unloadable:
    """What stands for a model that could not be loaded: it refuses."""

    def __init__(self, error: Exception) -> None:
        known = isinstance(error, Refused)
        self.facts: dict[str, Any] = {}
        self.message = str(error) if known else f"the model could not be loaded ({type(error).__name__}: {error})"

    def check(self, interface: Interface) -> int:
        """Refuse."""
        raise Refused(self.message)

    def infer(self, inputs: dict[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
        """Refuse."""
        raise Refused(self.message)


def loaded(request: dict[str, Any]) -> Model:
    """The model that a request asks for."""
    from temporeal.policies.pretrained.serving.folders import KINDS, open_folder

    folder = open_folder(Path(request["folder"]))  # before anything heavy is imported
    from temporeal.policies.pretrained.serving.torchvision_operators import define

    define()
    if KINDS[folder.kind].library == "lerobot":
        from temporeal.policies.pretrained.serving.lerobot_model import LeRobotModel

        return LeRobotModel(folder, request)
    from temporeal.policies.pretrained.serving.openvla.model import OpenVLAModel

    return OpenVLAModel(folder, request)
