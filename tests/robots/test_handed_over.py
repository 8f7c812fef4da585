"""What is handed over is read within bounds: kinds and sizes of files, depth of texts, what archives unpack to."""

from __future__ import annotations

import io
import json
import os
import socket
import sqlite3
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from temporeal.robots.handed_over import arrays, bags, files, texts
from temporeal.robots.handed_over.files import MIB, Refused
from temporeal.robots.handed_over.robots import named_robot
from temporeal.robots.spec import load_robot

SOON = 1.0  # s, for a refusal


@pytest.fixture(autouse=True)
def at_once() -> Any:
    """Every case of this file ends soon."""
    began = time.process_time()
    yield
    assert time.process_time() - began < 2 * SOON


# ---- files


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(str(path))


@pytest.mark.parametrize(("make", "named"), [
    (make_pipe, "a pipe"), (make_socket, "a socket"), (Path.mkdir, "a folder"),
    (lambda path: path.symlink_to("/dev/zero"), "a device")])
def test_only_regular_files_are_read(
    make: Callable[[Path], None], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would block, or never end, is refused before it is opened."""
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    file = Path("file")
    make(file)
    with pytest.raises(Refused, match=f"file is {named}; a regular file is needed"):
        files.read(file)


def test_large_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """The size counts, not what is there: this one has a terabyte of nothing."""
    file = tmp_path / "large"
    with file.open("wb") as out:
        out.truncate(1 << 40)
    with pytest.raises(Refused, match=r"large has 1,099,511,627,776 bytes; at most 1,073,741,824 are read"):
        files.read(file)
    file.write_bytes(b"1234")
    assert files.read(file, 4) == b"1234"
    with pytest.raises(Refused, match="has 4 bytes; at most 3 are read"):
        files.read(file, 3)


def test_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    """A link within the folder is followed, one out of it is not, however it is written."""
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "artifact"
    (folder / "part").mkdir(parents=True)
    (folder / "own").write_text("mine")
    (folder / "link").symlink_to("own")
    assert files.read(folder / "link", within=folder) == b"mine"
    (folder / "out").symlink_to("../secret")
    (folder / "part" / "loop").symlink_to("../../secret")
    for name in ("out", "part/loop", "../secret"):
        with pytest.raises(Refused, match="leads out of"):
            files.read(folder / name, within=folder)
    (folder / "self").symlink_to("self")
    with pytest.raises((Refused, OSError), match="leads nowhere|levels of symbolic links"):
        files.read(folder / "self", within=folder)


@pytest.mark.parametrize("name", [
    "../x", "/etc/passwd", "a/../../x", "~/x", "C:\\x", "\\\\host\\x", "", "a\0b", 7, None])
def test_names_of_files_are_of_the_folder(name: object, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="a path inside the folder is needed"):
        files.member(tmp_path, name)
    assert files.member(tmp_path, "meshes/a.stl") == tmp_path / "meshes/a.stl"


# ---- texts


@pytest.mark.parametrize("text", [
    "[" * 3000, "{a: " * 900, "- " * 2000 + "x", "a: " + "[" * 65 + "]" * 65])
def test_yaml_that_is_nested_deep_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="nested too deeply, more than 64 levels"):
        texts.from_yaml(text, "f.yaml")


def test_yaml_that_refers_to_itself_unfolds_to_little() -> None:
    """References take no room in PyYAML, but in whatever copies their values afterwards."""
    tenfold = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi"))
    with pytest.raises(Refused, match=r"more than 100,000 values, references unfolded"):
        texts.from_yaml(tenfold, "f.yaml")
    with pytest.raises(Refused, match="refers to what it is in"):
        texts.from_yaml("a: &a [*a]", "f.yaml")
    assert texts.from_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: *a", "f.yaml") == {
        "a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": {"x": 1}}


@pytest.mark.parametrize("text", [
    "x: 2001-99-99", f"x: {'9' * 5000}", "x: !!python/name:os.system", "a: b: c", "? [a]\n: b"])
def test_what_yaml_cannot_say_is_an_error_of_yaml(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        texts.from_yaml(text, "f.yaml")


NUMBERS = ("3e-05", "1e5", "1.5e5", "-2E-3", "+4e+2", ".5e3", "1.e-5", "3.0e-05", "1.5e+5")
WORDS = ("1e", "e5", "1e5a", "0x1e5", "1e1000", "7e123456", "1_0e3", "1-e5", "a1e5")


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_are_read_as_json_and_yaml_1_2_read_them(text: str) -> None:
    """PyYAML takes what has no dot, or no sign after the e, for a text."""
    for where in (f"a: {text}", f"a: [{text}, 0.5]", f"a: {{b: {text}}}"):
        value = texts.from_yaml(where, "mine.yaml")["a"]
        value = value["b"] if isinstance(value, dict) else value
        assert (value[0] if isinstance(value, list) else value) == float(text)
    assert texts.from_yaml(f"'{text}'", "it") == text  # in quotes it is what it says


@pytest.mark.parametrize("text", WORDS)
def test_what_only_looks_like_a_number_stays_what_it_was(text: str) -> None:
    assert texts.from_yaml(f"a: {text}", "it") == yaml.safe_load(f"a: {text}")


@pytest.mark.parametrize("value", [*NUMBERS, *WORDS, 3e-05, 1e300, 5, True, "on", None, "1.5", [1e-7]])
def test_what_is_written_is_read_as_it_was(value: Any) -> None:
    read = texts.from_yaml(yaml.dump({"a": value}, Dumper=texts.Dumper), "it")["a"]
    assert read == value and type(read) is type(value)


def test_both_loaders_agree() -> None:
    """libyaml's and PyYAML's own, both with the numbers of YAML 1.2."""
    class Pure(yaml.SafeLoader):
        """PyYAML's own."""

    Pure.add_implicit_resolver("tag:yaml.org,2002:float", texts.FLOAT, list("0123456789"))
    text = "a: [1, 2.5, true, null, x, 1e3, 0x1f]\nb: {c: 'd', e: \"f\\n\"}\n"
    assert texts.from_yaml(text, "f", Pure) == texts.from_yaml(text, "f")


@pytest.mark.parametrize(("text", "why"), [
    ("[" * 900 + "]" * 900, "nested too deeply"), ("[" * 100_000, "nested too deeply"), ("[NaN]", "JSON has no NaN"),
    ("[1e999]", "not finite"), (f"[{'9' * 30}]", "64 bits"), ("{", "not JSON"), (b"\xff", "not JSON")])
def test_json_is_finite_and_flat(text: str | bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        texts.from_json(text, "f.json")
    assert texts.from_json('{"a": [1, 2.5, -9223372036854775808]}', "f.json") == {"a": [1, 2.5, -(2**63)]}


def test_xml_is_bounded_and_reads_no_other_file(tmp_path: Path) -> None:
    """Deep nesting would end the process of whoever walks it; an external entity would read any file."""
    from xml.etree.ElementTree import ParseError

    with pytest.raises(Refused, match="nested too deeply"):
        texts.from_xml(b"<a>" * 1000 + b"</a>" * 1000, "m.xml")
    with pytest.raises(Refused, match=r"more than 200,000 elements"):
        texts.from_xml(b"<a>" + b"<b/>" * 200_001 + b"</a>", "m.xml")
    (tmp_path / "secret").write_text("secret")
    entity = f'<!DOCTYPE a [<!ENTITY s SYSTEM "file://{tmp_path}/secret">]><a>&s;</a>'
    with pytest.raises(ParseError, match="undefined entity"):
        texts.from_xml(entity.encode(), "m.xml")
    laughs = "<!DOCTYPE a [<!ENTITY b0 'ha'>" + "".join(
        f"<!ENTITY b{k + 1} '{f'&b{k};' * 10}'>" for k in range(9)) + "]><a>&b9;</a>"
    with pytest.raises(ParseError, match="amplification"):
        texts.from_xml(laughs.encode(), "m.xml")


# ---- archives


def packed(size: int) -> bytes:
    """An NPZ archive with one array of ``size`` bytes, all zero."""
    out = io.BytesIO()
    np.savez_compressed(out, a=np.zeros(size, np.uint8))
    return out.getvalue()


def stating(data: bytes, size: int) -> bytes:
    """``data``, an archive, whose directory states another size of its last member."""
    at = data.rfind(b"PK\x01\x02") + 24
    return data[:at] + size.to_bytes(4, "little") + data[at + 4 :]


def test_an_archive_that_unpacks_to_much_is_refused_before_it_is() -> None:
    """By its directory; one that lies about it gives no byte more than it states."""
    with pytest.raises(Refused, match=r"unpacks to 1 members of 4,000,000,000 bytes; at most 10,000 members and"):
        arrays.read_npz(stating(packed(10_000), 4_000_000_000), "f.npz")
    with pytest.raises(Refused, match="cannot be unpacked|no plain array"):
        arrays.read_npz(stating(packed(32 * MIB), 100), "f.npz")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.npy", bytes(MIB))
    with pytest.raises(Refused, match="packed otherwise than NumPy packs"):
        arrays.read_npz(out.getvalue(), "f.npz")


@pytest.mark.parametrize("header", [
    "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000,), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", "((((", "__import__('os')", ""])
def test_an_array_is_as_large_as_its_bytes(header: str) -> None:
    """A header that states more, or objects, is refused before its memory is taken."""
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(8)
    with pytest.raises(Refused, match="no plain array"):
        arrays.array(content, "a")


def test_arrays_come_back() -> None:
    given = {"a": np.arange(6.0).reshape(2, 3), "t": np.array("text"), "e": np.zeros((0, 3)), "s": np.float32(2)}
    out = io.BytesIO()
    np.savez_compressed(out, **given)  # type: ignore[arg-type]
    found = arrays.read_npz(out.getvalue())
    assert all(np.array_equal(found[name], value) and found[name].dtype == np.asarray(value).dtype
               for name, value in given.items())


# ---- bags


def bag(folder: Path, **about: Any) -> Path:
    """A folder with the description of a bag."""
    folder.mkdir()
    (folder / bags.METADATA).write_text(yaml.safe_dump({"rosbag2_bagfile_information": {
        "version": 9, "storage_identifier": "mcap", "relative_file_paths": ["bag.mcap"], **about}}))
    return folder


@pytest.mark.parametrize("name", ["../secret.mcap", "/etc/passwd", "link.mcap"])
def test_a_bag_names_files_of_its_own_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret.mcap").write_text("secret")
    folder = bag(tmp_path / "bag", relative_file_paths=[name])
    (folder / "link.mcap").symlink_to("../secret.mcap")
    with pytest.raises(Refused, match="inside the folder|leads out of"):
        bags.check_bag(folder)


def test_a_bag_is_made_of_regular_files(tmp_path: Path) -> None:
    folder = bag(tmp_path / "bag")
    os.mkfifo(folder / "bag.mcap")
    with pytest.raises(Refused, match=r"bag\.mcap is a pipe"):
        bags.check_bag(folder)


def test_a_chunk_unpacks_to_what_it_states() -> None:
    """rosbags unpacks whatever comes; here a chunk has a bound, and no more than it states is unpacked."""
    lz4 = pytest.importorskip("lz4.frame")
    from rosbags.rosbag2 import reader, storage_mcap

    bags.bound_unpacking()
    zstd = storage_mcap.zstd
    for name, pack in (("zstd", zstd.compress), ("lz4", lz4.compress)):
        unpack, data = storage_mcap.DECOMPRESSORS[name], pack(bytes(8 * MIB))
        assert unpack(data, 8 * MIB) == bytes(8 * MIB)
        with pytest.raises(Refused, match="unpacks to more than the 100 bytes that it states"):
            unpack(data, 100)
        with pytest.raises(Refused, match=r"unpacks to 5,000,000,000 bytes; at most"):
            unpack(data, 5_000_000_000)
    assert reader.zstd.decompress(zstd.compress(b"message")) == b"message"


@pytest.mark.parametrize("change", [
    "CREATE VIEW messages2 AS SELECT * FROM messages", "CREATE TRIGGER t AFTER INSERT ON messages BEGIN SELECT 1; END",
    "CREATE TABLE c (id INTEGER, data BLOB GENERATED ALWAYS AS (zeroblob(1000000000)) VIRTUAL)",
    "CREATE VIRTUAL TABLE v USING fts5(x)"])
def test_a_recording_in_tables_holds_no_program(change: str, tmp_path: Path) -> None:
    file = tmp_path / "bag.db3"
    with sqlite3.connect(file) as base:
        base.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    bags.check_bag(file)
    with sqlite3.connect(file) as base:
        base.execute(change)
    with pytest.raises(Refused, match="a recording has"):
        bags.check_bag(file)


def test_packed_files_of_a_bag_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rosbags.rosbag2 import storage_mcap

    monkeypatch.setattr(bags, "UNPACKED", MIB)
    folder = bag(tmp_path / "bag", compression_mode="FILE", compression_format="zstd",
                 relative_file_paths=["bag.mcap.zstd"])
    (folder / "bag.mcap.zstd").write_bytes(storage_mcap.zstd.compress(bytes(4 * MIB)))
    with pytest.raises(Refused, match=r"unpacks to more than 1,048,576 bytes"):
        bags.check_bag(folder)


# ---- robots


def test_a_robot_is_named_below_the_working_directory_or_in_the_users_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = "<mujoco><worldbody><body><joint name='a'/><geom size='1'/></body></worldbody></mujoco>"
    here, lab = tmp_path / "here", tmp_path / "lab"
    for folder in (here, lab):
        folder.mkdir()
        (folder / "arm.xml").write_text(model)
    monkeypatch.chdir(here)
    assert named_robot("franka").name == "franka"
    assert named_robot("arm.xml").signals["joint_pos"].shape == (1,)
    for elsewhere in ("../lab/arm.xml", str(lab / "arm.xml"), "/etc/passwd.xml", "a\0.xml"):
        with pytest.raises(Refused, match="neither below the working directory nor|no path that can be followed"):
            named_robot(elsewhere)
    load_robot(lab / "arm.xml")  # a script that named it goes on with its run
    assert named_robot(str(lab / "arm.xml")).name == str(lab / "arm.xml")
    monkeypatch.setattr("temporeal.robots.handed_over.robots.LOADED", set())
    monkeypatch.setenv("TEMPOREAL_PATH", str(lab))
    assert named_robot(str(lab / "arm.xml")).name == str(lab / "arm.xml")


def test_a_manifest_nested_900_deep_is_refused(tmp_path: Path) -> None:
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal.robots.artifact.manifest import MANIFEST, ArtifactError

    deep: Any = 1
    for _ in range(900):
        deep = {"a": deep}
    (tmp_path / MANIFEST).write_text(json.dumps({"training": deep}))
    with pytest.raises(ArtifactError, match=r"nested too deeply.*What to do: copy the artifact again, or export it"):
        load_manifest(tmp_path)
