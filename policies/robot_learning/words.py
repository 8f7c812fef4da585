"""What the words of ``temporeal actor`` and ``temporeal learner`` ask for, beside settings of task and algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.robot_learning.corrections import refuse_base
from temporeal.policies.robot_learning.sight import seen_by_policy, told_policy
from temporeal.policies.robot_learning.success import FORMULA, judged
from temporeal.policies.robot_learning.wire.agreement import Agreement, agreement
from temporeal.policies.robot_learning.wire.messages import LARGEST
from temporeal.policies.robot_learning.wire.security import check_address
from temporeal.policies.runs import environments, learners, run_folders
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    from temporeal.policies.training.off_policy.settings import OffPolicyConfig
    from temporeal.sim.task import Task

BOTH = ("token", "tls", "plaintext", "success", "threshold", "reward")
LEARNER = (*BOTH, "listen", "publish")
ACTOR = (*BOTH, "connect", "episodes", "weights", "explore", "intervene", "speed", "leader", "interface", "domain",
         "reset", "reset_formula", "reset_seconds", "deliver", "priority", "seen")
REWARDS = ("success", "task")
PRIORITIES = ("auto", "realtime", "normal")
YES, NO = ("true", "yes", "1"), ("false", "no", "0")
ALGORITHM = "rlpd"  # where none is named


@dataclass(frozen=True)
class Common:
    """What both sides are told.

    Args:
        settings: of task and algorithm. config: of the algorithm; build: it.
        agreed: what both sides must be of.
        token: a file; None: the learner makes one in its run's folder.
        tls: folder of certificates; None: plain text, which goes to this machine alone unless ``plaintext``.
        success: who judges; threshold: of a learned model, None: its own. reward: 1 at success, or the task's own.
    """

    settings: Settings
    task: Task
    config: OffPolicyConfig
    build: Callable[..., Any]
    agreed: Agreement
    token: Path | None
    tls: Path | None
    plaintext: bool
    success: str
    threshold: float | None
    reward: str


def common(
    words: Sequence[str], own: Sequence[str], correction: Mapping[str, Any] | None
) -> tuple[Common, dict[str, str]]:
    """What both sides are told, and the words of this side."""
    given = {key: value for key, _, value in (word.partition("=") for word in words) if key in own}
    others = [word for word in words if word.partition("=")[0] not in own]
    if not any(word.startswith("algo=") for word in others):
        others.append(f"algo={ALGORITHM}")
    settings = compose([*others, "num_worlds=1"])
    refuse_base(others, settings)
    if "privileged" in settings["algo"]:
        settings["algo"]["privileged"] = False  # on a robot nobody tells critics more
    module, config = learners.algorithm(settings)
    build, pictures = explorer_of(module, settings["algo"]["name"]), seen_by_policy(settings, module, given.get("seen"))
    task = told_policy(environments.make_task(settings), settings, pictures)
    refuse_simulated(config)
    success = given.get("success", FORMULA)
    threshold = number(given, "threshold", 0.0, 0.0, 1.0) if "threshold" in given else None
    reward = choice(given, "reward", REWARDS)
    settings = environments.resolved(settings)
    agreed = agreement(task, settings, config, judged(success, threshold, reward), task.steps, correction,
                       pictures)
    if agreed.largest > LARGEST:
        raise BadInput(f"an episode of {task.steps} steps of this task has up to {agreed.largest:,} bytes; at most "
                       f"{LARGEST:,} are delivered: a shorter episode, or smaller signals")
    return Common(settings, task, config, build, agreed, path(given, "token"), path(given, "tls"),
                  flag(given, "plaintext", False), success, threshold, reward), given


def explorer_of(module: Any, name: str) -> Callable[..., Any]:
    """The algorithm of a module: its class that tries actions."""
    own = [value for value in vars(module).values()
           if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "explore")]
    if len(own) != 1:
        raise BadInput(f"algo={name} does not learn from what an actor delivers; those that do: rlpd, sac, td3")
    found: Callable[..., Any] = own[0]
    return found


def refuse_simulated(config: OffPolicyConfig) -> None:
    """Refuse settings that need worlds that can be set, or that do not act as they learn."""
    for name in ("base_episodes", "snapshots", "ramp_steps", "keep_best"):
        if getattr(config, name, 0):
            raise BadInput(f"algo.{name}={getattr(config, name)} is for worlds in simulation, and an actor has none of "
                           f"them: algo.{name}={'false' if getattr(config, name) is True else 0}")


@dataclass(frozen=True)
class LearnerWords:
    """What a learner is asked. ``publish_s``: between publications of weights."""

    common: Common
    folder: Path
    listen: str
    publish_s: float


def learner_words(words: Sequence[str], correction: Mapping[str, Any] | None = None) -> LearnerWords:
    """The request of ``temporeal learner``. ``correction``: of the base that the policy corrects
    (:func:`temporeal.policies.robot_learning.corrections.asked`)."""
    both, own = common(words, LEARNER, correction)
    if correction and both.settings.get("dataset"):
        raise BadInput(f"dataset={both.settings['dataset']}: its actions are whole commands, and with --correct the "
                       "policy learns corrections; interventions are of the same kind")
    return LearnerWords(both, run_folders.run_folder(both.settings),
                        check_address(own.get("listen", "127.0.0.1:15061"), "listen"),
                        number(own, "publish", 2.0, 0.01, 3600.0))


@dataclass(frozen=True)
class ActorWords:
    """What an actor is asked.

    Args:
        folder: where episodes wait. connect: the learner.
        episodes: to make; None: until it is stopped. weights_s: between questions for new weights.
        explore: try actions; False: the deterministic policy.
        intervene: the person's device, or none; speed: of the action at its full deflection.
        leader, interface, domain: of a leader arm on the bus.
        reset: world, ask, or the folder of a policy; reset_formula: what it makes true, within reset_s.
        deliver_s: at the end, how long to wait until all episodes are delivered.
        priority: of the control loop: realtime, normal, or auto: real-time where that is permitted.
    """

    common: Common
    folder: Path
    connect: str
    episodes: int | None
    weights_s: float
    explore: bool
    intervene: str
    speed: float
    leader: str
    interface: str | None
    domain: int | None
    reset: str
    reset_formula: str
    reset_s: float
    deliver_s: float
    priority: str


def actor_words(words: Sequence[str], correction: Mapping[str, Any] | None = None) -> ActorWords:
    """The request of ``temporeal actor``. ``correction``: as the learner's."""
    both, own = common(words, ACTOR, correction)
    settings = both.settings
    if both.token is None:
        raise BadInput("token=FILE is needed: the learner writes it into its run's folder, RUN/token; copy it (mode "
                       "600)")
    title = run_folders.title_of(settings)
    folder = Path(str(settings["out"] or f"outputs/actor/{title}-{settings['algo']['name']}-{settings['seed']}"))
    reset = own.get("reset", "world")
    if (reset not in ("world", "ask")) != ("reset_formula" in own):
        raise BadInput("reset=POLICY, the folder of a run, and reset_formula='...', what it is to make true, go "
                       "together")
    return ActorWords(
        both, folder, check_address(own.get("connect", "127.0.0.1:15061"), "connect"),
        whole(own, "episodes", None, 1), number(own, "weights", 1.0, 0.01, 3600.0), flag(own, "explore", True),
        own.get("intervene", "none"), number(own, "speed", 1.0, 1e-6, 1.0), own.get("leader", "/leader"),
        own.get("interface"), whole(own, "domain", None, 0), reset, own.get("reset_formula", ""),
        number(own, "reset_seconds", 10.0, 0.0, 3600.0), number(own, "deliver", 10.0, 0.0, 86400.0),
        choice(own, "priority", PRIORITIES))


