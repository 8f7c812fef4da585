"""``temporeal data generate``: demonstrations of a stated quality from an expert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, counter, print_json, say
from temporeal.policies.runs.errors import OK

if TYPE_CHECKING:
    from temporeal.policies.runs.demonstrating.demonstrations import Generated

SUMMARY = "demonstrations of a stated quality: by hand or by a trained policy"
HELP = """\
An expert acts in many worlds at once; its episodes become a dataset. What it reached is printed and kept in the set.

  quality   expert: as good as it is · medium: of different skill, half of the episodes succeed · mixed: a third each of
            expert, medium and random · noisy: noise is executed, the clean action is stored (DART) · play: one random
            goal after another without reset, no reward
  expert    scripted: by hand (reach, lift, push, peg, drawer, arm_track, joint_target, hold, hover, waypoints, track,
            metaworld, ogbench) · RUN: the folder of a run or an artifact · RUN,RUN,...: the best one first, all of
            which fly the medium episodes
  episodes  how many (100)      out   the folder      seed  of everything: the same words give the same numbers
  severity  of medium, 0 to 1 (auto: found by trials)   noise  of noisy, 0 to 1 (0.3)   goals  of a play episode (4)
  pictures  h264, av1, lossless or raw, of cameras.NAME={width: 64, height: 64}

Other words are settings, as `temporeal train` takes them.

Example:
  temporeal data generate task=lift quality=expert episodes=100 seed=1 out=demos/lift
  temporeal data generate task=reach quality=mixed episodes=600 seed=1 out=demos/reach_mixed
  temporeal data generate task=waypoints quality=medium expert=RUN_1,RUN_2,RUN_3 severity=0.03 out=demos/mission
  temporeal data generate task=push "cameras.front={width: 64, height: 64}" episodes=100 out=demos/push_seen
  temporeal data generate task=metaworld task.settings.env=door-open-v3 quality=medium episodes=200 out=demos/door
"""


def add(parser: Parser) -> None:
    """Options."""
    add_overrides(parser)
    add_json(parser)


def run(options: Any) -> int:
    """Generate and print what was reached."""
    from temporeal.policies.runs.demonstrating.demonstrations import facts, generate, request_of

    done = generate(request_of(options.overrides), None if options.json else counter("episode"))
    if options.json:
        print_json({"folder": done.folder, "episodes": done.episodes, "seconds": done.seconds, **facts(done)})
    else:
        say(told(done))
    return OK


def told(done: Generated) -> str:
    """What was reached, in words."""
    from temporeal.policies.runs.settings.overrides import written

    rate = done.steps / max(done.seconds, 1e-9)
    lines = [f"{done.folder}: {done.episodes} episodes, {done.steps} steps in {done.seconds:.1f} s "
             f"({rate:.0f} a second)"]
    if done.severity is not None:
        lines.append(f"severity of medium {done.severity:.3f}")
    if (p := done.success) is not None:
        lines.append(f"satisfied {p.successes} of {p.trials} = {p.estimate:.3f}, {p.confidence:.0%} interval "
                     f"[{p.low:.3f}, {p.high:.3f}]; mean return {done.mean_return:.2f}")
    return "\n".join([*lines, f"next: temporeal train algo=bc {written(f'dataset={done.folder}')}"])
