"""RECAP's labels of windows: whether what was done then is among the better things that the data do there.

Physical Intelligence 2025 ("pi*0.6", arXiv 2511.14759). A value V(o) is fitted to the return R that each sample's
episode went on to earn; a sample is positive where R - V is among the largest (eq. 3). The policy is told the label
and is asked for the positive one when it is deployed. No value is maximized, nothing is extrapolated. Here V reads all
numbers of the dataset, those too that the policy is not shown: it is needed in training only. S samples.

A return is, where each episode was judged, that of the paper: -1 for each step until success, and a step more than the
longest episode for a failure, in shares of that; else the sum of the rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.episodes.layout import REWARD
from temporeal.policies.nets.encoders import count, is_picture, is_words, vector
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.training.chunks.windows import Source, tensor

POSITIVE_SHARE, DROPOUT = 0.3, 0.3
"""Share of the samples that is positive, and share of the windows whose label is hidden (both as the paper's)."""
HIDDEN, UPDATES, BATCH, RATE = 128, 400, 512, 1e-3  # of the value's network: it takes seconds


def labels(data: Source, seed: int) -> Tensor:
    """1 or -1 for each sample [S] of ``data``."""
    if len(data.starts) < 3:
        raise DataError("algo.advantage: there is one episode, and none to compare it with")
    earned, seen = returns(data), numbers_of(data)
    fold = torch.from_numpy(np.repeat(np.arange(len(data.starts) - 1) % 2, np.diff(data.starts)))
    value = torch.zeros_like(earned)
    for part in (0, 1):  # each half's by the other: a network knows few episodes by heart, and nothing was better then
        value[fold == part] = fitted(seen[fold != part], earned[fold != part], seen[fold == part], seed)
    advantage = earned - value
    bound = advantage.sort().values[int((1.0 - POSITIVE_SHARE) * len(advantage))]
    return torch.where(advantage >= bound, 1.0, -1.0)


def returns(data: Source) -> Tensor:
    """What each sample's episode went on to earn [S]."""
    starts = np.asarray(data.starts)
    success = [record.success for record in getattr(data, "records", ())]
    if success and None not in success:
        if len(set(success)) == 1 and len(set(np.diff(starts))) == 1:
            raise DataError("algo.advantage: all episodes ended alike and are equally long, so that none is better")
        return of_success(starts, np.asarray(success, dtype=bool))
    reward = tensor(data.column(REWARD))
    if not bool(reward.isfinite().all()):
        raise DataError("algo.advantage: the dataset has neither rewards nor a verdict of each episode")
    total = torch.zeros(len(reward))
    for first, last in zip(starts[:-1], starts[1:]):
        total[first:last] = reward[first:last].flip(0).cumsum(0).flip(0)
    return total


def of_success(starts: np.ndarray, success: np.ndarray) -> Tensor:
    """The paper's return [S] of episodes of which it is known whether they succeeded."""
    lengths = np.diff(starts)
    left = np.concatenate([np.arange(length)[::-1] for length in lengths])
    failed = np.repeat(~success, lengths)
    longest = lengths.max()
    return torch.from_numpy(-(left + failed * (longest + 1.0)) / longest).float()


def numbers_of(data: Source) -> Tensor:
    """All numbers [S, F] of the dataset, normalized."""
    specs = tuple(spec for spec in data.interface.signals.values() if not is_picture(spec) and not is_words(spec))
    if not specs:
        raise DataError("algo.advantage: the value is learned of numbers, and the dataset has pictures alone")
    found: Mapping[str, Any] = {spec.name: tensor(data.column(spec.name)) for spec in specs}
    rows, normalizer = vector(specs, found), Normalizer(sum(map(count, specs)), limit=5.0)
    normalizer.update(moments(rows))
    scaled: Tensor = normalizer(rows)
    return scaled


def fitted(seen: Tensor, wanted: Tensor, asked: Tensor, seed: int) -> Tensor:
    """The value of the numbers ``asked`` [R, F]: least squares of ``wanted`` [S] on ``seen`` [S, F]."""
    generator = torch.Generator().manual_seed(seed)
    center, spread = wanted.mean(), wanted.std().clamp(min=1e-6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(seen.shape[1], HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(),
                            nn.Linear(HIDDEN, 1))
    adam = torch.optim.Adam(net.parameters(), RATE)
    for _ in range(UPDATES):
        rows = torch.randint(len(seen), (min(BATCH, len(seen)),), generator=generator)
        loss = (net(seen[rows])[:, 0] - (wanted[rows] - center) / spread).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        found: Tensor = net(asked)[:, 0] * spread + center
    return found
