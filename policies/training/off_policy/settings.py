"""Settings of all learners that learn in a simulation from what they remember of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from temporeal.policies.nets.ensembles import PRECISIONS
from temporeal.policies.training.errors import SettingsError, choose, require, require_kinds, require_widths
from temporeal.policies.training.progress import CLOCKS

MAY_CHANGE = ("total_steps", "max_seconds", "clock", "checkpoint_seconds", "report_steps", "evaluate_steps",
              "evaluate_episodes", "threads")
"""Between a run and its resumption. Members of an ensemble are computed apart, so the result does not depend on
``threads``."""
POLICY_VALUES = ("least", "mean")
REWARDS = ("task", "data")
HALF = 0.5  # of a batch is demonstrated, unless another share is said


@dataclass(frozen=True)
class OffPolicyConfig:
    """Settings of SAC and TD3, those of RLPD among them.

    Args:
        total_steps: control steps of all worlds, the budget.
        max_seconds: of the clock, earlier parts of a resumed run included; None: no limit.
        clock: "wall", or "cpu": time that the process computes.
        updates_per_step: updates of the critics per control step of a world: the update-to-data ratio.
        warmup: control steps of random actions before the first update.
        batch: steps of an update.
        size: control steps that are remembered; the oldest are forgotten first.
        n_step: rewards that are summed before a value is asked for; fewer where an episode ends.
        gamma: discount per control step.
        priority: exponent of a step's last error in the chance that it is drawn (Schaul et al. 2016, alpha of eq. 1),
            of demonstrations likewise; 0: all alike.
        priority_correction: of the bias that this makes, in the critics' loss (beta of its section 3.4): 1: all of it.
        demonstrations: share of each batch that is drawn from the episodes of ``dataset=FOLDER`` (symmetric sampling:
            Ball et al. 2023, RLPD); None: half where there is such a dataset, else all is replay.
        demonstration_bonus: that a demonstrated step's error counts more where steps are drawn from one pool of replay
            and demonstrations by ``priority`` (Vecerik et al. 2017, DDPGfD, arXiv 1707.08817: epsilon_D), in place of a
            share; None: a share.
        imitation: weight of the squared distance between the policy's action and what was demonstrated, in the
            policy's loss and in units of the critics' mean absolute value there (Fujimoto and Gu 2021, arXiv
            2106.06860, eq. 5); 0: none.
        imitation_filter: only where the critics rate what was demonstrated higher than the policy's action (Nair et al.
            2018, arXiv 1709.10089, eq. 5).
        snapshots: share of episodes, at first, that begin at states of the episodes in ``dataset=FOLDER``: a teacher's
            trajectories (Zhao et al. 2024, SnapshotRL, arXiv 2403.00673); such episodes count in no figure.
        snapshot_steps: control steps over which the share falls linearly to 0; None: it stays.
        snapshot_length: control steps, on average, after which such episodes are cut off (its student trajectory
            truncation), in a share of worlds, all of whose episodes begin so; None: they go on to their end.
        base_episodes: of a residual: episodes of its base alone, played first, which are demonstrations beside those of
            ``dataset=FOLDER``; 0: none.
        base_failures: share of those that fail which is kept, too: of successes alone, values do not depend on the
            action.
        demonstration_reward: "task": computed from the episodes' signals, as the simulation pays it; "data": as stored.
        privileged: the critics read what the task tells critics alone, such as true velocities. With cameras they read
            what the actor reads: they would not need what their error is to teach the eyes.
        hide: signals that the actor must find in pictures, and the critics with it.
        keypoints: features whose places are found in each picture.
        shift: pixels by which each picture is moved at random in an update (Yarats et al. 2021, DrQ-v2: 4 of 84).
        hidden: widths of all networks.
        critics: in the ensemble.
        subset: of these, drawn at each update, whose least target counts (Chen et al. 2021, REDQ).
        layer_norm: in the critics: their values stay bounded where no data are (RLPD).
        policy_value: what the policy climbs: the "least" critic, or the "mean" of the ensemble.
        policy_every: updates of the critics for one of the policy.
        critic_first: updates of the critics alone, before the policy's first.
        ramp_steps: control steps after the warmup over which the policy's share of its own action grows from 0 to 1,
            where it explores, learns, is evaluated and is kept alike (Yuan et al. 2024, Policy Decorator, arXiv
            2412.13630, section 4.2, where it grows by chance); 0: all of it at once.
        value_range: least and greatest return there can be, which targets are cut to; None: they are not.
        learning_rate: of Adam, for the critics; policy_rate: for the policy.
        target_rate: of the target networks' moving average, per update.
        precision: of products between hidden layers in updates: float32, or bfloat16.
        normalize_observations: by their running mean and standard deviation.
        report_steps: control steps between reports; an interrupted run stops after one.
        evaluate_steps: between evaluations of the deterministic policy on fresh episodes, at reports, which log their
            figures; 0: none.
        evaluate_episodes: of such an evaluation.
        keep_best: the run's policy is the best one by its evaluations, of which the first is before the first step;
            else the last.
        checkpoint_seconds: between checkpoints, which hold all that is remembered; 0: after each report.
        threads: that share the critics.
    """

    total_steps: int = 1_000_000
    max_seconds: float | None = None
    clock: str = "wall"
    updates_per_step: float = 1.0
    warmup: int = 5_000
    batch: int = 256
    size: int = 1_000_000
    n_step: int = 1
    gamma: float = 0.99
    priority: float = 0.0
    priority_correction: float = 0.5
    demonstrations: float | None = None
    demonstration_bonus: float | None = None
    imitation: float = 0.0
    imitation_filter: bool = True
    snapshots: float = 0.0
    snapshot_steps: int | None = None
    snapshot_length: int | None = None
    base_episodes: int = 0
    base_failures: float = 1.0
    demonstration_reward: str = "task"
    privileged: bool = True
    hide: tuple[str, ...] = ()
    keypoints: int = 16
    shift: int = 3
    hidden: tuple[int, ...] = (128, 128)
    critics: int = 2
    subset: int = 2
    layer_norm: bool = True
    policy_value: str = "least"
    policy_every: int = 1
    critic_first: int = 0
    ramp_steps: int = 0
    value_range: tuple[float, float] | None = None
    learning_rate: float = 3e-4
    policy_rate: float = 3e-4
    target_rate: float = 0.005
    precision: str = "float32"
    normalize_observations: bool = True
    report_steps: int = 1000
    evaluate_steps: int = 0
    evaluate_episodes: int = 128
    keep_best: bool = False
    checkpoint_seconds: float = 60.0
    threads: int = 1

    def __post_init__(self) -> None:
        require_kinds(self)
        require(self, total_steps="[1, inf)", max_seconds="(0, inf)", updates_per_step="(0, inf)", warmup="[0, inf)",
                batch="[2, inf)", size="[1, inf)", n_step="[1, inf)", gamma="[0, 1]", demonstrations="[0, 1]",
                priority="[0, 1]", priority_correction="[0, 1]", critics="[1, inf)", subset="[1, inf)",
                policy_every="[1, inf)", learning_rate="(0, inf)", policy_rate="(0, inf)", target_rate="(0, 1]",
                report_steps="[1, inf)", evaluate_steps="[0, inf)", evaluate_episodes="[1, inf)",
                checkpoint_seconds="[0, inf)", threads="[1, inf)", demonstration_bonus="[0, inf)",
                imitation="[0, inf)", snapshots="[0, 1]", snapshot_steps="[1, inf)", snapshot_length="[1, inf)",
                keypoints="[1, inf)", shift="[0, inf)", base_episodes="[0, inf)", base_failures="[0, 1]",
                critic_first="[0, inf)", ramp_steps="[0, inf)")
        require_widths(self, "hidden")
        choose(self, clock=tuple(CLOCKS), policy_value=POLICY_VALUES, precision=tuple(PRECISIONS),
               demonstration_reward=REWARDS)
        if self.demonstration_bonus is not None and not self.priority:
            raise SettingsError(f"algo.demonstration_bonus={self.demonstration_bonus:g} is of errors that steps are "
                                "drawn by: algo.priority=0.6, or algo.demonstration_bonus=null")
        if self.demonstration_bonus is not None and self.demonstrations is not None:
            raise SettingsError(f"algo.demonstrations={self.demonstrations:g} of each batch are demonstrated, or as "
                                f"many as algo.demonstration_bonus={self.demonstration_bonus:g} draws: one of the two, "
                                "and null")
        if self.subset > self.critics:
            raise SettingsError(f"algo.subset is of the {self.critics} critics, got {self.subset}")
        if self.updates_per_step * (self.total_steps - self.warmup) < 1.0:
            raise SettingsError(f"no update would be made: algo.warmup={self.warmup} steps of the "
                                f"algo.total_steps={self.total_steps} only explore, and each of the others pays for "
                                f"algo.updates_per_step={self.updates_per_step:g}")
        if 0 < self.evaluate_steps < self.report_steps:
            raise SettingsError(f"policies are evaluated at reports: algo.evaluate_steps={self.evaluate_steps} is at "
                                f"least algo.report_steps={self.report_steps}, or 0")
        if self.keep_best and not self.evaluate_steps:
            raise SettingsError("algo.keep_best=true is of evaluations, and there are none: algo.evaluate_steps=5000, "
                                "or algo.keep_best=false")
        if self.value_range is not None and not (len(self.value_range) == 2 and self.value_range[0]
                                                 < self.value_range[1]):
            raise SettingsError(f"algo.value_range={list(self.value_range)}: the least and the greatest return, as "
                                "[0, 1], or null")

    def share_of_snapshots(self, steps: int) -> float:
        """Of the episodes that begin after so many control steps."""
        return self.snapshots * (max(0.0, 1.0 - steps / self.snapshot_steps) if self.snapshot_steps else 1.0)

    def reach(self, steps: int) -> float:
        """The policy's share of its own action after so many control steps."""
        return min(1.0, max(0.0, (steps - self.warmup) / self.ramp_steps)) if self.ramp_steps else 1.0

    @property
    def updates(self) -> int:
        """The budget as :mod:`temporeal.policies.training.budget` counts it: here in control steps."""
        return self.total_steps

    @property
    def demonstrated(self) -> int:
        """Steps of a batch that are drawn from demonstrations, where there are some."""
        return round((HALF if self.demonstrations is None else self.demonstrations) * self.batch)


def require_demonstrations(config: OffPolicyConfig, given: bool) -> None:
    """Refuse demonstrations of which nothing is drawn, and a share of them where none are ``given``; a base's own
    episodes are some."""
    given = given or bool(config.base_episodes)
    for name in ("imitation", "snapshots"):
        if getattr(config, name) and not given:
            raise SettingsError(f"algo.{name}={getattr(config, name):g} is of what dataset=FOLDER demonstrates, and it "
                                f"is not given; or algo.{name}=0")
    if given and not config.demonstrated and not config.snapshots:
        raise SettingsError(f"algo.demonstrations={config.demonstrations:g} of algo.batch={config.batch} are 0 rows: "
                            f"nothing is learned from dataset=; at least {1.0 / config.batch:g}, or leave dataset= out")
    if config.demonstrations and not given:
        raise SettingsError(f"algo.demonstrations={config.demonstrations:g} of each batch are of dataset=FOLDER, and "
                            "it is not given; to learn without demonstrations say algo=sac instead of algo=rlpd, or "
                            "algo.demonstrations=null")


def plain(config: OffPolicyConfig) -> dict[str, Any]:
    """The settings as plain values."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
