"""Settings of an identification, without what it computes with: `--help` shows them."""

from __future__ import annotations

from dataclasses import dataclass

VOLTS = (1.0, 60.0)
"""Of batteries that quadrotors fly on."""
MOST_THREADS = 256


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
        if not VOLTS[0] <= self.reference_v <= VOLTS[1]:
            raise ValueError(f"reference_v (--voltage) is {self.reference_v:g} V; {VOLTS[0]:g} to {VOLTS[1]:g} V are "
                             "legal")
        if not 0 < self.shortest_s < float("inf"):
            raise ValueError(f"shortest_s is {self.shortest_s:g} s; more than 0 s is needed")
        for name, value, low, high in (("steps", self.steps, 0, 100_000), ("threads", self.threads, 1, MOST_THREADS),
                                       ("seed", self.seed, 0, 2**32 - 1)):
            if not low <= value <= high:
                raise ValueError(f"{name} (--{name}) is {value}; {low} to {high} are legal")
        names = [name for name, _, _ in self.known]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"--known {', '.join(twice)}: given twice; each parameter has one value")
