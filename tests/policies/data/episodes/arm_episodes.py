"""Episodes of an arm with a camera, whose every value is known from their number."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.signals import SignalSpec, schema

ARM = Interface(
    "arm", schema(SignalSpec("joint_pos", (7,), "rad"), SignalSpec("height", (), "m", "w"),
                  SignalSpec("touch", (2,), dtype="bool"), SignalSpec("grid", (2, 3), dtype="int32")),
    ActionSpec("joint_vel", (-1.0,) * 7, (1.0,) * 7, "rad/s"), 20.0, task_action=3, task="reach",
    simulator="mujoco 4.0.0")
SEEING = Interface("arm", {**ARM.signals, "front": SignalSpec("front", (32, 48, 3), dtype="uint8")}, ARM.action, 20.0)


def episode(number: int, face: Interface = ARM, final: bool = True) -> Episode:
    """5 to 9 steps."""
    rng = np.random.default_rng(number)
    steps = 5 + number % 5
    samples = steps + final
    signals = {"joint_pos": rng.normal(size=(samples, 7)).astype(np.float32),
               "height": rng.normal(size=samples).astype(np.float32), "touch": rng.random((samples, 2)) > 0.5,
               "grid": rng.integers(-9, 9, (samples, 2, 3)).astype(np.int32)}
    if "front" in face.signals:
        signals["front"] = np.tile((np.arange(samples) * 20 + number).astype(np.uint8)[:, None, None, None],
                                   (1, 32, 48, 3))
    return Episode(
        signals, rng.uniform(-1, 1, (steps, 7)).astype(np.float32),
        rng.uniform(-1, 1, (steps, 3)).astype(np.float32) if face.task_action else None,
        rng.normal(size=steps).astype(np.float32), terminated=number % 2 == 0, success=(None, True, False)[number % 3],
        language=f"task {number % 2}", info={"seed": number})


def written(folder: Path, count: int = 6, face: Interface = ARM, **options) -> Dataset:
    """A set of the first episodes, in one file."""
    with DatasetWriter(folder, face, **options) as writer:
        writer.add_many(episode(k, face) for k in range(count))
    return Dataset.open(folder)


def assert_same(found: Episode, wanted: Episode, near: int = 0) -> None:
    """Both episodes are equal, pictures up to ``near``."""
    for name, values in wanted.signals.items():
        if name == "front":
            assert np.abs(found.signals[name].astype(int) - values).max() <= near
        else:
            np.testing.assert_array_equal(found.signals[name], values)
            assert found.signals[name].dtype == values.dtype
    for name in ("action", "policy_action", "reward"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    for name in ("terminated", "success", "language", "info"):
        assert getattr(found, name) == getattr(wanted, name)
