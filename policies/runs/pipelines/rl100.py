"""RL-100's pipeline as one run: its stages in folders of their own, each resumed where it stopped, and a report of what
each of them reached on the same fresh episodes.

    OUT/stages.json     the stages that are done
    OUT/report.json, report.txt
    OUT/imitation, offline-1, collect-1, ..., online, one_step     runs, and datasets
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import environments, learners, run_folders
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.interrupts import Interrupted
from temporeal.policies.runs.pipelines import collecting
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.settings.files import Settings, read
from temporeal.policies.runs.trained_run import TrainedRun

if TYPE_CHECKING:
    from types import ModuleType

    from temporeal.policies.algos.rl100 import RL100Config

REPORT, TEXT = "report.json", "report.txt"


Learn = Callable[..., TrainedRun]
""":func:`temporeal.policies.runs.training.train`, which trains the run of a stage."""


def train(
    settings: Settings, module: ModuleType, config: RL100Config, learn: Learn, *, overwrite: bool = False,
    quiet: bool = False, again: str = "",
) -> TrainedRun:
    """Run all stages as the settings say, each by ``learn``."""
    if not settings.get("dataset"):
        raise BadInput("algo=rl100 begins with episodes: dataset=FOLDER; `temporeal data generate` makes a set, "
                       "`temporeal data record` records one")
    started, folder = time.perf_counter(), run_folders.run_folder(settings)
    settings = environments.resolved(settings)
    stages = Stages(settings, config, folder, learn, quiet=quiet, again=again)
    stages.check()
    if run_folders.resumes(settings):
        check_same(folder, settings)
        stages.done = read_done(folder, module.STATE)
        module.train(Path(str(settings["dataset"])), config, stages=stages)
    else:
        with run_folders.opened_run(settings, folder, overwrite):
            module.train(Path(str(settings["dataset"])), config, stages=stages)
    last = [stage for stage in stages.done if stage["kind"] == "policy"][-1]
    figures = {key: float(last[key]) for key in ("success",) if key in last}
    return TrainedRun(folder, time.perf_counter() - started, 0, figures, tuple(told(stages.done)))


def check_same(folder: Path, settings: Settings) -> None:
    """A resumed pipeline is the same one."""
    if not run_folders.is_run(folder):
        raise BadInput(f"nothing to resume: {folder} is no run; start without resume=true")
    if settings["resume"] is not True:
        raise BadInput(f"resume={settings['resume']}: a pipeline goes on with the stage that is not done: resume=true")
    before = read(folder / run_folders.CONFIG)
    run_folders.check_same(before, settings)
    for name in ("algo", "dataset"):
        if found := run_folders.difference(name, before.get(name), settings.get(name)):
            raise BadInput(f"resume: {found[0]} of the run is {found[1]}, now {found[2]}; resume with the settings it "
                           "was started with")


def read_done(folder: Path, name: str) -> list[dict[str, Any]]:
    """The stages that are done; none where the first one is not."""
    from temporeal.robots.handed_over.files import Refused, read_text

    if not (folder / name).exists():
        return []
    try:
        done: list[dict[str, Any]] = json.loads(read_text(folder / name, within=folder))["done"]
        return [{**stage, "name": str(stage["name"]), "kind": str(stage["kind"])} for stage in done]
    except (ValueError, TypeError, LookupError, Refused) as error:
        raise BadInput(f"{folder / name} does not say which stages are done ({type(error).__name__}: {error}); "
                       "--overwrite instead of resume=true starts anew") from error


class Stages:
    """The stages of one pipeline: :class:`temporeal.policies.algos.rl100.Stages`.

    Attributes:
        done: what is known of each stage that is: name, kind (policy or data), seconds; where it was judged, success
            with its interval; of an offline iteration, how many policies its gate accepted and refused.
    """

    def __init__(
        self, settings: Settings, config: RL100Config, folder: Path, learn: Learn, *, quiet: bool, again: str
    ) -> None:
        self.settings, self.config, self.folder, self.learn = settings, config, folder, learn
        self.quiet, self.again = quiet, again
        self.done: list[dict[str, Any]] = []

    def check(self) -> None:
        """Refuse settings of any stage before the first one begins."""
        for name, algo in (("imitation", self.config.base), ("offline", "rl100_offline"),
                           ("online", self.config.tuner), ("one_step", "consistency")):
            if algo != "none":
                try:
                    learners.algorithm(self.settings_of(name, algo, None, None))
                except (BadInput, ValueError) as error:
                    raise BadInput(f"algo.stages.{name}: {error}") from error

    def learned(self, name: str, algo: str, *, data: Path | None = None, policy: Path | None = None) -> Path:
        """The run of a stage, by an algorithm, from a dataset or of the run ``policy``."""
        folder = self.folder / name
        if self.is_done(name):
            return folder
        started = time.perf_counter()
        begun = any((folder / run_folders.CHECKPOINTS).glob("*.pt"))
        settings = {**self.settings_of(name, algo, data, policy), "resume": begun or None}
        try:
            self.learn(settings, overwrite=not begun, quiet=self.quiet)
        except Interrupted as stop:
            told = f"stopped in stage {name} ({signal.Signals(stop.number).name})"
            raise Interrupted(stop.number, f"{told}; go on with: {self.again}" if self.again else told) from None
        except BadInput as error:
            raise BadInput(f"stage {name}: {error}") from error
        self.finish({"name": name, "kind": "policy", "algo": algo, "seconds": time.perf_counter() - started,
                     **gated(folder, algo), **self.judged(folder)})
        return folder

    def recorded(self, name: str, policy: Path, data: Path) -> Path:
        """``data``, and episodes that the run ``policy`` recorded."""
        folder = self.folder / name
        if self.is_done(name):
            return folder
        started, number = time.perf_counter(), int(name.rpartition("-")[2])
        asked = collecting.Recording(self.config.record, self.config.record_noise, self.config.execute,
                                     self.settings["seed"] + number * collecting.APART)
        own = folder.with_name(f"{name}-own")
        made = collecting.recorded(self.settings, policy, asked, own)
        collecting.joined([data, own], folder)
        success = {} if made.success is None else {"recorded_success": made.success.estimate}
        self.finish({"name": name, "kind": "data", "episodes": made.episodes,
                     "seconds": time.perf_counter() - started, **success})
        return folder

    def settings_of(self, name: str, algo: str, data: Path | None, policy: Path | None) -> Settings:
        """The settings of a stage's run."""
        own = dict(self.config.stages.get(name.partition("-")[0], {}))
        group = compose([f"algo={algo}"])["algo"]
        if unknown := [key for key in own if key not in group]:
            raise BadInput(f"algo={algo} has no setting {unknown[0]!r}; legal: {', '.join(key for key in group)}")
        quiet = {key: 0 for key in ("evaluate_updates",) if key in group}  # each stage is judged when it is done
        given = {"execute": self.config.execute, "ensemble": self.config.ensemble, **quiet, **own}
        if "policy" in group:
            given["policy"] = str(policy or "RUN")
        return {**self.settings, "algo": {**group, **given}, "dataset": None if data is None else str(data),
                "out": str(self.folder / name), "resume": None}

    def judged(self, run: Path) -> dict[str, Any]:
        """What the policy of a stage reaches on fresh episodes, which are the same for all stages."""
        from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
        from temporeal.policies.runs.trained import load_trained

        if not self.config.episodes:
            return {}
        trained = load_trained(run)
        found = evaluate_on(trained, trained.settings, self.settings["backend"]["name"],
                            EvaluationConfig(self.config.episodes)).evaluation
        share = found.satisfied
        return {"success": share.estimate, "low": share.low, "high": share.high, "confidence": share.confidence,
                "episodes": share.trials, "robustness": found.robustness.median}

    def is_done(self, name: str) -> bool:
        """Whether the stage is."""
        return any(stage["name"] == name for stage in self.done)

    def finish(self, stage: Mapping[str, Any]) -> None:
        """Enter a stage that is done, and write the report anew."""
        from temporeal.policies.algos.rl100 import STATE
        from temporeal.robots.atomic_files import write_whole

        self.done.append(dict(stage))
        text = json.dumps({"done": self.done}, indent=1)
        with bad_input():
            write_whole(self.folder / REPORT, json.dumps({"stages": self.done, "settings": self.settings},
                                                         indent=1, default=str).encode())
            write_whole(self.folder / TEXT, "\n".join([*told(self.done), ""]).encode())
            write_whole(self.folder / STATE, text.encode())


def gated(run: Path, algo: str) -> dict[str, Any]:
    """What the gate of an offline iteration said."""
    from temporeal.policies.training import offline_learner

    if algo != "rl100_offline":
        return {}
    memory = offline_learner.read(run)["optimizers"]["memory"]
    return {"accepted": int(memory["accepted"]), "refused": int(memory["refused"]), "gate": list(memory["why"])}


def told(done: list[dict[str, Any]]) -> list[str]:
    """A line for each stage."""
    lines = []
    for stage in done:
        parts = []
        if "success" in stage:
            parts.append(f"success {stage['success']:.3f} [{stage['low']:.3f}, {stage['high']:.3f}] of "
                         f"{stage['episodes']} fresh episodes")
        if "accepted" in stage:
            parts.append(f"the gate accepted {stage['accepted']} policies, refused {stage['refused']}")
        if stage["kind"] == "data":
            share = f", {stage['recorded_success']:.3f} of them succeeded" if "recorded_success" in stage else ""
            parts.append(f"{stage['episodes']} episodes recorded{share}")
        parts.append(f"{stage['seconds']:.0f} s")
        lines.append(f"{stage['name']}: {'; '.join(parts)}")
    return lines
