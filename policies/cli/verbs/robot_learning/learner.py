"""``temporeal learner``: learn from episodes that actors deliver, and publish the policy to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from temporeal.policies.cli.console import Parser, add_json, add_overrides, add_overwrite, print_json, say
from temporeal.policies.runs.errors import OK, BadInput

SUMMARY = "learning on a robot, the learning half: takes episodes, publishes weights"
HELP = """\
Learns from the episodes that `temporeal actor` delivers over gRPC, by SAC, TD3 or RLPD (algo=sac, td3, rlpd), and
publishes new weights to it. The run is a training's: temporeal eval and export take its folder. Started again with the
same words it goes on where it was stopped or killed: what it has acknowledged is on its disk.

Words beside those of `temporeal train`:
  listen=127.0.0.1:15061   where actors come; port 0: any that is free
  token=FILE               the secret of both sides; without it RUN/token is made: copy it to the actor
  tls=FOLDER               ca.pem, cert.pem, key.pem: needed beyond this machine, unless plaintext=true
  success=formula          or operator; or the run of a classifier (algo=success_classifier), or of a model of
                           progress with threshold=0.9
  reward=success           1 at success, else 0; or task: the task's own reward on what was measured
  publish=2                seconds between publications
  dataset=FOLDER           demonstrations, in a share of each batch; interventions join them
--base ARTIFACT --correct SCALE: actors correct this base by this scale, as their --ros and --correct say; the policy is
one of corrections, and actors of another base, of another scale or of none are refused.

Example:
  temporeal learner task=reach algo=rlpd algo.warmup=0 dataset=demos out=outputs/learner
  temporeal learner --base outputs/artifact --correct 0.2 task=waypoints algo=sac out=outputs/learner
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("learner", HELP)
    add_overrides(p)
    p.add_argument("--base", type=Path, metavar="ARTIFACT", help="with --correct: the base that the actors correct")
    p.add_argument("--correct", type=float, metavar="SCALE", help="with --base: the actors' --correct, 0..1")
    add_overwrite(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Learn until the budget is spent or it is stopped."""
    options = parser().parse_intermixed_args(argv)
    if options.base is not None and options.correct is None:
        raise BadInput(f"--base {options.base}: by what scale is it corrected? --correct SCALE, as the actors' say")
    from temporeal.policies.robot_learning.corrections import asked as correction_asked
    from temporeal.policies.robot_learning.learning.run import learn
    from temporeal.policies.robot_learning.words import learner_words
    from temporeal.policies.runs.interrupts import Interrupted, stop_asked
    from temporeal.policies.training import progress

    words = learner_words(options.overrides, correction_asked(options.correct, options.base, "--base"))
    title = f"{words.folder.name}, {words.common.settings['algo']['name']}"
    quiet = options.json
    with stop_asked(quiet=quiet) as asked:
        found = learn(words, overwrite=options.overwrite, asked=asked,
                      progress=None if quiet else progress.show(title), tell=(lambda text: None) if quiet else say)
    last = found.learner.history[-1] if found.learner.history else {}
    if options.json:
        print_json({"run": words.folder, "episodes": found.env.episodes, "steps": found.learner.update, **last})
    else:
        say(f"{found.env.episodes} episodes, {found.learner.update} steps, {found.learner.algorithm.updates} updates: "
            f"{words.folder}\nnext: temporeal eval {words.folder}")
    if asked:
        raise Interrupted(asked[0])
    return OK
