"""Messages, episodes and weights over real sockets: bit for bit, or refused by the name of what is wrong."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.policies.robot_learning.deliveries import STEPS, TOKEN, agreed, bytes_of, episode

from temporeal.policies.robot_learning.learning.inbox import Inbox
from temporeal.policies.robot_learning.learning.journal import Journal
from temporeal.policies.robot_learning.wire import messages
from temporeal.policies.robot_learning.wire.client import BadEpisode, Client, Refused, Unreachable
from temporeal.policies.robot_learning.wire.messages import Message, MessageError, Published, decode, encode
from temporeal.policies.robot_learning.wire.security import Security, make_token, read_token, security
from temporeal.policies.robot_learning.wire.service import SERVICE, Service, serve
from temporeal.policies.runs.errors import BadInput

RNG = np.random.default_rng(3)


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    journal = Journal(tmp_path / "run" / "received.episodes")
    yield Inbox(journal, agreed())
    journal.close()


@pytest.fixture
def learner(inbox: Inbox) -> Iterator[str]:
    """The address of a learner's service."""
    weights = Published("d" * 64, encode(Message("weights", {"digest": "d" * 64}, {"a": np.ones(2, np.float32)})))
    server, port = serve("127.0.0.1:0", Security(TOKEN), Service(agreed(), inbox.keep, lambda: weights))
    yield f"127.0.0.1:{port}"
    server.stop(0.0).wait()


@pytest.fixture
def client(learner: str) -> Iterator[Client]:
    found = Client(learner, Security(TOKEN))
    yield found
    found.close()


def test_an_episode_arrives_bit_for_bit_and_once(client: Client, inbox: Inbox) -> None:
    assert client.hello(agreed().plain()) == agreed().digest()
    one = episode(RNG)
    assert client.deliver(one.id, bytes_of(one))
    assert not client.deliver(one.id, bytes_of(one)), "the second time it is known"
    (found,) = inbox.take(5.0)
    for name in ("obs", "action", "proposed", "command", "reward", "intervened"):
        assert getattr(found, name).tobytes() == getattr(one, name).tobytes(), name
        assert getattr(found, name).dtype == getattr(one, name).dtype
    assert all(found.signals[name].tobytes() == value.tobytes() for name, value in one.signals.items())
    assert (found.id, found.success, found.terminated, found.updates, found.late) == (
        one.id, one.success, one.terminated, 7, 1)
    assert inbox.take(0.0) == []


def test_the_same_identity_with_other_content_is_refused_by_name(client: Client, inbox: Inbox, tmp_path: Path) -> None:
    one = episode(RNG)
    other = replace(episode(RNG), id=one.id)
    assert client.deliver(one.id, bytes_of(one))
    with pytest.raises(BadEpisode, match=f"episode {one.id} is known with other content"):
        client.deliver(one.id, bytes_of(other))
    assert inbox.journal.count == 1
    inbox.journal.close()
    again = Inbox(Journal(inbox.journal.path), agreed())  # after a restart, too
    with pytest.raises(MessageError, match="known with other content"):
        again.keep(other, bytes_of(other))
    assert not again.keep(one, bytes_of(one))
    again.journal.close()


def test_weights_come_where_the_actor_has_others(client: Client) -> None:
    data = client.weights("")
    assert data is not None and decode(data, "it", "weights").arrays["a"].tolist() == [1.0, 1.0]
    assert client.weights("d" * 64) is None


@pytest.mark.parametrize("token", ["", "f" * 32, TOKEN[:-1], TOKEN + "0"])
def test_a_wrong_token_is_refused_at_every_call(learner: str, token: str) -> None:
    stranger = Client(learner, Security(token))
    for call in (lambda: stranger.hello(agreed().plain()), lambda: stranger.deliver("x", b"x"),
                 lambda: stranger.weights("")):
        with pytest.raises(Refused, match="token"):
            call()
    stranger.close()


def test_a_call_without_metadata_is_refused(learner: str) -> None:
    with grpc.insecure_channel(learner) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(f"/{SERVICE}/weights")(b"", timeout=10)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(("changes", "named"), [
    ({"interface": replace(agreed().interface, rate_hz=20.0)}, "interface.rate_hz is 50.0 at the learner and 20.0"),
    ({"interface": replace(agreed().interface, robot="other")}, "interface.robot"),
    ({"interface": replace(agreed().interface, signals={})}, "interface.signals.place is missing at the actor"),
    ({"task": {"name": "toy", "settings": {"gain": 2.0}}}, "task.settings.gain is 1.0 at the learner and 2.0"),
    ({"learner": {"algorithm": "sac", "normalization": "none"}}, "learner.normalization is not of the learner"),
    ({"judged": {"reward": "task", "success": "formula"}}, "judged.reward"), ({"observation": 4}, "observation is 3")])
