"""What is compiled from several files is compiled again when one of them changes."""

from pathlib import Path
from types import ModuleType

import pytest

from temporeal.sim.stl.semantics.numba_cache import named_by_sources


def test_the_name_changes_with_the_sources_and_only_with_them(tmp_path: Path) -> None:
    source = tmp_path / "rows.py"
    module = ModuleType("rows")
    module.__file__ = str(source)

    def name_with(text: str) -> str:
        def interpreter() -> None:
            pass

        source.write_text(text)
        named_by_sources(interpreter, module)
        return interpreter.__qualname__

    first = name_with("a = 1\n")
    assert first == name_with("a = 1\n") and first.startswith("interpreter_")
    assert name_with("a = 2\n") != first


def test_interpreters_carry_the_digest_of_what_they_call() -> None:
    pytest.importorskip("numba")
    from temporeal.sim.stl.monitoring.kernels import compiled_kernels
    from temporeal.sim.stl.semantics.interpreter import run
    from temporeal.sim.stl.semantics.origin_interpreter import run_with_origins

    kernels = compiled_kernels()
    assert kernels is not None
    names = {f.py_func.__qualname__ for f in (run, run_with_origins, kernels.run_stream, kernels.run_bounds)}
    assert all("_" in name and len(name.rpartition("_")[2]) == 12 for name in names) and len(names) == 4
