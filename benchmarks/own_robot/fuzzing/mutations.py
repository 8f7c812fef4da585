"""Seeded changes of files: bits, lengths, values of trees, archives, and what a file is.

Everything that would give somebody else power is among the values: programs, classes, variables of the environment,
paths that lead out, references without end, sizes that no memory has.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from temporeal.robots.artifact.manifest import canonical

SECRET = "TEMPOREAL_FUZZ_SECRET"  # a variable of the environment that no message may show the value of
CANARY = "code-was-run"  # a file that code in a file would make
TRICKS = (
    "../outside/secret.txt", "../../outside/secret.yaml", "/etc/passwd", "/dev/zero", "~/.ssh/id_rsa", "..", ".", "",
    "file:///etc/passwd", "\\\\host\\share", "C:\\x.xml", "../outside/robot.xml", "../../../outside/robot.xml",
    "/proc/self/environ", "a\0b", "x" * 5000)
WORDS = (
    f"${{oc.env:{SECRET}}}", "${oc.decode:1}", "${seed}", "${oc.env:HOME}", "???", "os.system", "__import__('os')",
    "{{7*7}}", "</script><script>", "%s%n", "\ud800", "é" * 9, "nan", "-", "null", "my_task.py", "../my_task.py",
    "isaacgym")
NUMBERS = (
    0, 1, -1, 2, 7, 255, 2**31, 2**53, 2**63 - 1, 2**63, -2**63, 10**30, 10**9, 100_000_000, 0.0, -0.0, 1e-300, 1e308,
    -1e308, 1e9, float("nan"), float("inf"), True, False, None)
CLASSES = ("_target_", "_partial_", "_args_", "__class__", "python", "robot", "shape", "name", "allow_pickle")


class Bomb:
    """Unpickled, it makes the file ``mark``."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.mark}",))


# ---- trees


def value(rng: random.Random, depth: int = 0) -> Any:
    """Any value: of another type, of another size, or one that means something."""
    kind = rng.randrange(8 if depth < 2 else 4)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind < 4:
        return rng.choice((*TRICKS, *WORDS))
    if kind == 4:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 5:
        return {rng.choice((*CLASSES, *WORDS)): value(rng, depth + 1) for _ in range(rng.randrange(3))}
    if kind == 6:
        return nested(rng.choice((70, 900)), rng.random() < 0.5)
    return {"_target_": "os.system", "_args_": [f"touch {CANARY}"]}


def nested(depth: int, lists: bool) -> Any:
    """Lists or mappings in each other."""
    out: Any = 1
    for _ in range(depth):
        out = [out] if lists else {"a": out}
    return out


def change_tree(tree: Any, rng: random.Random) -> Any:
    """``tree`` with one value changed, added, removed or moved; in place."""
    places = list(holders(tree))
    if not places:
        return value(rng)
    holder = rng.choice(places)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    what = rng.randrange(6)
    if what == 0 and isinstance(holder, dict):
        holder[rng.choice((*CLASSES, *WORDS))] = value(rng)
    elif keys and what == 1:
        del holder[rng.choice(keys)]
    elif keys and what == 2:
        holder[rng.choice(keys)] = holder[rng.choice(keys)]
    elif keys:
        holder[rng.choice(keys)] = value(rng)
    return tree


def holders(tree: Any) -> list[Any]:
    """All lists and mappings in ``tree``."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (dict, list)):
            found.append(node)
            waiting += node.values() if isinstance(node, dict) else node
    return found


# ---- bytes and texts


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """``data`` with bits turned over, or cut, doubled, filled."""
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 8, 64, 512))
    what = rng.randrange(6)
    if what == 0 and data:
        out = bytearray(data)
        for _ in range(rng.choice((1, 3, 20))):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
        return bytes(out)
    if what == 1:
        return data[:at]
    if what == 2:
        return data[:at] + data[at + size :]
    if what == 3:
        return data[:at] + data[at : at + size] + data[at:]
    if what == 4:
        return data[:at] + rng.choice((b"\0", b"\xff", b"[", b"{", b"\n")) * rng.choice((1, 8, 5000)) + data[at:]
    return data[:at] + rng.choice((2**63, 2**31, 10**10, 2**64 - 1)).to_bytes(8, "little") + data[at + 8 :]


TENFOLD = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefghi", "bcdefghij"))
YAML_TRICKS = (
    f"x: !!python/object/apply:os.system ['touch {CANARY}']\n", "x: !!python/name:os.system\n{}\n", "a: &a [*a]\n",
    TENFOLD, "a: &a {x: 1}\nb: &b {<<: [*a, *a, *a, *a]}\nc: &c {<<: [*b, *b, *b, *b]}\n", "[" * 3000, "{a: " * 900,
    "- " * 2000 + "x", "? [a]\n: b\n", "a: 2001-99-99\n", f"a: {'9' * 5000}\n", "a: 1e400\n", "a: !!binary x\n",
    "a: 190:20:30\n", "%YAML 9.9\n---\n", "a: b: c\n", "\t\n", "--- 1\n--- 2\n", 'a: "\\x00"\n', "!!set {a, b}\n",
    "<<: 3\n", "a: !!int x\n", "a: .nan\nb: .inf\n")


def change_yaml(text: str, rng: random.Random) -> str:
    """A YAML text with another value, or with one of YAML's own tricks before, after or in place of it."""
    if rng.random() < 0.6:
        tree = yaml.safe_load(text)
        for _ in range(rng.choice((1, 1, 2, 4))):
            tree = change_tree(tree, rng)
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    trick = rng.choice(YAML_TRICKS)
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines) + 1)
    return rng.choice((trick, trick + text, text + trick, "".join([*lines[:at], trick, *lines[at:]])))