def number(own: Mapping[str, str], key: str, default: float, low: float, high: float) -> float:
    """The number ``key`` from ``low`` to ``high``."""
    try:
        value = float(own[key]) if key in own else default
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise BadInput(f"{key}={own[key]}: a number from {low:g} to {high:g}")
    return value


def whole(own: Mapping[str, str], key: str, default: int | None, least: int) -> int | None:
    """The whole number ``key``."""
    if key not in own:
        return default
    if not own[key].isdecimal() or int(own[key]) < least:
        raise BadInput(f"{key}={own[key]}: a whole number from {least}")
    return int(own[key])


def flag(own: Mapping[str, str], key: str, default: bool) -> bool:
    """``key=true``."""
    text = own.get(key, str(default)).lower()
    if text not in (*YES, *NO):
        raise BadInput(f"{key}={own[key]}: true or false")
    return text in YES


def choice(own: Mapping[str, str], key: str, legal: Sequence[str]) -> str:
    """One of the ``legal`` words, the first where none is said."""
    if own.get(key, legal[0]) not in legal:
        raise BadInput(f"{key}={own[key]}: legal are {', '.join(legal)}")
    return own.get(key, legal[0])


def path(own: Mapping[str, str], key: str) -> Path | None:
    """A path, or None."""
    return Path(own[key]) if own.get(key) else None


