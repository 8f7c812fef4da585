"""The study of 8 bits counts episodes one by one, and says which policies are missing."""

from __future__ import annotations

import pytest

from temporeal_benchmarks.vla.int8_study import error_of, judged


def test_a_loss_is_of_the_same_episodes() -> None:
    there, lacking = judged({"base": {"episodes": 200, "float32": 150, "int8": 148, "lost": 5, "gained": 3}})
    assert there.value == 1.0 and there.ok and "5 lost, 3 gained; 95 % [-1.8, 3.8]" in str(there.peer)
    assert lacking.value is None and lacking.ok is False and "int8-study" in str(lacking.peer)


def test_the_error_is_that_of_differences() -> None:
    apart = [1.0] * 5 + [-1.0] * 3 + [0.0] * 192  # lost, gained, the same
    mean = sum(apart) / 200
    assert error_of(5, 3, 200) == pytest.approx((sum((x - mean) ** 2 for x in apart) / 200 / 200) ** 0.5)
