"""The process of LeRobot: its dataset class reads, writes and is timed."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from typing import Any

import numpy as np
import torch

from temporeal_benchmarks.peers.process import serve

warnings.simplefilter("ignore")
CACHE = tempfile.TemporaryDirectory(prefix="lerobot-cache-")  # a copy of each set, as Arrow's files
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
               "HF_HOME": CACHE.name}
# torchvision's compiled part is for another torch; its import asks for these two operators' names
OPERATORS = torch.library.Library("torchvision", "DEF")
OPERATORS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
OPERATORS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from lerobot.datasets.lerobot_dataset import LeRobotDataset  # type: ignore[import-not-found]  # noqa: E402


def opened(folder: str) -> Any:
    """The set in ``folder``; PyAV decodes its videos."""
    return LeRobotDataset("local/set", root=folder, video_backend="pyav")


def read(folder: str, samples: list[int], out: str) -> dict[str, Any]:
    """Write samples of a set as NPZ to ``out``; what is told of the set."""
    data = opened(folder)
    items = [data[k] for k in samples]
    arrays = {key: np.stack([np.asarray(item[key]) for item in items]) for key in items[0] if key != "task"}
    np.savez(out, **arrays)
    stats = data.meta.stats or {}
    return {"episodes": data.num_episodes, "samples": len(data), "fps": data.fps,
            "tasks": [item["task"] for item in items],
            "mean": {key: np.asarray(of["mean"]).ravel().tolist() for key, of in stats.items() if "mean" in of}}


def write(folder: str, values: str, kind: str, codec: str = "h264") -> int:
    """Write a set from an NPZ file; its episodes. It has no scalar: LeRobot 0.4.4 cannot write one with numpy 2.4.

    Args:
        values: state [S, 6], action [S, 6], picture [S, H, W, 3], episode [S].
        kind: of the pictures: video or image.
    """
    with np.load(values, allow_pickle=False) as given:
        arrays = {key: given[key] for key in given.files}
    shape = arrays["picture"].shape[1:]
    features = {
        "observation.state": {"dtype": "float32", "shape": (6,), "names": [f"joint_{k}" for k in range(6)]},
        "action": {"dtype": "float32", "shape": (6,), "names": [f"joint_{k}" for k in range(6)]},
        "observation.images.top": {"dtype": kind, "shape": shape, "names": ["height", "width", "channels"]}}
    data = LeRobotDataset.create("local/set", 10, features, root=folder, robot_type="so101", use_videos=kind == "video",
                                 vcodec=codec)
    for number in np.unique(arrays["episode"]):
        for row in np.flatnonzero(arrays["episode"] == number):
            data.add_frame({
                "observation.state": arrays["state"][row], "action": arrays["action"][row],
                "observation.images.top": arrays["picture"][row], "task": f"task {number % 2}"})
        data.save_episode()
    data.finalize()
    return int(data.meta.total_episodes)


def sampling(folder: str, batch: int, seconds: float, keys: list[str]) -> float:
    """Samples per second that torch's DataLoader draws at random from a set, in this process; only ``keys`` where they
    are given."""
    data = opened(folder)
    if keys:
        data.hf_dataset = data.hf_dataset.select_columns([*keys, "timestamp", "episode_index", "index", "task_index"])
    loader = torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True, num_workers=0)
    next(iter(loader))
    drawn, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for item in loader:
            drawn += len(item["index"])
            if time.perf_counter() - began >= seconds:
                break
    return drawn / (time.perf_counter() - began)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with CACHE:
        serve([read, write, sampling])