def test_what_differs_is_named(client: Client, changes: dict[str, object], named: str) -> None:
    with pytest.raises(Refused, match=named):
        client.hello(agreed(**changes).plain())


def spoilt(**changes: object) -> bytes:
    return bytes_of(replace(episode(RNG), **changes))  # type: ignore[arg-type]


def test_what_rounding_makes_of_a_limit_is_taken(client: Client) -> None:
    one = replace(episode(RNG), command=np.full((4, 1), np.float32(2.0) + np.float32(1e-4)))
    assert client.deliver(one.id, bytes_of(one))


@pytest.mark.parametrize(("data", "named"), [
    (spoilt(agreement="0" * 64), "another agreement"),
    (spoilt(id="../../etc/passwd"), "no identity"),
    (spoilt(obs=np.zeros((5, 4), np.float32)), r"'obs' is float32 \[5, 4\], float32 \[5, 3\] is needed"),
    (spoilt(obs=np.zeros((5, 3), np.int32)), "'obs' is int32"),
    (spoilt(reward=np.full(4, np.nan, np.float32)), "'reward' is not finite"),
    (spoilt(action=np.full((4, 1), 1.5, np.float32)), r"action lies in \[-1, 1\]"),
    (spoilt(intervened=np.full(4, 2, np.uint8)), "intervened is 0 or 1"),
    (spoilt(obs=np.full((5, 3), 1e20, np.float32)), r"obs lies in \[-1e\+06, 1e\+06\], got 1e\+20 at \[0, 0\]"),
    (spoilt(reward=np.full(4, -1e20, np.float32)), "reward lies in .*got -1e"),
    (spoilt(command=np.full((4, 1), 1e30, np.float32)), "command .* lies in its limits, got 1e"),
    (spoilt(command=np.full((4, 1), -2.01, np.float32)), "command .* lies in its limits, got -2.01"),
    (spoilt(signals={**episode(RNG).signals, "place": np.full((5, 2), 1e7, np.float32)}), "signal.place lies in"),
    (spoilt(signals={"place": np.zeros((5, 2), np.float32)}), "'signal.eye_rgb' is missing"),
    (spoilt(signals={**episode(RNG).signals, "more": np.zeros(5, np.float32)}), "nobody asked for .* signal.more"),
    (bytes_of(episode(RNG, STEPS + 1)), f"steps is {STEPS + 1}; a whole number from 1 to {STEPS}"),
    (bytes_of(episode(RNG))[:-1], "cut short"), (bytes_of(episode(RNG)) + b"x", "bytes too many"),
    (b"", "sent 0 bytes"), (b"\x80\x04" + bytes(40), "another protocol"),
    (encode(Message("hello")), "kind 'hello' where 'episode'"),
    (struct.pack("<4sIQ", b"TPRC", 2, 1 << 40) + b"{}", "at most")])
def test_a_bad_episode_is_refused_by_name_and_not_kept(
    client: Client, inbox: Inbox, data: bytes, named: str
) -> None:
    with pytest.raises(BadEpisode, match=named):
        client.deliver("x", data)
    assert inbox.journal.count == 0


