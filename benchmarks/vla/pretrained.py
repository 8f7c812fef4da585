"""Pretrained policies in a process of their own: whether the chunk is the original's, and what the channel costs.

The policies have random weights (``tests/interop/tiny_policies.py`` builds them offline): equality does not depend on
them. Of pi0, pi0.5 and OpenVLA the original's answers are kept (``tests/interop/original_chunks.json``). The cost is
that of one world with two pictures of 224 pixels, both ends of the channel, without a model.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.pretrained import environment
from temporeal.policies.pretrained.client import Request, Server, Where
from temporeal.policies.pretrained.serving.channel import ChannelError, Deadline, receive, send
from temporeal.policies.pretrained.serving.interface import Field, Interface
from temporeal.policies.pretrained.serving.openvla.checkpoint import Settings
from temporeal.policies.pretrained.serving.server import agreed, chunk
from temporeal_benchmarks.rows import Row, at_most, not_measured

ROOT = Path(__file__).resolve().parents[2]
BUILD, ORIGINALS = ROOT / "tests/interop/tiny_policies.py", ROOT / "tests/interop/original_chunks.json"
KINDS, SET, SEED = ("smolvla", "act", "diffusion"), "someone/pushes", 11
KEPT = {"pi0": "pi0 float32", "pi05": "pi05 float32", "openvla": "openvla plain", "openvla_oft": "openvla oft",
        "openvla_oft_tokens": "openvla oft_tokens"}
"""Kinds whose original cannot be installed beside ours, and the name of its kept answer."""
CLOSE = 1e-4  # target: other versions of libraries add in another order
SENTENCES = ["push the red cube", "open the drawer"]
COST_MS, IDLE_S = 2.0, 60.0  # target: a fiftieth of a chunk at 10 Hz; s
PICTURES = Interface((Field("observation.state", (8,)), Field("a", (224, 224, 3), "uint8"),
                      Field("b", (224, 224, 3), "uint8")), Field("action", (8,)), 20.0, True)


def rows(quick: bool, out: Path) -> list[Row]:
    """Equality for each kind of policy, where the environment is installed; the channel's processor time."""
    cost = channel_ms(30 if quick else 300)
    found = [at_most("vla.pretrained.channel", cost, "ms", COST_MS, "processor time of both ends, one world, 300 kB")]
    for kind in KINDS[:1] if quick else (*KINDS, *KEPT):
        name, target = f"vla.pretrained.{kind}.difference", CLOSE if kind in KEPT else 0.0
        if not environment.installed("lerobot"):
            found.append(not_measured(name, "1", target, environment.how("lerobot")))
            continue
        measure, whose = (against_kept, "the original code's kept chunk") if kind in KEPT else (
            against_lerobot, "LeRobot's own chunk")
        difference, seconds = measure(kind, out / kind)
        found.append(at_most(name, difference, "1", target, f"from {whose}; ready in {seconds:.0f} s"))
    return found


def against_lerobot(kind: str, folder: Path) -> tuple[float, float]:
    """The largest difference between the served chunk and LeRobot's own, and s until the process was ready."""
    overlay = environment.overlay("lerobot")
    subprocess.run([sys.executable, "-I", str(BUILD), str(overlay), kind, str(folder)], check=True, capture_output=True)
    with np.load(folder / "expected.npz", allow_pickle=False) as given:
        inputs = {name: given[name] for name in given.files}
    action = inputs.pop("action")
    return asked(Request(str(folder / "policy"), SET, history="repeat"), inputs,
                 SENTENCES if kind == "smolvla" else None, action)


def against_kept(kind: str, folder: Path) -> tuple[float, float]:
    """:func:`against_lerobot`, from what the original code answered."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # of a clone: the tests write the folders that the original was given
    family = "pi" if kind.startswith("pi") else "openvla"
    tiny: Any = importlib.import_module(f"tests.policies.pretrained.tiny_{family}")
    action = np.array(json.loads(ORIGINALS.read_text())[KEPT[kind]], np.float32)
    if family == "pi":
        return asked(Request(str(tiny.folder(kind, folder)), tiny.SET), tiny.inputs(), tiny.SENTENCES, action)
    oft = kind == "openvla_oft"
    settings = Settings(**{**(tiny.PLAIN if kind == "openvla" else tiny.OFT), "center_crop": False})
    request = Request(str(tiny.folder(folder, oft)), tiny.SET, openvla=settings)
    return asked(request, tiny.inputs(2 if oft else 1, oft), tiny.SENTENCES, action)


def asked(
    request: Request, inputs: dict[str, np.ndarray], sentences: list[str] | None, action: np.ndarray
) -> tuple[float, float]:
    """The largest difference of the served chunk from ``action``, and s until the process was ready."""
    fields = tuple(Field(name, value.shape[1:], str(value.dtype)) for name, value in inputs.items())
    interface = Interface(fields, Field("action", action.shape[2:]), 20.0, sentences is not None)
    began = time.perf_counter()
    with Server.start(request, interface, Where(overlay=environment.overlay("lerobot"))) as server:
        seconds = time.perf_counter() - began
        got = server.ask(inputs, sentences, SEED)
    return float(np.abs(got - action).max()), seconds


class Nothing:
    """A model that costs nothing."""

    facts: dict[str, Any] = {}

    def check(self, interface: Interface) -> int:
        """50 rows."""
        return 50

    def infer(self, inputs: dict[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
        """Zeros."""
        return np.zeros((len(sentences or []), 50, 8), np.float32)


def channel_ms(count: int) -> float:
    """Median processor time, ms, of a question and its answer, both ends together."""
    ours, theirs = socket.socketpair()
    process = multiprocessing.get_context("fork").Process(target=serve, args=(theirs, ours), daemon=True)
    process.start()
    theirs.close()
    server = Server(None, ours, PICTURES, Where())
    inputs = {f.name: np.zeros((1, *f.shape), f.dtype) for f in PICTURES.inputs}
    times = []
    for _ in range(count):
        began = time.process_time()
        server.ask(inputs, SENTENCES[:1])
        times.append(time.process_time() - began)
    spent = answering(server, inputs)
    server.close()
    process.join()
    return 1e3 * (float(np.median(times)) + spent)


def answering(server: Server, inputs: dict[str, np.ndarray]) -> float:
    """Processor time, s, that the other end takes for an answer: it states its own clock as the seed's row."""
    first = server.ask(inputs, SENTENCES[:1])[0, 0, 0]
    last = [server.ask(inputs, SENTENCES[:1])[0, 0, 0] for _ in range(20)][-1]
    return float(last - first) / 20


def serve(link: socket.socket, other: socket.socket) -> None:
    """The other end: answers by its own processor time."""
    other.close()
    interface, count = agreed(Nothing(), link)
    try:
        while True:
            reply = chunk(Nothing(), interface, count, receive(link, Deadline(IDLE_S, "the client")))
            reply.arrays["action"][:] = time.process_time()
            send(link, reply, Deadline(IDLE_S, "the client"))
    except ChannelError:
        return
