"""``temporeal actor``: act on a robot, or on a simulated one in real time, and deliver what was done to a learner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, print_json, say
from temporeal.policies.runs.errors import OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.robot_learning.success import Judge
    from temporeal.policies.robot_learning.words import ActorWords
    from temporeal.policies.robot_learning.world import RobotWorld

SUMMARY = "learning on a robot, the acting half: acts at its rate, delivers episodes"
HELP = """\
Acts with the newest policy of `temporeal learner` at the control rate of the task, whatever learner and network do.
Episodes wait on the disk until the learner has them. While a person intervenes, their action is executed, and learned
from as a demonstration. Started again with the same words it goes on: all but the open episode is kept.

Words beside those of `temporeal train`, which must be the learner's:
  connect=127.0.0.1:15061  the learner
  token=FILE tls=FOLDER plaintext=true   as the learner's
  success= threshold= reward=            as the learner's
  episodes=50              then it ends; without: until it is stopped
  explore=false            the deterministic policy
  intervene=gamepad        or keyboard, spacemouse, leader; speed=0.5: of its full deflection
  reset=world              or ask: the operator; or the folder of a policy, with reset_formula="..." and reset_seconds=
  weights=1                seconds between questions for new weights
  deliver=10               seconds to wait at the end until all is delivered
  priority=auto            of the control loop: realtime, normal; auto: real-time where that is permitted
--sim takes the task's simulation as the robot, in real time. --ros takes a robot behind ROS 2, whose guard and monitor
run ARTIFACT and stay in the path; with --correct the artifact acts, and the policy's commands are corrections of it:
the learner is told the same (--base ARTIFACT --correct SCALE), and an actor of another base or scale is refused
(docs/how-to/crossing-the-gap.md). The bus is that of the group deploy (deploy.namespace=/cf1, ...).

Example:
  temporeal actor --sim task=reach algo=rlpd algo.warmup=0 token=outputs/learner/token episodes=100
  temporeal actor --ros outputs/artifact --correct 0.2 task=waypoints algo=sac reset=ask token=outputs/learner/token
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("actor", HELP)
    add_overrides(p)
    p.add_argument("--sim", action="store_true", help="the robot is the task's simulation, in real time")
    p.add_argument("--ros", type=Path, metavar="ARTIFACT",
                   help="the robot is behind ROS 2; its guard and monitor run this artifact")
    p.add_argument("--correct", type=float, metavar="SCALE",
                   help="with --ros: the artifact acts, and this share 0..1 of the policy's command is added")
    p.add_argument("--put-back", action="store_true",
                   help="with --ros: the robot is robot_sim, which is ordered to a start before each episode")
    add_json(p)
    return p


def open_robot(options: Any, words: ActorWords) -> tuple[RobotWorld, Judge]:
    """The robot that is asked for, and who judges."""
    if options.ros is not None:
        from temporeal.policies.cli.deployment.requirements import needs_bridge

        needs_bridge()
        if options.correct is not None and words.reset not in ("world", "ask"):
            raise BadInput(f"--correct with reset={words.reset}: the base would be added to the second policy's "
                           "commands as well; reset=ask, or without --correct")
        from temporeal.policies.robot_learning.ros_world_opening import open_ros

        return open_ros(words.common, options.ros, options.correct, options.put_back)
    from temporeal.policies.robot_learning.acting.run import judge_for
    from temporeal.policies.robot_learning.simulated import open_simulation

    judge = judge_for(words)
    world: Any = open_simulation(words.common.settings, words.common.task, judge.names)
    return world, judge


def run(argv: Sequence[str]) -> int:
    """Act until as many episodes are made, or it is stopped."""
    options = parser().parse_intermixed_args(argv)
    if options.sim == (options.ros is not None):
        raise BadInput("which robot? --sim: the task's simulation in real time; or --ros ARTIFACT: one behind ROS 2")
    if options.sim and (options.correct is not None or options.put_back):
        raise BadInput("--correct and --put-back are of a robot behind ROS 2 (--ros)")
    from temporeal.policies.robot_learning.acting.run import act
    from temporeal.policies.robot_learning.corrections import asked as correction_asked
    from temporeal.policies.robot_learning.words import actor_words
    from temporeal.policies.runs.interrupts import Interrupted, stop_asked

    words = actor_words(options.overrides, correction_asked(options.correct, options.ros, "--ros"))
    with stop_asked("ending the episode; it is dropped", quiet=options.json) as asked:
        world, judge = open_robot(options, words)
        done = act(words, world, judge, asked=asked, tell=(lambda text: None) if options.json else say)
    if options.json:
        print_json({"folder": words.folder, **done.to_json()})
    else:
        tally = done.tally
        say(f"{tally.episodes} episodes, {tally.successes} of {tally.judged} succeeded; {tally.late} of {tally.cycles} "
            f"cycles late; {tally.changed} commands changed by limits or guard; {done.waiting} episodes wait in "
            f"{words.folder}")
    if asked:
        raise Interrupted(asked[0])
    return OK