def test_an_oversized_message_is_refused_on_both_sides(
    client: Client, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    one = episode(RNG)
    small = Service(agreed(), inbox.keep, lambda: Published("", b""), largest=64)
    with pytest.raises(MessageError, match="at most 1,048,576, 64 and"):
        small.episode(bytes_of(one))
    with pytest.raises(MessageError, match="'episode' has a header"):
        encode(Message("episode", {}, {"a": np.zeros(messages.LARGEST // 4 + 1, np.float32)}))
    with pytest.raises(BadEpisode, match="(?i)larger than max|exceed"):  # beyond gRPC's own bound, before our checks
        client.call("episode", bytes(messages.LARGEST + messages.ROOM + 1))


def test_a_header_cannot_ask_for_memory() -> None:
    header = (b'{"kind": "episode", "fields": {}, "arrays": [{"name": "a", "dtype": "float32", '
              b'"shape": [1073741824, 4]}]}')
    with pytest.raises(MessageError, match=r"more than|states"):
        decode(struct.pack("<4sIQ", b"TPRC", len(header), 0) + header, "it", "episode")
    for bad in (b'{"kind": "episode"}', b"[1]", b'{"kind": "e", "fields": {}, "arrays": [{"name": "a", "dtype": "O", '
                b'"shape": []}]}', b"\xff"):
        with pytest.raises(MessageError):
            decode(struct.pack("<4sIQ", b"TPRC", len(bad), 0) + bad, "it", "episode")


def test_nobody_there_is_no_refusal() -> None:
    nobody = Client("127.0.0.1:9", Security(TOKEN), seconds=0.5)
    with pytest.raises(Unreachable, match="127.0.0.1:9"):
        nobody.weights("")
    nobody.close()


def test_a_disk_that_takes_no_more_is_no_acknowledgement(
    client: Client, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = episode(RNG)

    def full(data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(inbox.journal, "append", full)
        with pytest.raises(Unreachable, match="No space left"):
            client.deliver(one.id, bytes_of(one))
    assert client.deliver(one.id, bytes_of(one)), "it was not taken for one that is there"


def test_tokens_are_private_files(tmp_path: Path) -> None:
    make_token(tmp_path / "token")
    assert len(read_token(tmp_path / "token")) == 64
    with pytest.raises(FileExistsError):
        make_token(tmp_path / "token")
    (tmp_path / "token").chmod(0o640)
    with pytest.raises(BadInput, match="chmod 600"):
        read_token(tmp_path / "token")
    (tmp_path / "short").write_text("secret")
    (tmp_path / "short").chmod(0o600)
    with pytest.raises(BadInput, match="at least 32"):
        read_token(tmp_path / "short")


@pytest.mark.parametrize(("address", "here"), [
    ("127.0.0.1:1", True), ("localhost:1", True), ("[::1]:1", True), ("127.8.0.1:1", True), ("0.0.0.0:1", False),
    ("192.168.0.4:1", False), ("robot:1", False), ("127.0.0.1.evil.org:1", False)])
def test_plain_text_leaves_the_machine_only_where_it_is_said(tmp_path: Path, address: str, here: bool) -> None:
    make_token(tmp_path / "token")
    assert security(address, tmp_path / "token", None, True).tls is None
    if here:
        security(address, tmp_path / "token", None, False)
        return
    with pytest.raises(BadInput, match="plain text: tls=FOLDER"):
        security(address, tmp_path / "token", None, False)


def test_with_tls_only_who_is_certified_is_spoken_to(tmp_path: Path, inbox: Inbox) -> None:
    from tests.policies.robot_learning.certificates import authority, certify

    ours, theirs = authority("ours"), authority("theirs")
    for name, of, trusted in (("learner", ours, ours), ("actor", ours, ours), ("stranger", theirs, ours)):
        certify(tmp_path / name, name, of, trusted)
    server, port = serve("127.0.0.1:0", Security(TOKEN, tmp_path / "learner"), Service(
        agreed(), inbox.keep, lambda: Published("", b"")))
    one = episode(RNG)
    for secured, known in ((Security(TOKEN, tmp_path / "actor"), True), (Security(TOKEN, tmp_path / "stranger"), False),
                           (Security(TOKEN), False)):
        client = Client(f"localhost:{port}", secured, seconds=20.0 if known else 2.0)
        if known:
            assert client.deliver(one.id, bytes_of(one))
        else:
            with pytest.raises(Unreachable):
                client.deliver(one.id, bytes_of(one))
        client.close()
    server.stop(0.0).wait()
    assert inbox.journal.count == 1


def test_the_journal_knows_what_it_holds_and_cuts_a_torn_end(tmp_path: Path) -> None:
    path, some = tmp_path / "received.episodes", [bytes_of(episode(RNG)) for _ in range(3)]
    journal = Journal(path)
    assert list(journal.records()) == [] and [journal.append(data) for data in some] == [0, 1, 2]
    with pytest.raises(BadInput, match="another learner's"):
        Journal(path)
    journal.close()
    whole = path.read_bytes()
    for cut in (1, 31, len(some[2]), len(some[2]) + 40):
        path.write_bytes(whole[:-cut])
        again = Journal(path)
        assert list(again.records()) == some[:2] and again.torn > 0
        again.append(some[2])
        again.close()
        assert path.read_bytes() == whole
    at = len(whole) // 2
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    damaged = Journal(path)
    with pytest.raises(MessageError, match="damaged at byte"):
        list(damaged.records())
    damaged.close()


def test_what_could_not_be_written_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, one = Journal(tmp_path / "j"), bytes_of(episode(RNG))
    journal.append(one)

    def fails(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fails)
        with pytest.raises(OSError, match="No space"):
            journal.append(bytes_of(episode(RNG)))
    two = bytes_of(episode(RNG))
    journal.append(two)
    journal.close()
    again = Journal(tmp_path / "j")
    assert [hashlib.sha256(d).digest() for d in again.records()] == [hashlib.sha256(d).digest() for d in (one, two)]
    again.close()
