"""Episodes of one dataset written to another: the part that filter, relabel, mirror, merge and split share.

Pictures that are kept as video are decoded and encoded again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DIFFERS, SEEING, DataError, Interface, require_same
from temporeal.policies.data.episodes.writer import DatasetWriter

Progress = Callable[[int, int], None]
ORIGIN, SOURCE = "origin", "source"
"""Keys of an episode's ``info``: which recorded episode it was made of, and the set that it came from."""


def write(
    out: Path, interface: Interface, episodes: Iterable[Episode], what: str, progress: Progress | None = None,
    count: int = 0,
) -> int:
    """``episodes`` as the new dataset ``out``, all or nothing; how many. ``what`` was done, for people to read in its
    ``about``."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} is there already: curation writes a new folder")
    done = [*interface.about.get("curation", ()), what]

    def counted() -> Iterator[Episode]:
        for number, episode in enumerate(episodes, 1):
            yield episode
            if progress is not None:
                progress(number, max(count, number))

    try:
        with DatasetWriter(out, replace(interface, about={**interface.about, "curation": done})) as writer:
            return writer.add_many(counted())
    except BaseException:  # a part of the set would be taken for all of it
        shutil.rmtree(out, ignore_errors=True)
        raise


def own_interface(*sets: Dataset) -> Interface:
    """The interface of a set that is made of ``sets``: theirs; where nobody knows the action's limits (sets of other
    programs), the range of the data is taken, and ``about`` says so."""
    interface = replace(sets[0].interface, about=common_about(sets))
    low, high = np.array(interface.action.low), np.array(interface.action.high)
    unknown = ~np.isfinite(low) | ~np.isfinite(high)
    if not unknown.any() or not sum(data.samples for data in sets):
        return interface
    actions = [np.asarray(data.column(layout.ACTION)) for data in sets if data.samples]
    least, most = (np.array([end(a, axis=0) for a in actions]) for end in (np.min, np.max))
    low, high = np.where(unknown, least.min(0), low), np.where(unknown, most.max(0), high)
    high = np.where(high > low, high, low + np.maximum(1e-3, 1e-3 * np.abs(low)))
    action = replace(interface.action, low=tuple(low.tolist()), high=tuple(high.tolist()))
    return replace(interface, action=action, about={**interface.about, "action_limits": "the range of the data"})


def common_about(sets: Sequence[Dataset]) -> dict[str, Any]:
    """What the first of ``sets`` is about. ``differs`` names the settings that are not the same in all of them; of
    these, :data:`SEEING` are left out: who learns where things are in pictures must not take one set's camera for all.
    """
    abouts = [data.interface.about for data in sets]
    stated = [found if isinstance(found := about.get("settings"), dict) else {} for about in abouts]
    names = {key for other in stated for key in (*stated[0], *other) if other.get(key) != stated[0].get(key)}
    names |= {key for about in abouts if isinstance(found := about.get(DIFFERS), list) for key in map(str, found)}
    if not names:
        return dict(abouts[0])
    kept = {key: value for key, value in stated[0].items() if key not in SEEING or key not in names}
    return {**abouts[0], "settings": kept, DIFFERS: sorted(names)}


def originals(data: Dataset, chosen: Iterable[int]) -> Iterator[Episode]:
    """The episodes ``chosen``, each with the name of what it was recorded as."""
    for number in chosen:
        episode = data.episode(int(number))
        yield replace(episode, info={ORIGIN: f"{data.folder.name}:{number}", **episode.info})


def require_episodes(sets: Iterable[Dataset]) -> None:
    """An error where one of ``sets`` is empty: what is merged with it would lack what somebody counts on."""
    for data in sets:
        if not data.episodes:
            raise DataError(f"{data.folder} has no episodes: its writer was stopped before the first was whole, or a "
                            "filter kept none. Make it anew, or leave it out")


def merged(sets: list[Dataset]) -> Iterator[Episode]:
    """The episodes of all ``sets``, which must be of one interface, with the name of the set that each came from."""
    names = [data.folder.name for data in sets]
    for k, data in enumerate(sets):
        require_same(sets[0].interface, data.interface, f"{data.folder} (beside {sets[0].folder})")
        name = data.folder.name if names.count(data.folder.name) == 1 else f"{data.folder.name}-{k}"
        for episode in originals(data, range(data.episodes)):
            yield replace(episode, info={SOURCE: name, **episode.info})
