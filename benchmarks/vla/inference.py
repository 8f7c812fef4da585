"""The vision-language-action policy on one core: time of a chunk, and what 8-bit products make of it.

An arm's chunk (16 steps of 8 numbers) from two 64x64 cameras, a sentence and the arm's own state, through ONNX Runtime
on one thread, as a robot's worker runs it. Weights are random: time does not depend on them. Sizes are those of
``configs/algo``: vla (0.7 million parameters), vla_small, and vla_tokens, which writes 32 tokens one after the other.
Besides vla on frozen encoders that are told at run time (extra ``encoders``), whose time grows with the sentence: what
is said is the longest sentence of training, 12 words.
What 8 bits cost in success is measured where policies are trained (``benchmarks/vla``'s studies).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.export.instructed import instruction_spec
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.imitation import vla, vla_tokens
from temporeal.policies.runs.learners import configured
from temporeal.policies.runs.settings.compose import compose, of_group
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import config as vla_config
from temporeal.policies.vla import learning
from temporeal.robots.artifact.manifest import ArtifactError, ChunkSpec
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.instructions.grammar import SUITE, Instruction, sentences
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION
from temporeal_benchmarks.data.imitation import times_ms
from temporeal_benchmarks.rows import Row, at_least, at_most, not_measured

LONGEST_MS, RATIO = 15.0, 1.5  # targets: of a chunk of the small model, and of 8 bits over 32
ROBOT, COMMAND = load_robot("franka"), "arm_cmd"
CAMERAS = ("front_rgb", "wrist_rgb")
SEEN = schema(*(ROBOT.signals[name] for name in ("joint_pos", "finger_pos", "grip_pos_w", "grip_quat_w")),
              *(SignalSpec(name, (64, 64, 3), "1", "", "uint8") for name in CAMERAS), INSTRUCTION)
TOLD = tuple(SignalSpec(name, (3,), "m", "w") for name in vla_config.TOLD)
FROZEN = ("algo.image_encoder=imagenet", "algo.text_encoder=minilm", "algo.light=0", "algo.word_dropout=0")
LONGEST = Instruction("place", "red_cube", "left_zone")  # "pick up the red cube and place it in the left zone"
TRACE = 48  # observations of the golden trace, by which 8-bit ranges are calibrated


def rows(quick: bool, out: Path) -> list[Row]:
    """Times of a chunk in 32 and in 8 bits, measured in turn."""
    found, count = list[Row](), 30 if quick else 300
    for name in ("vla", *(() if quick else ("vla_small", "vla_tokens"))):
        policy = policy_of(name)
        size = f"{sum(value.numel() for value in policy.parameters()) / 1e6:.2f} million parameters"
        whole, small = exported(policy, out / name), reduced(policy, out / f"{name}-int8")
        times = np.median(times_ms([whole, *([] if isinstance(small, str) else [small])], count), axis=2)
        about = f"median of {count}, one thread, {size}; {times[1, 0]:.3g} ms of the processor"
        row = at_most if name == "vla" else _plain
        found.append(row(f"vla.inference.{name}", float(times[0, 0]), "ms", LONGEST_MS, about))
        if isinstance(small, str):
            found.append(Row(f"vla.inference.{name}.int8_ratio", None, "1", peer=small))
            continue
        ratio = at_least if name == "vla_small" else _plain  # products of the smallest take a third of its time
        found.append(ratio(f"vla.inference.{name}.int8_ratio", float(times[1, 0] / times[1, 1]), "1", RATIO,
                           f"of processor time; {times[0, 1]:.3g} ms on the clock in 8 bits"))
    return found if quick else [*found, frozen(count, out / "frozen")]


def frozen(count: int, out: Path) -> Row:
    """Time of a chunk on frozen encoders."""
    name = "vla.inference.vla_frozen"
    try:
        policy = policy_of("vla", *FROZEN)
    except SettingsError as error:
        return not_measured(name, "ms", LONGEST_MS, str(error))
    clock, processor = np.median(times_ms([exported(policy, out)], count), axis=2)[:, 0]
    return at_most(name, float(clock), "ms", LONGEST_MS, f"median of {count}, one thread, ImageNet's maps and MiniLM "
                   f"told 12 words; {processor:.3g} ms of the processor")


def _plain(name: str, value: float, unit: str, target: float, peer: str) -> Row:
    """A figure without a target."""
    return Row(name, value, unit, peer=peer)


def policy_of(name: str, *words: str) -> ChunkPolicy:
    """A policy of the settings ``algo=name`` and ``words``, with random weights."""
    settings = compose([f"algo={name}", *words])
    module: Any = vla_tokens if settings["algo"]["name"] == "vla_tokens" else vla
    kind, build = (vla_tokens.TokenVlaConfig, vla_tokens.writer) if module is vla_tokens else (
        vla.FlowVlaConfig, vla.flow)
    config = configured(name, kind, {**of_group(settings, "algo"), "relative": "joint_pos"})
    command = ROBOT.command(COMMAND)
    interface = Interface("franka", SEEN, ActionSpec(COMMAND, command.low, command.high), 20.0)
    torch.manual_seed(0)
    encode = partial(learning.vla_encoder, vocabulary=SUITE, told=TOLD)
    return learner.make_policy(interface, config, build, encode).eval()


def shown(count: int) -> dict[str, np.ndarray]:
    """Signals to infer from."""
    rng = np.random.default_rng(0)
    said = sorted(sentences(LONGEST), key=lambda text: -len(text.split()))
    words = np.stack([SUITE.encode(said[k % len(said)]) for k in range(count)])
    numbers = {name: rng.normal(size=(count, *spec.shape)).astype(np.float32) for name, spec in SEEN.items()
               if spec.dtype == "float32"}
    return {**numbers, "instruction": words,
            **{name: rng.integers(0, 256, (count, 64, 64, 3)).astype(np.uint8) for name in CAMERAS}}


def exported(policy: ChunkPolicy, folder: Path, int8: bool = False) -> Artifact:
    """The policy as an artifact."""
    signals = shown(TRACE)
    with torch.no_grad():
        chunks = policy.rows({name: torch.from_numpy(value) for name, value in signals.items()}).numpy()
    spec = ArtifactSpec(
        robot=ROBOT, signals=policy.signals, command=COMMAND, rate_hz=20.0, formula_text="", constants={},
        horizon_s=1.0, training={}, seed=0, stop="hold", task_signals=dict(SEEN),
        chunk=ChunkSpec(policy.horizon, 0.05), instruction=instruction_spec(SEEN.values(), SUITE))
    folder.parent.mkdir(parents=True, exist_ok=True)
    golden = {**{f"signals.{name}": value for name, value in signals.items()}, f"commands.{COMMAND}": chunks}
    return export(policy, folder, spec, golden, int8=int8)


def reduced(policy: ChunkPolicy, folder: Path) -> Artifact | str:
    """The policy with 8-bit products; or why there is none."""
    try:
        return exported(policy, folder, int8=True)
    except ArtifactError as error:
        return str(error)
