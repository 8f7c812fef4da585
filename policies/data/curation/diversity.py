"""How varied a dataset is, and what a policy could learn from it instead of the task (shortcut learning).

Y. Xing et al., "Shortcut Learning in Generalist Robot Policies: The Role of Dataset Diversity and Fragmentation"
(CoRL 2025, arXiv 2508.06426) name two causes: little diversity within sub-datasets, and disparity between them; both
let task-irrelevant factors predict what is to be done. Here each is a number with a known value in the cases that
matter:

* **diversity**: the Vendi score (Friedman and Dieng, TMLR 2023), exp of the entropy of the eigenvalues of K / n: the
  effective number of distinct items. n copies of one item have 1, n items far apart n;
* **disparity**: how well the sub-dataset of an episode is told from its start, by leave-one-out k-nearest neighbours,
  from 0 (chance) to 1 (always);
* **spurious correlation**: the same for instructions, and the share of the actions' variance that neighbours explain,
  from what has nothing to do with the task.

Each is compared with what it is when labels are shuffled: what is not above :data:`SURE` of those is chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from temporeal.policies.data.curation.copying import SOURCE
from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.interface import DataError
from temporeal.robots.signals import SignalSpec

Numbers = NDArray[np.float64]
MOST = 1000
"""Items that are compared with each other; more are drawn from."""
NEIGHBOURS = 5
SHUFFLES, SURE = 200, 0.99
CLEAR = 0.2
"""A disparity or correlation below this is small, even if it is no chance."""
FLOORS: Mapping[str, float] = {"m": 0.01, "rad": 0.02, "m/s": 0.02, "rad/s": 0.05, "wxyz": 0.02, "N": 0.05, "N m": 0.05}
"""By unit, what is told apart at least; chosen: what a robot's repeatability and sensors make of equal starts."""
SHARE_OF_RANGE = 0.05
"""Of a signal's range in the set: what is told apart otherwise."""


@dataclass(frozen=True)
class Finding:
    """One measure.

    Args:
        name: for machines.
        value: the number; chance: what shuffled labels give at most (:data:`SURE`), NaN where that means nothing.
        flagged: whether it is a weakness of the set.
        said: the conclusion in words.
    """

    name: str
    value: float
    chance: float
    flagged: bool
    said: str


# ---------------------------------------------------------------- measures


def vendi(items: Numbers) -> float:
    """The effective number of distinct ``items`` [n, F], which differ if they are about 1 apart.

    Kernel exp(-|x - y|^2 / 2). 1 for copies, n for items far apart.
    """
    if not len(items):
        return 0.0
    kernel = np.exp(-0.5 * squared_distances(items))
    values = np.linalg.eigvalsh(kernel / len(items))
    positive = values[values > 1e-12]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def effective(labels: Sequence[str]) -> float:
    """The effective number of different ``labels``: exp of their entropy."""
    _, counts = np.unique(labels, return_counts=True)
    share = counts / counts.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def squared_distances(items: Numbers) -> Numbers:
    """[n, n] between the rows of ``items``."""
    square = (items**2).sum(1)
    out: Numbers = np.maximum(square[:, None] + square - 2 * items @ items.T, 0.0)
    return out


def neighbours(items: Numbers, k: int = NEIGHBOURS) -> NDArray[np.int64]:
    """[n, k] the nearest other rows of each row of ``items``; equal distances in an order that says nothing."""
    distance = squared_distances(items)
    distance += 1e-9 * distance.max(initial=1.0) * np.random.default_rng(0).random(distance.shape)
    np.fill_diagonal(distance, np.inf)
    return np.argsort(distance, axis=1)[:, : min(k, len(items) - 1)]


