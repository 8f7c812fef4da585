"""``temporeal bench own-robot``: robots, models, bags and files that nobody here wrote."""

from __future__ import annotations

from pathlib import Path

from temporeal_benchmarks.options import among, amount
from temporeal_benchmarks.own_robot.robots import ROBOTS
from temporeal_benchmarks.rows import Row

HELP = (
    "robots of others (SO-101, UR5e, xArm7, Panda, a 2 kg quadrotor) from their files by `robot new` to a policy: "
    "P(satisfied) on fresh episodes after at most 5 minutes of training on two cores, missions in real time through "
    "the nodes; foreign models against MuJoCo's own loading; random bags with defects against an independent reader; "
    "fuzzed artifacts, runs, manifests, bags and YAML"
)
PARTS = ("robots", "models", "bags", "fuzz")
OPTIONS = {
    "parts": f"{', '.join(PARTS)} (default: all)",
    "only": f"of the robots only these: {', '.join(ROBOTS)} (default: all)",
    "episodes": "fresh episodes for each robot (default 1000, quick 20)",
    "missions": "missions of each robot in real time (default 10, quick 1)",
    "seed": "of bags and fuzz (default 0)",
}
NARROWING = ("parts", "only")


def run(
    quick: bool, *, out: Path, parts: list[str] | None = None, only: list[str] | None = None,
    episodes: list[str] | None = None, missions: list[str] | None = None, seed: list[str] | None = None,
) -> list[Row]:
    """The parts that are asked for."""
    chosen, robots = among("parts", parts, PARTS), among("only", only, tuple(ROBOTS))
    number, rows = int(amount("seed", seed, 0)), list[Row]()
    if "robots" in chosen:
        from temporeal_benchmarks.own_robot.robots import rows as of_robots

        rows += of_robots(robots, out=out, episodes=int(amount("episodes", episodes, 20 if quick else 1000)),
                          missions=int(amount("missions", missions, 1 if quick else 10)),
                          seconds=30.0 if quick else 300.0)
    if "models" in chosen:
        from temporeal_benchmarks.own_robot.models import rows as of_models

        rows += of_models()
    if "bags" in chosen:
        from temporeal_benchmarks.own_robot.bags import rows as of_bags

        rows += of_bags(*([20] if quick else []), seed=number)
    if "fuzz" in chosen:
        from temporeal_benchmarks.own_robot.fuzz import rows as of_fuzz

        rows += of_fuzz(*([100] if quick else []), seed=number, out=out / "fuzz")
    return rows
