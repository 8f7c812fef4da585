"""Memory: what forward and backward of an until over the whole trace need at their peak.

``python -m temporeal_benchmarks.stl_engine.memory`` prints ours [B]: it is measured in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from temporeal.sim.stl.language.constructors import until
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal_benchmarks.peers.process import Peer, peak_beyond
from temporeal_benchmarks.peers.translate import to_stlcgpp
from temporeal_benchmarks.rows import Row, at_most, not_measured
from temporeal_benchmarks.stl_engine.formulas import DT, X, Y, as_lists, random_signals
from temporeal_benchmarks.stl_engine.peers import NOT_INSTALLED

MEMORY = 64e6  # B, target


def memory_rows(lengths: Sequence[int], peer_at_hand: bool) -> list[Row]:
    """Peak memory of forward and backward of ``x U[0,T-1] y``, each in a process of its own; stlcg++ with masks."""
    done = subprocess.run([sys.executable, "-m", __name__], check=True, capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"})
    rows = [at_most("memory.until.T1000.N64", float(done.stdout), "B", MEMORY)]
    if not peer_at_hand:
        names = [f"memory.stlcgpp.until.T{length}.N1" for length in (*lengths, 1000)]
        return rows + [not_measured(name, "B", None, NOT_INSTALLED) for name in names]
    for length in lengths:
        with Peer("stlcgpp") as peer:
            tree = to_stlcgpp(until(X > 0.0, 0, length - 1, Y > 0.0), DT)
            theirs = float(peer.ask("memory", tree=tree, signals=as_lists(random_signals(length, 1), 1)))
        rows.append(Row(f"memory.stlcgpp.until.T{length}.N1", theirs, "B", peer="with masks"))
    guessed = theirs * (1000 / lengths[-1]) ** 3
    remark = f"with masks, extrapolated from T = {lengths[-1]} with the cube of T, the size of its tensors"
    return [*rows, Row("memory.stlcgpp.until.T1000.N1", guessed, "B", peer=remark)]


def needed_memory(length: int = 1000, worlds: int = 64) -> int:
    """Bytes beyond the signals that forward and backward of an until over the whole trace need, at their peak."""
    import torch

    def pass_over(data: Mapping[str, Any], samples: int) -> None:
        robustness(until(X > 0.0, 0, samples - 1, Y > 0.0), data, DT)[0].sum().backward()

    def tensors(samples: int) -> dict[str, Any]:
        signals = random_signals(samples, worlds)
        return {name: torch.from_numpy(values).requires_grad_() for name, values in signals.items()}

    torch.set_num_threads(1)
    pass_over(tensors(20), 20)
    data = tensors(length)
    return peak_beyond(lambda: pass_over(data, length))


if __name__ == "__main__":
    print(needed_memory())
