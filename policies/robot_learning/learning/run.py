"""A run of ``temporeal learner``: its folder, what it had received before, its server, its budget.

The folder is that of a training (``temporeal eval`` and ``export`` take it), with the journal of what was received and
the token beside. The same command goes on where the last one was stopped or killed.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.robot_learning.learning import demonstrations
from temporeal.policies.robot_learning.learning.inbox import Inbox
from temporeal.policies.robot_learning.learning.journal import NAME, Journal
from temporeal.policies.robot_learning.learning.learner import BY_HAND, Learning
from temporeal.policies.robot_learning.wire.messages import MessageError
from temporeal.policies.robot_learning.wire.security import Security, make_token, security
from temporeal.policies.runs import run_folders
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.memory import check_replay
from temporeal.policies.runs.settings import files
from temporeal.policies.runs.trained_run import events
from temporeal.robots.atomic_files import write_whole

if TYPE_CHECKING:
    from temporeal.policies.robot_learning.words import LearnerWords
    from temporeal.policies.training.off_policy.learner import Learner
    from temporeal.policies.training.progress import Progress

ASIDE = "set-aside"  # folder beside the journal: ID.txt says why that episode of the journal is not learned from
TOKEN = "token"  # in the run's folder, where none is given
GRACE_S = 2.0  # s: answers that are on their way when the learner ends


def learn(
    words: LearnerWords, *, overwrite: bool = False, asked: Sequence[int] = (), progress: Progress | None = None,
    tell: Callable[[str], None] = print,
) -> Learning:
    """Learn until the budget is spent or a stop is ``asked``."""
    from temporeal.policies.robot_learning.wire.service import Service, serve
    from temporeal.policies.training import budget, offline_learner
    from temporeal.policies.training.off_policy import checkpoints

    secured = opened(words, overwrite)
    journal = Journal(words.folder / NAME)
    try:
        with offline_learner.threads(1), events(words.folder / run_folders.EVENTS) as logger:
            evaluate = evaluation(words)
            learning = begun(words, journal, tell)
            server, port = serve(words.listen, secured, Service(
                words.common.agreed, learning.inbox.keep, lambda: learning.published))
            tell(f"listening at {words.listen.rpartition(':')[0]}:{port}, token {token_file(words)}; "
                 f"{learning.env.episodes} episodes are known")
            try:
                budget.spend(learning.learner, lambda _: learning.iterate(asked, evaluate),
                             lambda found: found.update, partial(checkpoints.keep, out=words.folder), progress, logger,
                             lambda _: bool(asked))
            finally:
                stop(server.stop(GRACE_S))
        return learning
    finally:
        journal.close()


def stop(stopped: threading.Event) -> None:
    """Wait for a server that is stopping."""
    stopped.wait(2.0 * GRACE_S)


def opened(words: LearnerWords, overwrite: bool) -> Security:
    """The run's folder made, or found to be of the same run; and what secures its connections."""
    folder, settings = words.folder, words.common.settings
    if not overwrite and run_folders.is_run(folder):
        run_folders.check_same(files.read(folder / run_folders.CONFIG), settings)
    else:
        run_folders.open_run({**settings, "resume": None}, folder, overwrite)
        shutil.rmtree(run_folders.set_aside(folder), ignore_errors=True)
    if words.common.token is None and not token_file(words).exists():
        make_token(token_file(words))
    return security(words.listen, token_file(words), words.common.tls, words.common.plaintext)


def token_file(words: LearnerWords) -> Path:
    """Of this run."""
    return words.common.token or words.folder / TOKEN


def begun(words: LearnerWords, journal: Journal, tell: Callable[[str], None]) -> Learning:
    """The learner as it was last, with all that it has received."""
    from temporeal.policies.training import offline_learner
    from temporeal.policies.training.checkpoint import CheckpointError
    from temporeal.policies.training.errors import SettingsError
    from temporeal.policies.training.off_policy import checkpoints

    common = words.common
    try:
        inbox = Inbox(journal, common.agreed)
        if journal.torn:
            tell(f"{journal.path}: {journal.torn:,} bytes of an episode that was not acknowledged are cut off")
        set_aside(inbox, tell)
        check_replay(common.config, 1, common.task, cameras=common.settings.get("cameras"), by_hand=BY_HAND)
        with bad_input():
            shown = demonstrations.demonstrations(common)
        learning = Learning(common.agreed, common.config, common.build, common.settings["seed"], inbox,
                            words.publish_s, shown)
        if any((words.folder / run_folders.CHECKPOINTS).glob("*.pt")):
            path = checkpoints.latest(words.folder)
            known = offline_learner.read(path, checkpoints.KIND)["env"]
            learning.fast_forward(int(known["episodes"]), known.get("aside", ()))
            checkpoints.restore(learning.learner, path)
        learning.catch_up()
        return learning
    except (CheckpointError, SettingsError, MessageError) as error:
        raise BadInput(str(error)) from error


def set_aside(inbox: Inbox, tell: Callable[[str], None]) -> None:
    """Say which episodes of the journal nobody learns from, and write why beside it."""
    for identity, why in inbox.aside.items():
        file = inbox.journal.path.parent / ASIDE / f"{identity}.txt"
        tell(f"episode {identity} is set aside, it is not learned from ({file}): {why}")
        if not file.exists():
            write_whole(file, f"{why}\n".encode())


def evaluation(words: LearnerWords) -> Callable[[Learner], dict[str, float]]:
    """Figures of the deterministic policy in simulation, where ``algo.evaluate_steps`` asks for them."""
    from temporeal.policies.evaluate.full_horizon import to_full_horizon
    from temporeal.policies.runs import offline
    from temporeal.policies.training.off_policy.learner import evaluation as figures

    settings: dict[str, Any] = dict(words.common.settings)
    if not words.common.config.evaluate_steps:
        return lambda learner: {}
    evaluate = offline.evaluation(settings, to_full_horizon(words.common.task),
                                  lambda actor, normalizer, env: lambda obs: actor(
                                      normalizer(obs), *([env.images] if env.rendering else [])))
    return lambda learner: figures(learner, evaluate)
