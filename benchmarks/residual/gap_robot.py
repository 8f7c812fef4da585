"""The robot and the base of the gap study: a hand-written policy for a Crazyflie, and the nodes of one that differs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.robots.spec import load_robot

if TYPE_CHECKING:
    from temporeal.policies.robot_learning.ros_world import RosWorld

ROBOT, COMMAND, RATE_HZ, HORIZON_S = "crazyflie", "ctbr_cmd", 50.0, 5.0
FORMULA = ("F[0,2] (norm(base_pos_w - a) < reach) & G[4,5] (norm(base_pos_w - b) < hold) & "
           "G[0,5] (abs(base_pos_w.x) < fence & abs(base_pos_w.y) < fence & height > floor & height < ceiling)")
CONSTANTS = {"a": (0.6, 0.4, 1.3), "b": (-0.3, 0.4, 0.8), "reach": 0.25, "hold": 0.25, "fence": 1.8, "floor": 0.2,
             "ceiling": 2.0}
TURN_S = 2.0  # from A to B
STIFF, DAMPED, LEAN = (2.5, 2.5, 5.0), (2.2, 2.2, 3.5), 4.5  # 1/s^2, 1/s, 1/s: tuned on the nominal robot alone
FARTHEST = 0.5  # m, error that is acted on at most
MASS, GRAVITY = 0.0319, 9.81  # kg, m/s^2: the spec's nominal ones
SIGNALS = {"base_pos_w": (3,), "base_quat_w": (4,), "base_vel_w": (3,)}


def base(path: Path) -> Path:
    """The base as an artifact in folder ``path``: to A, from 2 s on to B, by a position loop around a rate loop. It has
    no integral part, and the mass of the spec: what it does not know of it does not learn by itself."""
    import torch

    from temporeal.policies.export.writer import ArtifactSpec, export
    from temporeal.sim.rotations import rotation

    class Cascade(torch.nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {"tick": torch.zeros(n)}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            first = (memory["tick"] < TURN_S * RATE_HZ).float()[:, None]
            goal = first * torch.tensor(CONSTANTS["a"]) + (1 - first) * torch.tensor(CONSTANTS["b"])
            error = (goal - signals["base_pos_w"]).clamp(-FARTHEST, FARTHEST)
            wanted = (torch.tensor(STIFF) * error - torch.tensor(DAMPED) * signals["base_vel_w"]
                      + torch.tensor([0.0, 0.0, GRAVITY]))
            in_body = (rotation(signals["base_quat_w"]) * wanted[:, :, None]).sum(1)  # R^T wanted
            up = in_body / in_body.norm(dim=-1, keepdim=True)
            yaw = -2.0 * signals["base_quat_w"][:, 3] * signals["base_quat_w"][:, 0].sign()
            command = torch.stack([MASS * in_body[:, 2], -LEAN * up[:, 1], LEAN * up[:, 0], yaw], -1)
            return {COMMAND: command}, {"tick": memory["tick"] + 1.0}

    policy, rng = Cascade(), np.random.default_rng(0)
    seen = {name: rng.normal(size=(10, *shape)).astype(np.float32) for name, shape in SIGNALS.items()}
    seen["base_quat_w"] /= np.linalg.norm(seen["base_quat_w"], axis=-1, keepdims=True)
    memory, given = policy.initial_memory(1), []
    with torch.no_grad():
        for t in range(10):
            said, memory = policy({name: torch.from_numpy(value[t][None]) for name, value in seen.items()}, memory)
            given.append(said[COMMAND][0].numpy())
    golden = {**{f"signals.{name}": value for name, value in seen.items()}, f"commands.{COMMAND}": np.stack(given)}
    export(policy, path, ArtifactSpec(
        robot=load_robot(ROBOT), signals=tuple(SIGNALS), command=COMMAND, rate_hz=RATE_HZ, formula_text=FORMULA,
        constants=CONSTANTS, horizon_s=HORIZON_S, training={"by": "hand"}, seed=0, stop="level", name="cascade",
        git_revision="bench"), golden)
    return path


def task_words() -> list[str]:
    """The same mission as a task, for actor and learner: what they observe, and their reward."""
    constants = ", ".join(f"{name}: {list(value) if isinstance(value, tuple) else value}"
                          for name, value in CONSTANTS.items())
    return ["task=waypoints", "randomize=none", f'task.settings.formula="{FORMULA}"',
            f"task.settings.constants={{{constants}}}"]


@contextmanager
def behind_ros(artifact: Path, out: Path, first: int, hidden: Path | None = None) -> Iterator[RosWorld]:
    """A robot with guard, monitor and recorder in processes of their own, and the world of an actor. ``first``: number
    of the first episode. ``hidden``: how the robot differs; only its own process is told."""
    from temporeal.policies.robot_learning.ros_world import Episodes, open_world
    from temporeal.policies.robot_learning.world import WorldError
    from temporeal_bridge.process.children import end, how_ended, start
    from temporeal_bridge.transports.dds import free_domain

    out.mkdir(parents=True, exist_ok=True)
    domain, link = free_domain(), out / "line.sock"
    link.parent.chmod(0o700)
    shared = ["--robot", ROBOT, "--namespace", "/r", "--transport", "dds", "--domain", str(domain), "--loopback",
              "--out", str(out)]
    first_in_time, of_base = ["--priority", "auto"], ["--artifact", str(artifact)]
    nodes = {"robot_sim": [*first_in_time, *of_base, *([] if hidden is None else ["--hidden", str(hidden)])],
             "guard_node": [*first_in_time, *of_base, "--link", str(link)], "monitor_node": of_base}
    started = [start(name, [*shared, *words], out / f"{name}.log") for name, words in nodes.items()]
    try:
        world = open_world(artifact, "/r", transport="dds", domain=domain, loopback=True, link=link,
                           episodes=Episodes(first, "silence"))
        try:
            yield world
        finally:
            world.close()
    except WorldError as error:
        ended = [how_ended(process) for process in started if process.poll() is not None]
        raise RuntimeError("; ".join([str(error), *ended, f"logs: {out}"])) from error
    finally:
        end(started)
