"""Settings of an identification, without what it computes with: `--help` shows them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Of an identification.

    Args:
        stretch_s: length of a stretch that the simulator flies from a measured state. shortest_s: flight that is
            needed. reference_v: voltage at which a command is a setpoint. steps: of the sampler; 0: none. known: by
            name, value and standard deviation that were measured otherwise.
    """

    stretch_s: float = 0.25
    shortest_s: float = 5.0
    reference_v: float = 3.8
    steps: int = 60
    seed: int = 0
    threads: int = 1
    known: tuple[tuple[str, float, float], ...] = ()

    def __post_init__(self) -> None:
        if not 0.02 <= self.stretch_s <= 5:
            raise ValueError(f"stretch_s is {self.stretch_s:g} s; 0.02 to 5 s are legal")
        if not (0 <= self.steps <= 100_000 and self.threads >= 1):
            raise ValueError(f"steps is {self.steps}, threads {self.threads}: 0 to 100,000 steps and a thread at least")