def change_json(data: bytes, rng: random.Random) -> bytes:
    """JSON with other values."""
    tree = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        tree = change_tree(tree, rng)
    return json.dumps(tree).encode()


# ---- archives


@lru_cache(maxsize=1)
def zeros() -> bytes:
    """300 MB of zeros, packed."""
    import zlib

    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    return b"".join([packer.compress(bytes(1 << 20)) for _ in range(300)]) + packer.flush()


def change_npz(data: bytes, rng: random.Random, mark: Path) -> bytes:
    """An NPZ archive with another member, or changed as bytes."""
    if rng.random() < 0.3:
        return change_bytes(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice([*held, "x.npy", "../outside/x.npy"])
    held[name] = member(rng, held.get(name, b""), mark)
    out = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    return lying(out.getvalue(), rng) if rng.random() < 0.2 else out.getvalue()


def member(rng: random.Random, content: bytes, mark: Path) -> bytes:
    """Another content of a member of an NPZ archive."""
    what = rng.randrange(7)
    if what == 0:
        out = io.BytesIO()
        np.lib.format.write_array(out, np.array([Bomb(mark)], dtype=object), allow_pickle=True)
        return out.getvalue()
    if what == 1:
        return pickle.dumps(Bomb(mark))
    if what == 2:
        shape = rng.choice((
            "(10000000000,)", "(9999999999999999999,)", "(-1,)", "(2,)*9", "(0,)", "((" * 400, "(1e9,)"))
        kind = rng.choice(("<f4", "|O", "<U100000000", "<M8[s]", "V9", "x"))
        text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + content[80:]
    if what == 3:
        out = io.BytesIO()
        shape = rng.choice(((), (3,), (1, 1), (0,), (20,), (7, 3)))
        number, kind = rng.choice((0.0, 1e38, np.nan, np.inf)), rng.choice((np.float32, np.float64))
        np.lib.format.write_array(out, np.full(shape, number, kind))
        return out.getvalue()
    if what == 4:
        return bytes(rng.choice((1 << 20, 40 << 20)))
    return change_bytes(content, rng)


def lying(data: bytes, rng: random.Random) -> bytes:
    """An archive whose directory states other sizes."""
    at = data.rfind(b"PK\x01\x02")
    size = rng.choice((0, 1, 2**32 - 2, 5_000_000_000 % 2**32)).to_bytes(4, "little")
    return data[: at + 24] + size + data[at + 28 :] if at >= 0 else data


def bomb_of(name: str) -> bytes:
    """An archive with one member that unpacks to 300 MB."""
    content, crc, size = zeros(), 0, 300 << 20
    head = (20).to_bytes(2, "little") + bytes(2) + (8).to_bytes(2, "little") + bytes(4) + crc.to_bytes(4, "little")
    sizes = len(content).to_bytes(4, "little") + size.to_bytes(4, "little") + len(name).to_bytes(2, "little")
    local = b"PK\x03\x04" + head + sizes + bytes(2) + name.encode() + content
    entry = b"PK\x01\x02" + bytes([20, 0]) + head + sizes + bytes(16) + name.encode()
    end = b"PK\x05\x06" + bytes(4) + b"\1\0\1\0" + len(entry).to_bytes(4, "little") + len(local).to_bytes(4, "little")
    return local + entry + end + bytes(2)


# ---- files


def change_file(file: Path, rng: random.Random, outside: Path | None) -> None:
    """Another kind of file in its place. ``outside``: None for a file that its reader names, which may be a link."""
    targets = [Path("/dev/zero"), file]
    if outside is not None:
        targets += [outside / "secret.txt", outside / "secret.yaml", Path("/etc/passwd")]
    file.unlink()
    what = rng.randrange(6)
    if what == 0:
        os.mkfifo(file)
    elif what == 1:
        file.mkdir()
    elif what == 2:
        file.write_bytes(b"")
    elif what < 5:
        file.symlink_to(rng.choice(targets))


Change = Callable[[bytes, random.Random], bytes]


def rewrite(file: Path, rng: random.Random, change: Change) -> None:
    """``file`` with its content changed; as bytes, where an earlier change left nothing else of it."""
    data = file.read_bytes()
    try:
        file.write_bytes(change(data, rng))
    except Exception:  # parsers of what is broken by now raise anything
        file.write_bytes(change_bytes(data, rng))


def as_bytes(change: Callable[[str, random.Random], str]) -> Change:
    """A change of texts as one of bytes."""
    return lambda data, rng: change(data.decode(), rng).encode(errors="surrogatepass")


def reseal(artifact: Path) -> None:
    """Write the digests anew, as whoever makes an artifact can: only what reads on meets the change."""
    file = artifact / "manifest.json"
    if not file.is_file():
        return
    try:
        content = json.loads(file.read_bytes())
        for name in [name for name in content["files"] if (artifact / name).is_file()]:
            content["files"][name] = hashlib.sha256((artifact / name).read_bytes()).hexdigest()
        content.pop("sha256", None)
        content["sha256"] = hashlib.sha256(canonical(content).encode()).hexdigest()
        file.write_text(json.dumps(content))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return  # it is not there to be sealed any more
