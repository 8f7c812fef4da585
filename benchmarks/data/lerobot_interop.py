"""LeRobot 0.4.4 reads the sets that are written here, and the sets that it writes are read here, value by value.

LeRobot runs in a process of its own (``benchmarks/peers/lerobot_worker.py``). Numbers, and pictures that are kept as
numbers, as PNG or by the lossless codec, must be equal (in float32, which LeRobot's tensors are); pictures of another
codec must be those that LeRobot decodes from the same file.

``python -m temporeal_benchmarks.data.lerobot_interop tests/data/lerobot`` writes the sets that the tests read.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.signals import SignalSpec, schema
from temporeal_benchmarks.peers.install import PeerError
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.rows import Row, at_least, none_of, not_measured

FACE = Interface(
    "arm", schema(SignalSpec("joint_pos", (7,), "rad"), SignalSpec("height", (), "m"),
                  SignalSpec("touch", (2,), dtype="bool"), SignalSpec("count", (), dtype="int32"),
                  SignalSpec("jacobian", (2, 3)), SignalSpec("precise", (3,), dtype="float64"),
                  SignalSpec("front", (48, 64, 3), dtype="uint8")),
    ActionSpec("joint_vel", (-1.0,) * 7, (1.0,) * 7, "rad/s"), 20.0, task_action=3)
PICTURES = ("h264", "lossless", "av1", "raw")
FRONT, TOP = "observation.images.front", "observation.images.top"


def scene(samples: int, number: int) -> np.ndarray:
    """Pictures [samples, 48, 64, 3] with edges, gradients and motion."""
    y, x = np.mgrid[0:48, 0:64]
    return np.stack([np.stack([(4 * x + 3 * t) % 256, (5 * y + 40 * number) % 256,
                               np.where((x - t) ** 2 + (y - 20) ** 2 < 80, 230, 20)], -1)
                     for t in range(samples)]).astype(np.uint8)


def episode(number: int) -> Episode:
    """9 to 15 steps."""
    rng = np.random.default_rng(number)
    steps = 9 + number % 7
    samples = steps + number % 2
    signals = {"joint_pos": rng.normal(size=(samples, 7)).astype(np.float32), "front": scene(samples, number),
               "height": rng.normal(size=samples).astype(np.float32), "touch": rng.random((samples, 2)) > 0.5,
               "count": np.arange(samples, dtype=np.int32), "precise": rng.normal(size=(samples, 3)),
               "jacobian": rng.normal(size=(samples, 2, 3)).astype(np.float32)}
    return Episode(signals, rng.uniform(-1, 1, (steps, 7)).astype(np.float32),
                   rng.uniform(-1, 1, (steps, 3)).astype(np.float32), rng.normal(size=steps).astype(np.float32),
                   language=f"task {number % 3}")


def ours(folder: Path, pictures: str) -> Dataset:
    """A set of ours: episodes one by one and many in a file, by two writers."""
    with DatasetWriter(folder, FACE, pictures=pictures) as writer:
        writer.add(episode(0))
        writer.add_many(episode(k) for k in range(1, 6))
    with DatasetWriter(folder, FACE, append=True) as writer:
        writer.add(episode(6))
    return Dataset.open(folder)


def read_by_lerobot(peer: Peer, out: Path, pictures: str) -> tuple[int, int]:
    """Values that LeRobot reads of a set of ours, and those of them that differ."""
    data = ours(out / f"ours-{pictures}", pictures)
    samples = list(range(data.samples))
    told = peer.ask("read", folder=str(data.folder), samples=samples, out=str(out / f"{pictures}.npz"))
    wrong = int(told["episodes"] != data.episodes) + int(told["samples"] != data.samples)
    languages = [data.records[k].language for k in data.column("episode_index")]
    wrong += sum(a != b for a, b in zip(told["tasks"], languages, strict=True))
    count = 0
    with np.load(out / f"{pictures}.npz", allow_pickle=False) as found:
        for key in data.columns:
            wanted, values = data.column(key)[samples], np.asarray(found[key])
            if key == FRONT and pictures != "raw":
                values = np.moveaxis(np.rint(values * 255).astype(np.uint8), 1, -1)
            count += wanted.size
            wanted = wanted.astype(values.dtype)  # its tensors of floats are float32
            wrong += int((values.reshape(wanted.shape) != wanted).sum())
        exact = np.concatenate([episode(k).signals["front"] for k in range(7)])
        if pictures in ("lossless", "raw"):
            wrong += int((data.column("front") != exact).sum())
    mean = np.asarray(told["mean"]["observation.joint_pos"])
    wrong += int(not np.allclose(mean, data.column("joint_pos").astype(float).mean(0), atol=1e-6))
    return count, wrong


def of_lerobot(seed: int = 0, episodes: int = 3, shape: tuple[int, int] = (48, 64)) -> dict[str, np.ndarray]:
    """What LeRobot is given to write."""
    rng = np.random.default_rng(seed)
    lengths = 6 + np.arange(episodes) % 4
    return {"state": rng.normal(size=(lengths.sum(), 6)).astype(np.float32),
            "action": rng.normal(size=(lengths.sum(), 6)).astype(np.float32),
            "picture": np.concatenate([scene(n, k) for k, n in enumerate(lengths)])[:, : shape[0], : shape[1]],
            "episode": np.repeat(np.arange(episodes), lengths)}


def written_by_lerobot(peer: Peer, out: Path, kind: str, codec: str) -> tuple[int, int]:
    """Values that are read here of a set that LeRobot wrote, and those of them that differ."""
    given = of_lerobot()
    np.savez(out / "given.npz", **given)
    folder = out / f"lerobot-{kind}-{codec}"
    peer.ask("write", folder=str(folder), values=str(out / "given.npz"), kind=kind, codec=codec)
    data = Dataset.open(folder)
    peer.ask("read", folder=str(folder), samples=list(range(data.samples)), out=str(out / "read.npz"))
    with np.load(out / "read.npz", allow_pickle=False) as read:
        theirs = np.moveaxis(np.rint(read[TOP] * 255).astype(np.uint8), 1, -1)
    wanted = {"observation.state": given["state"], "action": given["action"], "episode_index": given["episode"],
              TOP: given["picture"] if kind == "image" else theirs}
    wrong = sum(int((data.column(key) != values).sum()) for key, values in wanted.items())
    wrong += int(not data.foreign) + sum(one.language != f"task {one.index % 2}" for one in data.records)
    one = data.episode(1)
    wrong += int((one.signals["top"] != data.column("top")[data.starts[1] : data.starts[2]]).sum())
    return sum(values.size for values in wanted.values()), wrong


def rows(quick: bool, out: Path) -> list[Row]:
    """What differs; and how many values were compared."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    kinds: list[tuple[str, Any, tuple[str, ...]]] = [
        (f"reads_ours.{pictures}", read_by_lerobot, (pictures,)) for pictures in PICTURES]
    kinds += [(f"read_here.{kind}-{codec}", written_by_lerobot, (kind, codec))
              for kind, codec in (("image", "h264"), ("video", "h264"), ("video", "libsvtav1"))]
    found, compared = [], 0
    try:
        with Peer("lerobot") as peer:
            for name, work, words in kinds:
                count, wrong = work(peer, out, *words)
                compared += count
                found.append(none_of(f"data.lerobot.{name}.differ", wrong, f"of {count} values, LeRobot 0.4.4"))
    except PeerError as error:
        return [not_measured("data.lerobot.values_compared", "1", 1, str(error))]
    return [*found, at_least("data.lerobot.values_compared", compared, "1", 1)]


def fixtures(folder: Path) -> None:
    """Two small sets that LeRobot writes, and what must be read of them."""
    given = of_lerobot(1, 2, (16, 16))
    folder.mkdir(parents=True, exist_ok=True)
    with Peer("lerobot") as peer:
        for kind in ("image", "video"):
            np.savez(folder / "values.npz", **given)
            shutil.rmtree(folder / kind, ignore_errors=True)
            peer.ask("write", folder=str(folder / kind), values=str(folder / "values.npz"), kind=kind)
            shutil.rmtree(folder / kind / "images", ignore_errors=True)


if __name__ == "__main__":
    fixtures(Path(sys.argv[1]))
