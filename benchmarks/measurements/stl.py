"""``temporeal bench stl``: how fast formulas are scored, differentiated and monitored, against rtamt and stlcg++."""

from __future__ import annotations

from pathlib import Path

from temporeal_benchmarks.machine import one_core
from temporeal_benchmarks.options import PARTS_HELP
from temporeal_benchmarks.options import parts as asked_parts
from temporeal_benchmarks.rows import Row
from temporeal_benchmarks.stl_engine.formulas import WORLDS
from temporeal_benchmarks.stl_engine.gpu import gpu
from temporeal_benchmarks.stl_engine.memory import memory_rows
from temporeal_benchmarks.stl_engine.online import online
from temporeal_benchmarks.stl_engine.peers import peer_row, peers_at_hand
from temporeal_benchmarks.stl_engine.whole_traces import offline

HELP = (
    "STL formulas G = G[0,T-1] x, FG = F[0,T/2] G[0,T/4] y, Uw = x U[0,50] y and ALL, their conjunction, on traces of "
    "T samples of 4096 worlds, float32, robustness at every sample: signal-timesteps per CPU-second on one core, "
    "forward and with the gradient; peak memory of an until over the whole trace; online monitors with windows of 200 "
    "samples; operators on a GPU against a copy. Peers: rtamt, its pure Python package, and stlcg++ (make peers), in "
    "the same rounds, on fewer signals; stlcg++ with its masks and with its recurrent operators, of which the faster "
    "one is compared with. Medians of interleaved rounds, once the values agree"
)
OPTIONS = {"parts": PARTS_HELP}
NARROWING = ("parts",)


def run(quick: bool, *, out: Path | None = None, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    wanted = asked_parts(parts)
    return [*(on_a_cpu(quick) if "cpu" in wanted else ()), *(gpu() if "gpu" in wanted else ())]


def on_a_cpu(quick: bool) -> list[Row]:
    """All on one core."""
    rounds = 3 if quick else 9
    with one_core(), peers_at_hand() as peers:
        rows = [Row("settings.worlds", WORLDS, "worlds"), Row("settings.dtype", None, peer="float32"),
                Row("settings.rounds", rounds), *(peer_row(name, peer) for name, peer in peers.items())]
        rows += offline(peers, rounds, quick)
        rows += online(peers["rtamt"], rounds)
    return rows + memory_rows((100, 200) if quick else (100, 200, 400), peers["stlcgpp"] is not None)
