"""Commands of a few episodes that lie far from all others: they decide what the rest is scaled by, and it is learned
that much more coarsely."""

from __future__ import annotations

import warnings

from torch import Tensor

from temporeal.policies.training.chunks.windows import Windows, base

MOST = 0.98  # of a command's values lie within its usual reach
FAR = 8.0  # times the usual reach: well-behaved demonstrations have up to 4
FEW = 0.05  # share of the episodes: what more of them do is no accident


def warn(data: Windows, relative: str) -> None:
    """Say which components of the commands, less what they are ``relative`` to, a few episodes stretch the scale of."""
    usual, furthest, episodes = reaches(data, relative)
    names = data.interface.action.components or tuple(map(str, range(len(usual))))
    found = [f"{name}: {MOST:.0%} within {near:.3g} of their middle, the furthest, of episodes {listed(where)}, at "
             f"{far:.3g}" for name, near, far, where in zip(names, usual.tolist(), furthest.tolist(), episodes)
             if where]
    if found:
        warnings.warn(f"a few episodes stretch what commands {data.interface.action.name} are scaled by, and all "
                      f"others are learned that much more coarsely ({'; '.join(found)}). Look at these episodes, and "
                      "leave them out where they are faults: temporeal data filter SET --without N,N --out NEW",
                      stacklevel=2)


def listed(numbers: list[int]) -> str:
    """The first of them."""
    return ", ".join(map(str, numbers[:5])) + (" and more" if len(numbers) > 5 else "")


def reaches(data: Windows, relative: str) -> tuple[Tensor, Tensor, list[list[int]]]:
    """Of each component [U]: the usual and the furthest distance from the middle, and the episodes that go far, if
    they are few; a component that hardly moves otherwise has none."""
    command = data.command[data.at]
    command = command - base(data.numbers[relative][data.at], command.shape[1]) if relative else command
    apart = (command - command.median(0).values).abs()
    rank = min(int(MOST * len(apart)), len(apart) - 1)
    usual, furthest = apart.sort(0).values[rank], apart.amax(0)
    _, episode = data.last.unique(return_inverse=True)
    total, found = int(episode.max()) + 1, list[list[int]]()
    for k in range(command.shape[1]):
        beyond = episode[apart[:, k] > FAR * usual[k]].unique().tolist()
        found.append(beyond if 0 < usual[k] and len(beyond) <= FEW * total else [])
    return usual, furthest, found
