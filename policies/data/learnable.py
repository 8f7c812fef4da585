"""What must hold of a dataset before a learner trusts it: its own interface, even times, numbers that can be summed.

`temporeal data check` reads every value and says all that is wrong; this is the part that is cheap enough for each
training. Errors name episode and index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from temporeal.policies.data.episodes import checking
from temporeal.policies.data.episodes.interface import DataError

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.dataset import Dataset

ADVICE = "`temporeal data check` finds and quarantines such episodes"


def require_sound(dataset: Dataset) -> None:
    """Refuse a set without its interface, and episodes whose times or numbers are not theirs."""
    if checking.lost_interface(dataset):
        raise DataError(f"{dataset.folder}: {checking.LOST_INTERFACE}")
    for episode in suspects(dataset):
        record = dataset.records[episode]
        rows = {key: np.asarray(dataset.column(key))[record.start:record.start + record.length]
                for key in dataset.columns if key in ("timestamp", "episode_index")}
        found = [*checking.of_indices(record, rows), *checking.of_times(
            rows["timestamp"].astype(np.float64), dataset.interface.rate_hz)]
        for _, what, index in found:
            where = "" if index is None else f", index {index}"
            raise DataError(f"{dataset.folder}: episode {episode}{where}: {what}; {ADVICE}")


def suspects(dataset: Dataset) -> Iterator[int]:
    """Episodes that may be wrong, by one look at the columns: :mod:`checking` judges them."""
    if "timestamp" not in dataset.columns or not dataset.samples:
        return
    of = np.repeat(np.arange(dataset.episodes), np.diff(dataset.starts))
    period = 1.0 / dataset.interface.rate_hz
    uneven = ~(np.abs(np.diff(dataset.column("timestamp").astype(np.float64)) - period) <= checking.TOLERANCE * period)
    odd = np.zeros(dataset.samples, bool)
    odd[1:] = uneven & (of[1:] == of[:-1])
    if "episode_index" in dataset.columns:
        odd |= np.asarray(dataset.column("episode_index")) != np.array([r.index for r in dataset.records])[of]
    yield from np.unique(of[odd]).tolist()


def require_numbers(values: Tensor, name: str, where: str, starts: np.ndarray) -> None:
    """Refuse ``values`` [samples, ...] of episodes that begin at ``starts`` where one is NaN, infinite or huge."""
    bad = unusable(values, 1)
    if bool(bad.any()):
        sample = int(bad.int().argmax())
        episode = int(np.searchsorted(starts, sample, side="right")) - 1
        raise refusal(values[sample], name, f"{where}episode {episode}, index {sample - int(starts[episode])}")


def unusable(values: Tensor, axes: int) -> Tensor:
    """Whether something of each sample is NaN, infinite or huge: the first ``axes`` of ``values`` stay."""
    ok: Tensor = (values.abs() <= checking.LARGEST).reshape(*values.shape[:axes], -1).all(-1)
    return ~ok


def refusal(sample: Tensor, name: str, where: str) -> DataError:
    """The error for a ``sample`` that is unusable."""
    numbers = sample.reshape(-1)
    component = int((~(numbers.abs() <= checking.LARGEST)).int().argmax())
    return DataError(f"{where}: {name}, component {component}, is {float(numbers[component]):g}; finite numbers up to "
                     f"{checking.LARGEST:g} are learned from; {ADVICE}")
