"""One episode of a dataset as a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from temporeal.policies.cli.traces.table import Table


def read_episode(folder: Path, number: int, time: str) -> Table:
    """The signals of episode ``number``, and its time in seconds as the column ``time``; pictures cannot be read."""
    from temporeal.policies.data.curation.robustness import TIME, table_of
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.episodes.interface import DataError

    data = Dataset.open(folder)
    if not 0 <= number < data.episodes:
        raise DataError(f"{folder}: there is no episode {number}; it has {data.episodes}")
    table = table_of(data)
    begin, end = (int(k) for k in data.starts[number : number + 2])
    times = np.arange(end - begin, dtype=np.float64) * table.dt

    def load(name: str) -> np.ndarray:
        return times if name == TIME.name else np.asarray(data.column(name)[begin:end], dtype=np.float64)

    unread = {name: f"{name} is a picture" for name in data.interface.signals if name not in table.signals}
    return Table(f"{folder}: episode {number}", times, {**table.signals, TIME.name: TIME}, load,
                 lambda k, name: f"sample {k}, {name}", [time, *table.signals], unread=unread)
