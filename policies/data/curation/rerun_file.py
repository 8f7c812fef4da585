"""Episodes as a rerun recording (.rrd), for Rerun's viewer. The package rerun-sdk is optional."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes import layout
from temporeal.policies.data.episodes.dataset import Dataset

TIMELINE = "time"


def write_rerun(path: Path, data: Dataset, episodes: Sequence[int]) -> Path:
    """Write ``episodes`` of ``data``: each signal and the action as curves, pictures as images, over the time of the
    episode in seconds; each episode below ``episode_<number>``."""
    import rerun as rr

    recording = rr.RecordingStream("temporeal_dataset", recording_id=data.folder.name)
    recording.save(str(path))
    for number in episodes:
        episode, home = data.episode(int(number)), f"episode_{int(number):06d}"
        times = np.arange(episode.samples) / data.interface.rate_hz
        if episode.language:
            recording.log(f"{home}/instruction", rr.TextDocument(episode.language), static=True)
        for name, values in episode.signals.items():
            if layout.is_picture(data.interface.signals[name]):
                recording.send_columns(f"{home}/{name}", [rr.TimeColumn(TIMELINE, duration=times)],
                                       columns=pictures(values))
            else:
                curves(recording, f"{home}/{name}", times, values)
        curves(recording, f"{home}/action", times[: episode.steps], episode.action)
        if episode.reward is not None:
            curves(recording, f"{home}/reward", times[: episode.steps], episode.reward)
    recording.flush()
    return path


def curves(recording: object, place: str, times: np.ndarray, values: np.ndarray) -> None:
    """``values`` [T] or [T, ...] as curves over ``times`` [T] s."""
    import rerun as rr

    rows = np.asarray(values, dtype=np.float64).reshape(len(times), -1)
    if not rows.size:
        return
    columns = rr.Scalars.columns(scalars=rows.reshape(-1)).partition(np.full(len(rows), rows.shape[1]))
    recording.send_columns(place, [rr.TimeColumn(TIMELINE, duration=times)], columns=columns)  # type: ignore[attr-defined]


def pictures(values: np.ndarray) -> object:
    """Pictures [T, H, W, 3] as columns of images."""
    import rerun as rr

    height, width = values.shape[1:3]
    form = rr.components.ImageFormat(width=width, height=height, color_model="RGB", channel_datatype="U8")
    return rr.Image.columns(buffer=values.reshape(len(values), -1), format=[form] * len(values))
