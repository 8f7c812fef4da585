"""Machine code is made once for a processor, and what is not whole, or not ours, is not run."""

import ctypes
import os
from pathlib import Path

import pytest

from sim import jit

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
    code, engine = jit.function(text, "twice", (ctypes.c_void_p, ctypes.c_double))
    code(ctypes.byref(out), x)
    return out.value


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "machine_code", lambda *_: pytest.fail("compiled"))


def test_the_second_time_nothing_is_compiled(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert twice(1.5) == 3.0
    assert len(list(home.iterdir())) == 1 and home.stat().st_mode & 0o777 == 0o700
    forbid(monkeypatch)
    assert twice(4.0) == 8.0


def test_functions_of_the_library_are_found_in_code_that_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        out = ctypes.c_float()
        code, engine = jit.function(COSINE, "cosine", (ctypes.c_void_p, ctypes.c_float), ("cosf",))
        code(ctypes.byref(out), 0.0)
        assert out.value == 1.0
        forbid(monkeypatch)


def test_another_text_processor_or_pass_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert twice(1.0) == 2.0 and twice(1.0, TWICE.replace("2.0", "3.0")) == 3.0
    names = {jit.key(TWICE, ()), jit.key(COSINE, ()), jit.key(TWICE, ("sroa",))}
    monkeypatch.setattr(jit, "features", lambda: "+none")
    assert len(names | {jit.key(TWICE, ())}) == 4


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:50] + bytes([b[50] ^ 1]) + b[51:]])
def test_a_damaged_file_is_made_anew(home: Path, damage) -> None:
    twice(1.0)
    (file,) = home.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert twice(2.5) == 5.0
    assert file.read_bytes() == whole


def test_where_others_can_write_nothing_is_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twice(1.0)
    (file,) = home.iterdir()
    assert jit.kept(file) is not None
    home.chmod(0o777)
    assert jit.kept(file) is None
    home.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: home.stat().st_uid + 1)
    assert jit.kept(file) is None


def test_without_a_place_to_keep_it_code_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # not a folder
    assert twice(1.5) == 3.0


def test_what_was_not_used_for_longest_goes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "MOST", 2)
    home.mkdir(parents=True, mode=0o700)
    for age, name in enumerate(("new", "older", "oldest")):
        jit.keep(home / name, b"code")
        os.utime(home / name, (1e9 - age, 1e9 - age))
    jit.keep(home / "newest", b"code")
    assert {file.name for file in home.iterdir()} == {"newest", "new"}
