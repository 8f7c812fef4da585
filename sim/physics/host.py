"""Tensors as numpy arrays on the host."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def float64(value: Tensor) -> np.ndarray:
    """``value`` as a float64 array."""
    array: np.ndarray = torch.as_tensor(value).detach().to(torch.float64).cpu().numpy()
    return array
