"""The process of sbi: neural posterior estimation (NPE) of parameters from what flights show."""

from __future__ import annotations

import os
import time
import warnings
from contextlib import redirect_stdout
from io import StringIO
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from temporeal_benchmarks.peers.process import serve

warnings.simplefilter("ignore")
torch.set_num_threads(1)

from sbi.inference import NPE  # type: ignore[import-not-found]  # noqa: E402

STATE: dict[str, Any] = {}


def train(data: str, seed: int) -> dict[str, float]:
    """NPE with sbi's defaults of theta [N, Q], of a standard normal prior, given x [N, X], in an NPZ file
    (its absolute path): seconds of the processor and epochs."""
    torch.manual_seed(seed)
    with np.load(data, allow_pickle=False) as given:
        theta, x = (torch.as_tensor(given[name], dtype=torch.float32) for name in ("theta", "x"))
    prior = torch.distributions.MultivariateNormal(torch.zeros(theta.shape[1]), torch.eye(theta.shape[1]))
    began = time.process_time()
    learner = NPE(prior=prior)
    with redirect_stdout(StringIO()):  # a line for each epoch
        density = learner.append_simulations(theta, x).train()
    STATE["posterior"] = learner.build_posterior(density)
    return {"seconds": time.process_time() - began, "epochs": float(learner.summary["epochs_trained"][-1])}


def quantiles(x: list[list[float]], at: list[float], draws: int) -> list[list[list[float]]]:
    """[N, K, Q] of the posterior of each of N flights at K shares."""
    found = []
    for each in torch.tensor(x, dtype=torch.float32):
        samples = STATE["posterior"].sample((draws,), x=each, show_progress_bars=False)
        found.append(torch.quantile(samples, torch.tensor(at), dim=0).tolist())
    return found


if __name__ == "__main__":
    with TemporaryDirectory() as folder:  # it leaves a folder of logs where it is
        os.chdir(folder)
        serve([train, quantiles])
