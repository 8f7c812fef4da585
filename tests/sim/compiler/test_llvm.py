"""Machine code is made once for a processor, and what is not whole, or not ours, is not run."""

import ctypes
import os
from pathlib import Path

import pytest

from temporeal.sim.compiler import llvm

TWICE = """
define void @twice(ptr %out, double %x) {
  %y = fmul double %x, 2.0
  store double %y, ptr %out
  ret void
}
"""
COSINE = """
declare float @cosf(float)
define void @cosine(ptr %out, float %x) {
  %y = call float @cosf(float %x)
  store float %y, ptr %out
  ret void
}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "temporeal" / "code"


def twice(x: float, text: str = TWICE) -> float:
    out = ctypes.c_double()
    code, engine = llvm.function(text, "twice", (ctypes.c_void_p, ctypes.c_double))
    code(ctypes.byref(out), x)
    return out.value


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "machine_code", lambda *_: pytest.fail("compiled"))


def test_the_second_time_nothing_is_compiled(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert twice(1.5) == 3.0
    assert len(list(home.iterdir())) == 1 and home.stat().st_mode & 0o777 == 0o700
    forbid(monkeypatch)
    assert twice(4.0) == 8.0


def test_functions_of_the_library_are_found_in_code_that_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        out = ctypes.c_float()
        code, engine = llvm.function(COSINE, "cosine", (ctypes.c_void_p, ctypes.c_float), ("cosf",))
        code(ctypes.byref(out), 0.0)
        assert out.value == 1.0
        forbid(monkeypatch)


def test_another_text_processor_or_pass_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert twice(1.0) == 2.0 and twice(1.0, TWICE.replace("2.0", "3.0")) == 3.0
    names = {llvm.key(TWICE, ()), llvm.key(COSINE, ()), llvm.key(TWICE, ("sroa",))}
    monkeypatch.setattr(llvm, "features", lambda: "+none")
    assert len(names | {llvm.key(TWICE, ())}) == 4


def test_files_are_read_from_a_medium_that_cannot_be_written_to(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twice(1.0)

    def read_only(*_, **__) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", read_only)
    forbid(monkeypatch)
    assert twice(1.5) == 3.0


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:50] + bytes([b[50] ^ 1]) + b[51:]])
def test_a_damaged_file_is_made_anew(home: Path, damage) -> None:
    twice(1.0)
    (file,) = home.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert twice(2.5) == 5.0
    assert file.read_bytes() == whole


@pytest.mark.parametrize("whose", ["anybody's", "another's", "a link's"])
def test_where_others_can_write_nothing_is_read_written_or_deleted(
    home: Path, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice(1.0)
    (file,) = home.iterdir()
    assert llvm.kept(home, file.name) is not None
    if whose == "anybody's":
        home.chmod(0o777)
    elif whose == "another's":
        monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    else:
        home.rename(home.parent / "elsewhere")
        home.symlink_to(home.parent / "elsewhere")
    monkeypatch.setattr(llvm, "MOST", 0)
    assert llvm.kept(home, file.name) is None
    assert twice(2.0, TWICE.replace("2.0", "3.0")) == 6.0
    assert [found.name for found in home.iterdir()] == [file.name]


def test_without_a_place_to_keep_it_code_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # not a folder
    assert twice(1.5) == 3.0


def test_a_user_without_a_home_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")  # not absolute: as if there were none
    monkeypatch.setattr(llvm.Path, "home", homeless)
    assert llvm.folder() is None and twice(1.5) == 3.0
    assert not list(tmp_path.iterdir())


def test_what_was_not_used_for_longest_goes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "MOST", 2)
    home.mkdir(parents=True, mode=0o700)
    (home / "folder").mkdir()
    new, older, oldest, newest = (64 * letter for letter in "abcd")
    for age, name in enumerate((new, older, oldest)):
        llvm.keep(home, name, b"code")
        os.utime(home / name, (1e9 - age, 1e9 - age))
    (home / "notes").touch()
    llvm.keep(home, newest, b"code")
    assert {file.name for file in home.iterdir()} == {newest, new, "folder", "notes"}
