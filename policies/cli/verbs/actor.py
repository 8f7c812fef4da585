"""``temporeal actor``: act on a robot, or on a simulated one in real time, and deliver what was done to a learner."""

from __future__ import annotations

from collections.abc import Sequence

from temporeal.policies.cli.console import Parser, add_json, add_overrides, print_json, say
from temporeal.policies.runs.errors import OK, BadInput

SUMMARY = "learning on a robot, the acting half: acts at its rate, delivers episodes"
HELP = """\
Acts with the newest policy of `temporeal learner` at the control rate of the task, whatever learner and network do.
Episodes wait on the disk until the learner has them. While a person intervenes, their action is executed, and learned
from as a demonstration. Started again with the same words it goes on: all but the open episode is kept.

Words beside those of `temporeal train`, which must be the learner's:
  connect=127.0.0.1:50061  the learner
  token=FILE tls=FOLDER plaintext=true   as the learner's
  success= threshold= reward=            as the learner's
  episodes=50              then it ends; without: until it is stopped
  explore=false            the deterministic policy
  intervene=gamepad        or keyboard, spacemouse, leader; speed=0.5: of its full deflection
  reset=world              or ask: the operator; or the folder of a policy, with reset_formula="..." and reset_seconds=
  weights=1                seconds between questions for new weights
  deliver=10               seconds to wait at the end until all is delivered
  priority=auto            of the control loop: realtime, normal; auto: real-time where that is permitted
--sim takes the task's simulation as the robot, in real time.

Example:
  temporeal actor --sim task=reach algo=rlpd algo.warmup=0 token=outputs/learner/token episodes=100
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("actor", HELP)
    add_overrides(p)
    p.add_argument("--sim", action="store_true", help="the robot is the task's simulation, in real time")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Act until as many episodes are made, or it is stopped."""
    options = parser().parse_intermixed_args(argv)
    if not options.sim:
        raise BadInput("which robot? --sim: the task's simulation in real time")
    from temporeal.policies.robot_learning.acting.run import act, judge_for
    from temporeal.policies.robot_learning.simulated import open_simulation
    from temporeal.policies.robot_learning.words import actor_words
    from temporeal.policies.runs.interrupts import Interrupted, stop_asked

    words = actor_words(options.overrides)
    with stop_asked("ending the episode; it is dropped", quiet=options.json) as asked:
        judge = judge_for(words)
        world = open_simulation(words.common.settings, words.common.task, judge.names)
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