def told(near: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """How well labels [n] are told by the majority of their neighbours ``near`` [n, k]: 0 chance, 1 always.

    Balanced over the labels, so that a frequent one counts no more than a rare one; below chance is 0.
    """
    count = int(labels.max()) + 1
    votes = np.stack([(labels[near] == label).sum(1) for label in range(count)], 1)
    right = votes.argmax(1) == labels
    share = float(np.mean([right[labels == label].mean() for label in range(count)]))
    return max(0.0, (share - 1 / count) / (1 - 1 / count)) if count > 1 else 0.0


def explained(near: NDArray[np.int64], values: Numbers) -> float:
    """The share of the variance of ``values`` [n, F] that the mean of their neighbours explains; at least 0."""
    total = ((values - values.mean(0)) ** 2).sum()
    left = ((values - values[near].mean(1)) ** 2).sum()
    return max(0.0, float(1 - left / total)) if total > 1e-6 * len(values) else 0.0


def agreement(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Normalized mutual information of labels [n]: 2 I(a; b) / (H(a) + H(b)); 0 independent, 1 the same."""
    table = np.zeros((int(a.max()) + 1, int(b.max()) + 1))
    np.add.at(table, (a, b), 1.0)
    joint = table / table.sum()

    def entropy(p: Numbers) -> float:
        known = p[p > 0]
        return float(-(known * np.log(known)).sum())

    left, right, both = entropy(joint.sum(1)), entropy(joint.sum(0)), entropy(joint)
    return 2 * (left + right - both) / (left + right) if left + right > 0 else 0.0


# ---------------------------------------------------------------- what is measured


def scaled(values: np.ndarray, spec: SignalSpec) -> Numbers:
    """A signal [n, F] in units of what is told apart: :data:`FLOORS`, or a share of its range in the set.

    A quaternion and its negative are one attitude: its w is not negative.
    """
    rows = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    if spec.unit == "wxyz":
        rows = np.where(rows[:, :1] < 0, -rows, rows)
    apart = np.maximum(SHARE_OF_RANGE * np.ptp(rows, axis=0), FLOORS.get(spec.unit, 1e-9))
    return rows / apart


def numbers_at(data: Dataset, rows: np.ndarray, names: Sequence[str] | None = None) -> Numbers:
    """The signals ``names`` (None: all that are numbers) of the samples ``rows`` [n], scaled: [n, F]."""
    specs = {name: spec for name, spec in data.interface.signals.items() if not layout.is_picture(spec)}
    chosen = [scaled(np.asarray(data.column(name))[rows], specs[name]) for name in (specs if names is None else names)]
    return np.concatenate(chosen, 1) if chosen else np.zeros((len(rows), 0))


def light(data: Dataset, rows: np.ndarray) -> dict[str, Numbers]:
    """By camera, the mean colour [n, 3] of the pictures at the samples ``rows``, a tenth of the brightest apart."""
    cameras = [name for name, spec in data.interface.signals.items() if layout.is_picture(spec)]
    return {f"light of {name}": data.frames(name, rows).reshape(len(rows), -1, 3).mean(1) / 25.5 for name in cameras}


def labels_of(words: Sequence[str]) -> NDArray[np.int64]:
    """Words as numbers from 0 on."""
    return np.unique(np.asarray(words), return_inverse=True)[1].astype(np.int64)


def drawn(count: int, seed: int) -> NDArray[np.int64]:
    """At most :data:`MOST` of ``count`` numbers."""
    if count <= MOST:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, MOST, replace=False))


# ---------------------------------------------------------------- the report


def report(data: Dataset, *, by: str = SOURCE, irrelevant: Sequence[str] = (), seed: int = 0) -> list[Finding]:
    """The findings on ``data``.

    Args:
        by: what divides the set into sub-datasets: a key of the episodes' ``info``, or ``language``.
        irrelevant: signals that have nothing to do with the task; besides them, where the robot's own signals are at
            the start, the light, and the sub-dataset.
    """
    if data.episodes < 2 * NEIGHBOURS:
        raise DataError(f"{data.folder}: {data.episodes} episodes say nothing of diversity; {2 * NEIGHBOURS} are "
                        "needed")
    if unknown := [name for name in irrelevant if name not in data.interface.signals]:
        raise DataError(f"{data.folder}: no signal {unknown[0]!r}; signals: {', '.join(data.interface.signals)}")
    chosen = drawn(data.episodes, seed)
    starts, ends = data.starts[:-1][chosen], data.starts[1:][chosen] - 1
    words = [data.records[k].language for k in chosen]
    groups = words if by == "language" else [str(data.records[k].info.get(by, "")) for k in chosen]
    out = [*spread_of(data, starts, ends, words, seed)]
    start = numbers_at(data, starts)
    if len(set(groups)) > 1:
        out.append(fragments(start, groups, by, seed))
    return out + shortcuts(data, chosen, words, groups, by, irrelevant, seed)


def spread_of(
    data: Dataset, starts: np.ndarray, ends: np.ndarray, words: Sequence[str], seed: int
) -> list[Finding]:
    """How many different starts, ends, states and instructions there are, in effect."""
    count, samples = len(starts), drawn(data.samples, seed)
    out = []
    for name, value, few in (("starts", vendi(numbers_at(data, starts)), min(10.0, 0.1 * count)),
                             ("ends", vendi(numbers_at(data, ends)), 0.0),
                             ("states", vendi(numbers_at(data, samples)), min(20.0, 0.05 * len(samples)))):
        of, low = len(samples) if name == "states" else count, value < few
        hint = {"starts": ": a policy may know the way from there alone; vary where episodes begin",
                "states": ": a policy that leaves these states is lost; record other ways and corrections"}
        out.append(Finding(f"diversity of {name}", value, np.nan, low,
                           f"{of} {name} are in effect {value:.1f} different ones{hint[name] if low else ''}"))
    kinds = effective(words)
    out.append(Finding("diversity of instructions", kinds, np.nan, False,
                       f"{len(set(words))} instructions, in effect {kinds:.1f}"))
    return out


def fragments(start: Numbers, groups: Sequence[str], by: str, seed: int) -> Finding:
    """How well sub-datasets are told apart by where their episodes start."""
    near, labels = neighbours(start), labels_of(groups)
    value, chance = told(near, labels), shuffled(lambda mixed: told(near, mixed), labels, seed)
    bad = value > max(chance, CLEAR)
    verdict = "the set is fragmented: a policy can tell them apart and learn one behaviour for each; let them overlap"
    return Finding("disparity of sub-datasets", value, chance, bad,
                   f"{len(set(groups))} sub-datasets (by {by}) are told apart by their starts with {value:.2f} "
                   f"(0 chance, 1 always){f': {verdict}' if bad else ': they overlap'}")


def shortcuts(
    data: Dataset, chosen: np.ndarray, words: Sequence[str], groups: Sequence[str], by: str, irrelevant: Sequence[str],
    seed: int,
) -> list[Finding]:
    """How well what is irrelevant predicts instruction and action."""
    starts = data.starts[:-1][chosen]
    own = robots_own(data)
    factors = {"start of the robot": numbers_at(data, starts, own)} if own else {}
    factors |= {name: numbers_at(data, starts, [name]) for name in irrelevant} | light(data, starts)
    out, labels = [], labels_of(words)
    if len(set(words)) > 1:
        out += [of_instruction(name, items, labels, seed) for name, items in factors.items() if items.shape[1]]
        if by != "language" and len(set(groups)) > 1:
            out.append(of_groups(labels_of(groups), labels, by, seed))
    acted = mean_actions(data, chosen)
    return out + [of_action(name, factors[name], acted, seed) for name in (*irrelevant, *light(data, starts))]


def robots_own(data: Dataset) -> list[str]:
    """The dataset's signals that its robot's sensors give; []: the robot is not known."""
    from temporeal.robots.registry import UnknownName
    from temporeal.robots.spec import load_robot, shipped

    if data.interface.robot not in shipped():
        return []
    try:
        robot = load_robot(data.interface.robot)
    except UnknownName:
        return []
    return [name for name in data.interface.signals if name in robot.signals]


def of_instruction(name: str, items: Numbers, labels: NDArray[np.int64], seed: int) -> Finding:
    """Whether ``items`` [n, F] tell the instruction."""
    near = neighbours(items)
    value, chance = told(near, labels), shuffled(lambda mixed: told(near, mixed), labels, seed)
    bad = value > max(chance, CLEAR)
    what = ("a policy need not listen to it; let it vary alike within every instruction" if bad else
            "nothing to be learned from it")
    return Finding(f"instruction by {name}", value, chance, bad,
                   f"{name} tells the instruction with {value:.2f} (0 chance, 1 always): {what}")


def of_groups(groups: NDArray[np.int64], labels: NDArray[np.int64], by: str, seed: int) -> Finding:
    """Whether each instruction is from a sub-dataset of its own."""
    value, chance = agreement(groups, labels), shuffled(lambda mixed: agreement(groups, mixed), labels, seed)
    bad = value > max(chance, CLEAR)
    what = ("instructions and sub-datasets go together: whatever differs between these stands for the instruction; "
            "record each instruction in each" if bad else "each has about all instructions")
    return Finding(f"instruction by {by}", value, chance, bad,
                   f"instruction and {by} have a normalized mutual information of {value:.2f}: {what}")


def of_action(name: str, items: Numbers, acted: Numbers, seed: int) -> Finding:
    """Whether ``items`` [n, F] tell what is done, ``acted`` [n, U]."""
    near, rng = neighbours(items), np.random.default_rng(seed)
    value = explained(near, acted)
    chance = float(np.quantile([explained(near, acted[rng.permutation(len(acted))]) for _ in range(SHUFFLES)], SURE))
    bad = value > max(chance, CLEAR)
    what = "a policy may act by it instead of the task; vary it" if bad else "the actions do not follow it"
    return Finding(f"action by {name}", value, chance, bad,
                   f"{name} explains {100 * value:.0f} % of the variance of the mean actions: {what}")


def mean_actions(data: Dataset, chosen: np.ndarray) -> Numbers:
    """[n, U] the mean command of each episode, in units of what is told apart: 1 % of the limits, or a share of the
    range in the set."""
    action = np.asarray(data.column(layout.ACTION), dtype=np.float64)
    sums = np.add.reduceat(action, data.starts[:-1], axis=0)
    mean = (sums / np.diff(data.starts)[:, None])[chosen]
    limits = np.array(data.interface.action.high) - np.array(data.interface.action.low)
    least = np.where(np.isfinite(limits), 0.01 * limits, 1e-9)
    out: Numbers = mean / np.maximum(SHARE_OF_RANGE * np.ptp(mean, axis=0), least)
    return out


def shuffled(measure: Callable[[NDArray[np.int64]], float], labels: NDArray[np.int64], seed: int) -> float:
    """What ``measure`` is at most (:data:`SURE`) when ``labels`` are shuffled: chance."""
    rng = np.random.default_rng(seed)
    return float(np.quantile([measure(rng.permutation(labels)) for _ in range(SHUFFLES)], SURE))
