"""Episodes for the player on the page: poses of all that moves, goals, bounds of the robustness, signals over time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from temporeal.policies.evaluate.evaluation import Evaluation, bounds_over_time
from temporeal.policies.evaluate.report.section import Context, Section
from temporeal.policies.evaluate.report.series import series_of
from temporeal.policies.evaluate.report.wording import signed
from temporeal.policies.evaluate.scene_figure import Figure, Goal, Stage

REPLAYED = 12  # episodes per section in the replay: some 10 kB each
FRAME_S = 0.04  # the replay stores a sample at most this often and interpolates
FRAMES = 250  # of an episode with a figure: some 100 bytes per frame and body that moves


def pick_episodes(evaluation: Evaluation, count: int = REPLAYED) -> list[int]:
    """Episodes worth watching: a typical one, the worst ones (at most half), and some evenly from there to the best."""
    order = np.argsort(evaluation.episodes.robustness, kind="stable").tolist()
    # the page opens with what the policy usually does; its failures are one choice away
    typical = order.pop(len(order) // 2)
    failed = int(np.count_nonzero(~evaluation.episodes.satisfied))
    worst = order[: min(max(failed, 3), count // 2)]
    rest = order[len(worst):]
    places = np.linspace(0, len(rest) - 1, min(count - 1 - len(worst), len(rest))).astype(int)
    return [typical, *worst, *(rest[i] for i in places)]


def replay_episode(section: Section, index: int, context: Context) -> dict[str, Any]:
    """One episode for the player, positions in mm and quaternions in 1/1000 as integers."""
    stage = context.stage
    rollout, episodes = section.rollout, section.evaluation.episodes
    length = int(rollout.lengths[index])
    stride = max(1, int(FRAME_S / rollout.dt + 1e-9))
    if stage is not None:
        stride = max(stride, -(-length // FRAMES))
    steps = np.unique(np.append(np.arange(0, length, stride), length - 1))
    lower, upper = bounds_over_time(section.evaluation.formula, rollout, index, steps)
    satisfied = bool(episodes.satisfied[index])
    robustness = float(episodes.robustness[index])
    first = section.evaluation.clauses[int(episodes.first_clause[index])].label
    note = "Every clause holds." if satisfied else f"First to fail, at {episodes.failed_at_s[index]:.2f} s: {first}."
    if episodes.terminated[index]:
        ended_s = (length - 1) * rollout.dt if rollout.ended_s is None else rollout.ended_s[index]
        note += f" Ended early at {ended_s:.2f} s."
    decided = float(episodes.decided_at_s[index])
    sample = {name: values[steps, index] for name, values in rollout.signals.items()}
    return {
        "group": section.title, "verdict": "satisfied" if satisfied else "violated", "note": note,
        "label": f"Episode {index}: {'satisfied' if satisfied else 'violated'}, robustness {signed(robustness)}",
        "robustness": rounded(robustness), "decided": rounded(decided), "dt": stride * rollout.dt,
        "end": (length - 1) * rollout.dt, **(flight(sample) if stage is None else motion(sample, stage)),
        "lower": [rounded(v) for v in lower], "upper": [rounded(v) for v in upper],
        "series": series_of(rollout, index, steps, section.evaluation.formula, context.command, context.schema)}


def flight(sample: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The pose of one body over frames [K, ...]: of a robot that the player draws itself."""
    position = sample["base_pos_w"]
    quat = sample.get("base_quat_w")
    turned = quat if quat is not None else np.tile([1.0, 0, 0, 0], (len(position), 1))
    return {"pos": thousandths(position), "quat": thousandths(turned)}


def motion(sample: Mapping[str, np.ndarray], stage: Stage) -> dict[str, Any]:
    """Poses of all that moves over frames [K, ...], of what is followed, and the goals."""
    pos, quat = stage.figure.poses(stage.figure.qpos(sample))
    out: dict[str, Any] = {"goals": [posed_goal(goal, sample, stage) for goal in stage.goals]}
    # a place without a name of its own is that of the first body that moves
    point = sample[stage.point] if stage.point else (pos[:, 0] if pos.shape[1] else np.zeros((len(pos), 3)))
    out["pos"] = thousandths(in_space(point))
    if stage.attitude:
        out["quat"] = thousandths(finite(sample[stage.attitude]))
    if not stage.figure.bodies:
        return {**out, "poses": None}
    unit = max(float(np.abs(pos).max()), 1e-3) / INT16
    packed = np.concatenate([pos / unit, quat * INT16], -1)
    return {**out, "unit": unit, "poses": base64.b64encode(np.rint(packed).astype("<i2").tobytes()).decode()}


INT16 = 32767


def posed_goal(goal: Goal, sample: Mapping[str, np.ndarray], stage: Stage) -> dict[str, Any]:
    """A goal over frames, or once where it stays; one without a place is shown where the thing is that it is for."""
    place = sample[goal.place] if goal.place else sample[stage.point] if stage.point else np.zeros((1, 3))
    out: dict[str, Any] = {"name": goal.name, "radius": goal.radius if goal.place else 0.0,
                           "pos": thousandths(once(in_space(place)))}
    return {**out, "quat": thousandths(once(finite(sample[goal.attitude])))} if goal.attitude else out


def in_space(place: np.ndarray) -> np.ndarray:
    """Places [K, 3]; those [K, 2] lie on the floor."""
    flat = place.shape[-1] == 2
    return finite(np.concatenate([place, np.zeros_like(place[:, :1])], -1) if flat else place)


def finite(values: np.ndarray) -> np.ndarray:
    """Zeros where there is no number."""
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def once(values: np.ndarray) -> np.ndarray:
    """The first row of ``values`` if all are the same."""
    return values[:1] if (values == values[:1]).all() else values


def drawn_figure(figure: Figure) -> dict[str, Any]:
    """Meshes for the player: corners in 1/10 mm, faces, colour."""
    parts = [{"body": part.body, "at": np.rint(1e4 * part.mesh.vertices).astype(int).ravel().tolist(),
              "faces": [list(face) for face in part.mesh.faces],
              "rgb": [round(255 * min(max(c, 0.0), 1.0)) for c in part.rgba[:3]],
              "alpha": round(min(max(part.rgba[3], 0.0), 1.0), 2)} for part in figure.parts]
    return {"bodies": len(figure.bodies), "floor": bool(figure.floors), "parts": parts}


def thousandths(values: np.ndarray) -> list[int]:
    """Flat list of ``values`` in thousandths."""
    flat: list[int] = np.rint(1000 * values.astype(np.float64)).astype(int).ravel().tolist()
    return flat


def rounded(value: float) -> float | None:
    """Three decimals; None where it is not finite (JSON has no infinity)."""
    return round(float(value), 3) if np.isfinite(value) else None
