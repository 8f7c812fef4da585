"""The client of a model in another process: it starts the process, agrees with it, asks, and ends it.

    with Server.start(request, interface, where) as server:
        action = server.ask({"observation.state": state}, ["push the red cube"])    # [N, H, A]

Whatever goes wrong (the process ends, hangs, answers something else than was asked) is a :class:`ChannelError` within
the stated time, and the server is closed: no later answer can be taken for this one's.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import temporeal
from temporeal.policies.pretrained.serving.channel import (
    VERSION,
    ChannelError,
    Deadline,
    Message,
    answer,
    check_private,
    send,
)
from temporeal.policies.pretrained.serving.interface import Interface
from temporeal.policies.pretrained.serving.openvla.checkpoint import Settings

ROOT = Path(temporeal.__path__[0])  # not resolved: its folders may be links
START = ROOT / "policies" / "pretrained" / "serving" / "start.py"
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "MUJOCO_GL")
"""Variables that a process of a model sees of ours; no token and no search path of Python is among them."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
           "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
TAIL = 1500  # characters of what the process wrote last


@dataclass(frozen=True)
class Request:
    """What a server is asked to load.

    Args:
        folder: of the model. ``backbone``: of its vision-language model's configuration and tokenizer (None: beside).
        dataset, raw, history, openvla: of the mapping. ``device``: where it runs. ``threads``: of its process.
    """

    folder: str
    dataset: str
    backbone: str | None = None
    device: str = "cpu"
    threads: int = 1
    raw: tuple[str, ...] = ()
    history: str = ""
    openvla: Settings | None = None


@dataclass(frozen=True)
class Where:
    """The environment of a server.

    Args:
        python: its interpreter. ``overlay``: a folder of packages that comes first; None: none.
        load_s: s, until the model is loaded. ``answer_s``: s, for each inference.
    """

    python: str = sys.executable
    overlay: Path | None = None
    load_s: float = 300.0
    answer_s: float = 60.0


class Process:
    """A process that serves a socket in a private folder; closed, both are gone."""

    def __init__(self, where: Where, module: str, words: Sequence[str]) -> None:
        self.private = Path(tempfile.mkdtemp(prefix="temporeal-model-"))  # mode 700
        check_private(self.private)
        self.path = self.private / "socket"
        self.said = self.private / "said.txt"
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        kept = {key: value for key, value in os.environ.items() if key in KEPT}
        command = [where.python, "-I", str(START), str(ROOT), str(where.overlay or "-"), module, str(self.path), *words]
        try:
            with self.said.open("wb") as said:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=self.private,
                    env={**kept, **threads, **OFFLINE, "HF_HOME": str(self.private / "hf")})
        except OSError as error:
            shutil.rmtree(self.private, ignore_errors=True)
            raise ChannelError(f"{where.python} cannot be started: {error.strerror}") from error

    def connected(self, deadline: Deadline) -> socket.socket:
        """The channel to the process, as soon as it listens."""
        while True:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                link.connect(str(self.path))
                return link
            except OSError:
                link.close()
            if (status := self.process.poll()) is not None:
                raise ChannelError(f"the process of the model ended with status {status} before it listened")
            deadline.left()
            time.sleep(0.02)

    def last_words(self) -> str:
        """What the process wrote last."""
        try:
            return self.said.read_text(errors="replace")[-TAIL:].strip()
        except OSError:
            return ""

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.private, ignore_errors=True)


class Server:
    """A model in a process of its own, which has agreed to ``interface``. Use it as a context manager.

    Args:
        facts: what the model says of itself, for results. ``rows``: of a chunk.
    """

    def __init__(self, process: Process | None, link: socket.socket, interface: Interface, where: Where) -> None:
        self.process, self.link, self.interface, self.where = process, link, interface, where
        self.digest, self.number, self.broken = interface.digest(), 0, ""
        self.facts, self.rows = self._agree()

    @classmethod
    def start(cls, request: Request, interface: Interface, where: Where) -> Server:
        """Start a process with the model and agree with it."""
        process = Process(where, "server", [json.dumps(asdict(request))])
        try:
            return cls(process, process.connected(Deadline(where.load_s, "the process of the model")), interface, where)
        except BaseException as error:  # Ctrl-C, too, leaves no process
            words = last(process)
            process.close()
            if isinstance(error, ChannelError):
                raise ChannelError(f"{error}{words}") from error
            raise

    def _agree(self) -> tuple[dict[str, Any], int]:
        deadline = Deadline(self.where.load_s, "the server of the model")
        hello = {"version": VERSION, "interface": self.interface.described(), "digest": self.digest}
        send(self.link, Message("hello", hello), deadline)
        said = answer(self.link, "ready", deadline).fields
        if said.get("version") != VERSION or said.get("digest") != self.digest:
            raise ChannelError(f"the server speaks version {said.get('version')} and agreed to the interface "
                               f"{str(said.get('digest'))[:12]}; this is version {VERSION} and {self.digest[:12]}")
        rows, facts = said.get("rows"), said.get("model")
        if type(rows) is not int or not 0 < rows <= 10_000 or not isinstance(facts, dict):
            raise ChannelError(f"the server states chunks of {rows!r} rows")
        return facts, rows

    def ask(self, inputs: Mapping[str, np.ndarray], sentences: list[str] | None, seed: int = 0) -> np.ndarray:
        """The chunk [N, H, A] float32 for inputs [N, *shape]; a :class:`ChannelError` closes the server."""
        if self.broken:
            raise ChannelError(f"the server of the model is closed: {self.broken}")
        try:
            return self._asked(inputs, sentences, seed)
        except ChannelError as error:
            message = f"{error}{last(self.process)}"
            self.broken = str(error)
            self.close()
            raise ChannelError(message) from error

    def _asked(self, inputs: Mapping[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
        self.number += 1
        deadline = Deadline(self.where.answer_s, "the server of the model")
        wanted = (len(next(iter(inputs.values()))), self.rows, *self.interface.action.shape)
        fields = {"number": self.number, "digest": self.digest, "seed": seed, "sentences": sentences}
        send(self.link, Message("infer", fields, inputs), deadline)
        found = answer(self.link, "chunk", deadline, 4 * prod(wanted))
        if found.fields.get("number") != self.number or found.fields.get("digest") != self.digest:
            raise ChannelError(f"the server answered question {found.fields.get('number')!r} where {self.number} was "
                               "asked: a stale chunk is never executed")
        action = found.arrays.get("action")
        if action is None or set(found.arrays) != {"action"} or action.shape != wanted or action.dtype != np.float32:
            shown = {name: (str(value.dtype), value.shape) for name, value in found.arrays.items()}
            raise ChannelError(f"the server sent {shown}, agreed was action: float32 {wanted}")
        if not np.isfinite(action).all():
            raise ChannelError(f"the server sent an action that is not finite, in world "
                               f"{int(np.flatnonzero(~np.isfinite(action).all((1, 2)))[0])}")
        return action

    def close(self) -> None:
        """End the server."""
        self.link.close()
        if self.process is not None:
            self.process.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def last(process: Process | None) -> str:
    """The last words of a process, for a message."""
    words = process.last_words() if process is not None else ""
    return f"; it wrote last:\n{words}" if words else ""
