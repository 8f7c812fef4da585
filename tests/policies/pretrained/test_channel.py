"""The channel: what is sent arrives; what breaks a rule, hangs or lies is an error in the stated time."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.pretrained.client import Request, Server, Where
from temporeal.policies.pretrained.serving import channel
from temporeal.policies.pretrained.serving.channel import ChannelError, Deadline, Message
from temporeal.policies.pretrained.serving.interface import Field, Interface, interface_of
from temporeal.policies.pretrained.serving.server import agreed, chunk, serve
from temporeal.robots.handed_over.files import Refused

INTERFACE = Interface((Field("observation.state", (3,), unit="rad"), Field("front", (4, 5, 3), "uint8")),
                      Field("action", (2,)), 20.0, True)
INPUTS = {"observation.state": np.arange(6, dtype=np.float32).reshape(2, 3), "front": np.zeros((2, 4, 5, 3), np.uint8)}


def soon() -> Deadline:
    """A deadline from now on."""
    return Deadline(5.0, "the peer")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


class Adder:
    """A model: row k is the sum of the state, plus k."""

    facts = {"kind": "adder"}

    def check(self, interface: Interface) -> int:
        if interface.rate_hz != 20.0:
            raise Refused("the model's rate is 20 Hz")
        return 4

    def infer(self, inputs: dict[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
        rows = inputs["observation.state"].sum(1)[:, None, None] + np.arange(4)[:, None] + np.zeros(2) + seed
        return rows.astype(np.float32)


def serving(link: socket.socket, answer: Callable[[Message, Message], None]) -> threading.Thread:
    """A server that agrees honestly and answers the first question by ``answer`` of the question and the honest reply.
    """
    def work() -> None:
        interface, rows = agreed(Adder(), link)
        asked = channel.receive(link, soon())
        answer(asked, chunk(Adder(), interface, rows, asked))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_arrays_arrive_as_they_were_sent(pair):
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1], "b": np.zeros((0, 4), np.uint8),
              "c": np.int32(7) * np.ones((), np.int32)}
    channel.send(pair[0], Message("infer", {"words": ["ä"]}, arrays), soon())
    found = channel.receive(pair[1], soon())
    assert (found.kind, found.fields) == ("infer", {"words": ["ä"]})
    for name, value in arrays.items():
        assert found.arrays[name].dtype == value.dtype
        np.testing.assert_array_equal(found.arrays[name], value)


def raw(kind: object = "infer", arrays: object = (), body: bytes = b"", magic: bytes = channel.MAGIC,
        header: bytes | None = None, size: int | None = None) -> bytes:
    """The bytes of a message, possibly one that breaks the rules."""
    text = json.dumps({"kind": kind, "fields": {}, "arrays": arrays}).encode() if header is None else header
    return channel.PREFIX.pack(magic, len(text), len(body) if size is None else size) + text + body


FLOATS = {"name": "a", "dtype": "float32", "shape": [2]}


@pytest.mark.parametrize(("data", "says"), [
    (raw(magic=b"HTTP"), "another protocol"),
    (raw(header=b"{" * 3000), "not JSON"),
    (raw(header=b'{"kind": "x", "fields": {"a": NaN}, "arrays": []}'), "NaN"),
    (raw(kind=3), "no kind"),
    (raw(arrays=[FLOATS], body=b"1234"), "states arrays of 8 bytes and sends 4"),
    (raw(arrays=[{**FLOATS, "dtype": "object"}], body=bytes(16)), "legal: a name, one of uint8"),
    (raw(arrays=[{**FLOATS, "shape": [-1]}]), "sizes"),
    (raw(arrays=[{**FLOATS, "shape": [2**20, 2**20]}]), "more than"),
    (raw(arrays=[FLOATS, FLOATS], body=bytes(16)), "states arrays"),
    (raw(size=channel.BODY + 1), "at most"),
    (channel.PREFIX.pack(channel.MAGIC, channel.HEADER + 1, 0), "at most"),
    (raw(arrays=[FLOATS], body=bytes(8))[:-3], "closed the channel after 5 of 8 bytes"),
])
def test_a_message_that_breaks_the_rules_is_refused(pair, data, says):
    pair[0].sendall(data)
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(ChannelError, match=says):
        channel.receive(pair[1], Deadline(2.0, "the peer"))


def test_types_that_are_no_plain_numbers_are_not_sent(pair):
    with pytest.raises(ChannelError, match="type object"):
        channel.send(pair[0], Message("infer", {}, {"a": np.array([None])}), soon())


def test_a_peer_that_trickles_is_late_at_the_deadline_not_at_each_byte(pair):
    def trickle() -> None:
        for byte in raw(arrays=[FLOATS], body=bytes(8)):
            time.sleep(0.05)
            try:
                pair[0].send(bytes([byte]))
            except OSError:
                return

    threading.Thread(target=trickle, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(ChannelError, match=r"did not answer within 0\.3 s"):
        channel.receive(pair[1], Deadline(0.3, "the peer"))
    assert time.monotonic() - began < 1.0


def client(link: socket.socket, answer_s: float = 2.0) -> Server:
    return Server(None, link, INTERFACE, Where(load_s=2.0, answer_s=answer_s))


def test_a_question_gets_its_chunk(pair):
    serving(pair[1], lambda asked, reply: channel.send(pair[1], reply, soon()))
    server = client(pair[0])
    assert (server.rows, server.facts) == (4, {"kind": "adder"})
    action = server.ask(INPUTS, ["push", "pull"], seed=1)
    np.testing.assert_array_equal(action[1], 13 + np.arange(4)[:, None] + np.zeros(2))


def changed(reply: Message, **fields: object) -> Message:
    return Message(reply.kind, {**reply.fields, **fields}, reply.arrays)


def with_action(reply: Message, action: np.ndarray, name: str = "action") -> Message:
    return Message(reply.kind, reply.fields, {name: action})


LIES = {
    "an old answer": (lambda r: changed(r, number=0), "stale chunk"),
    "another interface": (lambda r: changed(r, digest="0" * 64), "stale chunk"),
    "another shape": (lambda r: with_action(r, r.arrays["action"][:, :2]), "agreed was"),
    "another type": (lambda r: with_action(r, r.arrays["action"].astype(np.int32)), "agreed was"),
    "another name": (lambda r: with_action(r, r.arrays["action"], "joints"), "agreed was"),
    "not a number": (lambda r: with_action(r, r.arrays["action"] * np.float32("nan")), "not finite, in world 0"),
    "more than agreed": (lambda r: with_action(r, np.zeros((2, 5, 2), np.float32)), "at most .* 64 and"),
    "another kind": (lambda r: Message("ready", r.fields, r.arrays), "where 'chunk' was asked"),
    "an error": (lambda r: Message("error", {"message": "out of memory"}), "says: out of memory"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_server_gives_an_error_and_never_an_action(pair, lie):
    twist, says = LIES[lie]
    serving(pair[1], lambda asked, reply: channel.send(pair[1], twist(reply), soon()))
    server = client(pair[0])
    with pytest.raises(ChannelError, match=says):
        server.ask(INPUTS, ["push", "pull"])
    with pytest.raises(ChannelError, match="is closed"):  # what comes later cannot be taken for an answer
        server.ask(INPUTS, ["push", "pull"])


def test_a_hung_server_is_late_in_the_stated_time(pair):
    serving(pair[1], lambda asked, reply: time.sleep(3.0))
    server = client(pair[0], answer_s=0.2)
    began = time.monotonic()
    with pytest.raises(ChannelError, match=r"did not answer within 0\.2 s"):
        server.ask(INPUTS, ["push", "pull"])
    assert time.monotonic() - began < 1.0


def test_a_server_that_dies_is_gone_at_once(pair):
    serving(pair[1], lambda asked, reply: pair[1].close())
    with pytest.raises(ChannelError, match="closed the channel|is gone"):
        client(pair[0], answer_s=30.0).ask(INPUTS, ["push", "pull"])


@pytest.mark.parametrize(("inputs", "sentences", "says"), [
    ({**INPUTS, "front": INPUTS["front"][:, :3]}, ["a", "b"], r"agreed: uint8, N by \[4, 5, 3\]"),
    ({"front": INPUTS["front"]}, ["a", "b"], "agreed: observation.state, front"),
    ({**INPUTS, "front": INPUTS["front"][:1]}, ["a", "b"], "N by"),
    (INPUTS, None, "as many instructions"), (INPUTS, ["a"], "as many instructions"),
])
def test_a_server_refuses_a_question_beside_the_interface(inputs, sentences, says):
    asked = Message("infer", {"digest": INTERFACE.digest(), "number": 1, "seed": 0, "sentences": sentences}, inputs)
    with pytest.raises(ChannelError, match=says):
        chunk(Adder(), INTERFACE, 4, asked)


def test_a_server_answers_inferences_by_the_agreed_interface_only():
    fields = {"digest": INTERFACE.digest(), "number": 1, "seed": 0, "sentences": ["a", "b"]}
    for kind, digest in (("reset", INTERFACE.digest()), ("infer", "0" * 64)):
        with pytest.raises(ChannelError, match="no inference by the interface"):
            chunk(Adder(), INTERFACE, 4, Message(kind, {**fields, "digest": digest}, INPUTS))
    with pytest.raises(ChannelError, match=r"of shape \[2, 4, 2\], not \[2, 5, 2\]"):
        chunk(Adder(), INTERFACE, 5, Message("infer", fields, INPUTS))


def test_an_interface_is_what_its_hash_says():
    assert interface_of(INTERFACE.described(), INTERFACE.digest()) == INTERFACE
    action = {**INTERFACE.described()["action"], "unit": "m"}
    for change in ({"rate_hz": 25.0}, {"instruction": False}, {"action": action}):
        with pytest.raises(ChannelError, match="hash"):
            interface_of({**INTERFACE.described(), **change}, INTERFACE.digest())
    for stated in (3, {"inputs": 3}, {**INTERFACE.described(), "more": 1}, {**INTERFACE.described(), "instruction": 1},
                   {**INTERFACE.described(), "action": {**action, "more": 1}}):
        with pytest.raises(ChannelError, match="cannot be read"):
            interface_of(stated, INTERFACE.digest())


def test_a_client_of_another_version_is_refused(pair):
    hello = {"version": 2, "interface": INTERFACE.described(), "digest": INTERFACE.digest()}
    channel.send(pair[0], Message("hello", hello), soon())
    with pytest.raises(ChannelError, match="the client speaks version 2 of the protocol, this is 1"):
        agreed(Adder(), pair[1])


READY = {"version": channel.VERSION, "digest": INTERFACE.digest(), "rows": 4, "model": {}}


@pytest.mark.parametrize(("changes", "says"), [
    ({}, ""), ({"version": 2}, "the server speaks version 2"), ({"digest": "0" * 64}, "agreed to the interface 000000"),
    ({"rows": "4"}, "chunks of '4' rows"), ({"rows": 0}, "chunks of 0 rows"), ({"rows": 10_001}, "chunks of 10001"),
    ({"model": []}, "states chunks"),
])
def test_a_client_takes_no_other_agreement(pair, changes, says):
    channel.send(pair[1], Message("ready", {**READY, **changes}), soon())
    with pytest.raises(ChannelError, match=says) if says else contextlib.nullcontext():
        client(pair[0])


def test_what_a_model_raises_is_told(tmp_path, capsys):
    """An error of a library (here: memory) ends the server, and its client hears which it was."""
    class Full(Adder):
        def infer(self, inputs: dict[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
            raise MemoryError("no room for 9 GB")

    tmp_path.chmod(0o700)
    door = channel.listening(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link, pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel, "listening", lambda path: door)
        link.connect(str(tmp_path / "socket"))
        thread = threading.Thread(target=serve, args=(Full(), tmp_path / "socket"), daemon=True)
        thread.start()
        with pytest.raises(ChannelError, match="says: MemoryError: no room for 9 GB"):
            client(link).ask(INPUTS, ["push", "pull"])
        thread.join(2.0)
    assert "Traceback" in capsys.readouterr().err


def test_others_may_not_enter_the_folder_of_a_socket(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(ChannelError, match="mode 700"):
        channel.listening(tmp_path / "socket")
    tmp_path.chmod(0o700)
    with channel.listening(tmp_path / "socket"):
        assert (tmp_path / "socket").stat().st_mode & 0o777 == 0o600


def test_a_process_says_why_it_cannot_serve_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    model = tmp_path / "model"
    model.mkdir()
    (model / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ChannelError, match="only safetensors are taken"):
        Server.start(Request(str(model), "someone/pushes"), INTERFACE, Where(load_s=60.0))
    assert list(tmp_path.iterdir()) == [model]


def test_an_interpreter_that_is_none_is_named(tmp_path):
    with pytest.raises(ChannelError, match="cannot be started"):
        Server.start(Request(str(tmp_path), "x"), INTERFACE, Where(python=str(tmp_path / "python")))
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho no module named numpy >&2\nexit 5\n")
    script.chmod(0o755)
    with pytest.raises(ChannelError, match=r"(?s)ended with status 5.*no module named numpy"):
        Server.start(Request(str(tmp_path), "x"), INTERFACE, Where(python=str(script)))


def test_what_a_process_sees_of_ours(tmp_path, monkeypatch):
    """No search path of Python, no token."""
    script, seen = tmp_path / "python", tmp_path / "seen"
    script.write_text(f"#!/bin/sh\nenv > {seen}\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    with pytest.raises(ChannelError):
        Server.start(Request(str(tmp_path), "x"), INTERFACE, Where(python=str(script)))
    text = Path(seen).read_text()
    assert "secret" not in text and "PYTHONPATH" not in text and "HF_HUB_OFFLINE=1" in text
