"""Processor time and memory of running processes (Linux)."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_s(pid: int) -> float:
    """CPU time [s] that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> tuple[float, float]:
    """Memory [MB] of a process and its children, shared pages divided among those that share them: all of it, and what
    of it belongs to no file. That of files also grows when another process that shares it ends."""
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    size = {words[0]: float(words[1]) / 1024 for words in lines if words[0].startswith("Pss")}
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    every = [(size["Pss:"], size["Pss:"] - size["Pss_File:"]), *(memory_mb(int(child)) for child in children)]
    return sum(whole for whole, _ in every), sum(own for _, own in every)
