"""``temporeal bench stl-tasks``: methods that satisfy formulas, compared on the suite."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

from temporeal.policies.cli.exclusive_folder import Lock, held
from temporeal.policies.cli.workers import STARTED_BY
from temporeal.policies.evaluate.suite import suite
from temporeal.policies.evaluate.suite.suite import METHODS, SYSTEMS, Trial
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.interrupts import Interrupted, on_signals
from temporeal.policies.training.progress import clock
from temporeal_benchmarks.measurements.sim_learning import git, machine, say
from temporeal_benchmarks.rows import Row
from temporeal_benchmarks.stl_study.rows import TRIED, rows_of

HELP = (
    "the suite of formulas (configs/task/stl): TGPO, without its critic's guidance, without its starts in the "
    "middle of missions, and its baselines, each formula, method and seed a process of its own, on one core, with the "
    "same CPU time per system; judged on 1000 fresh starts (planners: as many as their time allows) by the formula's "
    "exact Boolean verdict, Clopper-Pearson intervals. Options: --systems, --methods, --tasks, --seeds, each a list "
    "such as linear,unicycle; --parallel. "
    "Everything takes days: it is cut into trials that are kept in outputs/bench/stl-tasks while settings and code are "
    "the same, so it goes on where it was; the page there, index.html, and tables.md are written anew after each. "
    "--quick: two formulas, short, within 10 minutes"
)
DAYS = True  # of computing, for all methods, formulas and seeds: `bench --all` leaves it to who names it

SAME = ("the formula's file, the budget and the settings are the same (trials of before keep no digest of all their "
        "settings: of these only those on the command line are compared, and their method's defaults may be others)")
OPTIONS = {
    "systems": "robots of the suite, such as linear,unicycle (default: all)",
    "methods": f"of {','.join(METHODS)} (default: all; quick: without {suite.HOME})",
    "tasks": "formulas, such as linear_reach,linear_seq (default: all of the systems)",
    "seeds": "whole numbers (default: 1,2,3; quick: 1)",
    "keep": f"a study.json of before: its trials are taken over where {SAME}, whatever the code was; the page says how "
            "many, and of how many all settings are not known",
    "judge": f"a folder of this benchmark: policies that were trained there are judged by the code of now instead of "
             f"training anew where {SAME}; such a trial names both revisions",
    "parallel": "trials at once, each on a core of its own (default: as many as there are cores)",
}
NAME = "temporeal bench stl-tasks"
STUDY = Path("outputs/bench/stl-tasks")
SEEDS = (1, 2, 3)
EPISODES = suite.STARTS
CPU_CLOCK = "algo.clock=cpu"
ENDLESS = 10**12  # updates or steps: the budget of time is what ends a training
HUNG = 20.0  # times its budget of CPU time: a trial that takes so long by the clock hangs; a busy machine is no fault
SPARE = 3600.0  # s beyond that, for what is not in the budget
HEEDS = 1.0  # s, chosen: a trial that is ended has them to end by itself, for nothing of it is kept
DYING = 1.0  # s, chosen: a folder whose study was killed is free as soon as its trials are gone, too
QUICK = "quick"  # folder of its trials
QUICK_TASKS, QUICK_SEEDS = ("linear_reach", "linear_seq"), (1,)
QUICK_WITHOUT = (suite.HOME,)  # methods that there is no time for
QUICK_BUDGET, QUICK_EPISODES = 30.0, 256
QUICK_LIMIT, QUICK_TRIAL = 570.0, 90.0  # s: of all that it starts, of one trial at most
GIVEN_UP = "given up after"  # what is said of a trial that took too long
AROUND = 15.0  # s that a trial takes beside its budget, before one was seen
WIDTH = 100  # of the line that is drawn on a terminal
WORKER = "temporeal_benchmarks.stl_study.trial"
CODE = ("robots", "sim", "policies/algos", "policies/planners", "policies/training", "policies/nets", "configs/config.yaml", "configs/algo", "configs/backend",
        "configs/robot", "configs/randomize", "configs/curriculum", "configs/experiment", "configs/task/stl",
        "policies/cli/settings.py", "policies/cli/verbs/train.py", "policies/cli/runs.py",
        "benchmarks/stl_study/trial.py", "policies/evaluate/evaluation.py", "policies/evaluate/run_outputs.py",
        "policies/evaluate/full_horizon.py", "policies/evaluate/partial.py", "policies/evaluate/rollout.py")
"""What a trial depends on; of other systems, methods and formulas nothing does."""
ASKED = ("system", "formula", "constants", "start", "episode_s")
"""Settings of a formula's file that say what is asked for; the others are for methods."""
OF_METHODS = ("view", "of_view", "reward")
"""Settings of the task that a method has, not a formula's file."""
ROOM = ("slack", "margin")
"""Settings of the task that are TGPO's alone, of which the formula says how large they may be."""
ALONE = ("apg", "cem", "milp", "npc", "reflex", "tgpo")  # algorithms that no other one needs


# ---------------------------------------------------------------- what to run


@dataclass(frozen=True)
class Item:
    """A trial to be made."""

    task: str
    method: str
    seed: int
    quick: bool = False

    @property
    def system(self) -> str:
        """The robot."""
        return suite.system_of(self.task)

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.task}-{self.method}-{self.seed}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.task}, {METHODS[self.method].title}, seed {self.seed}"

    @property
    def budget_s(self) -> float:
        """CPU time of its training, or of its planning: on a core of its own, that is wall time."""
        return QUICK_BUDGET if self.quick else SYSTEMS[self.system].budget_s

    @property
    def episodes(self) -> int:
        """Fresh starts that it is judged on."""
        return QUICK_EPISODES if self.quick else EPISODES

    @property
    def words(self) -> list[str]:
        """Settings besides formula, seed and folder."""
        method, system = METHODS[self.method], SYSTEMS[self.system]
        replan = [f"algo.replan={system.replan}"]
        budget = [f"algo.max_seconds={self.budget_s}", CPU_CLOCK]
        own = {suite.LEARNER: [*system.words, *budget, f"algo.total_steps={ENDLESS}", "algo.threads=1"],
               suite.MODEL: [*budget, f"algo.updates={ENDLESS}", *replan],
               suite.PLANNER: replan}[method.kind]
        return ["threads=1", *method.words, *own, *system.of.get(self.method, ())]


def selection(
    tasks: Sequence[str], quick: bool, systems: Sequence[str] | None, methods: Sequence[str] | None,
    wanted: Sequence[str] | None, seeds: Sequence[str] | None,
) -> list[Item]:
    """The trials asked for, all of the first seed first; ``tasks``: those that there are."""
    known = [system for system in SYSTEMS if any(suite.system_of(task) == system for task in tasks)]
    robots = chosen("systems", systems, known)
    own = [task for task in tasks if suite.system_of(task) in robots]
    default = [task for task in QUICK_TASKS if task in own] if quick and systems is None else _few(own, quick)
    formulas = chosen("tasks", wanted, own, default)
    numbers = _seeds(seeds, QUICK_SEEDS if quick else SEEDS)
    usual = [method for method in METHODS if not (quick and method in QUICK_WITHOUT)]
    which = chosen("methods", methods, list(METHODS), usual)
    items = [Item(task, method, seed, quick) for seed in numbers for task in formulas for method in which
             if METHODS[method].systems is None or suite.system_of(task) in METHODS[method].systems]
    if not items:
        told = "; ".join(f"{method} is for {', '.join(METHODS[method].systems or SYSTEMS)}" for method in which)
        raise BadInput(f"there is nothing to do: none of {', '.join(formulas) or 'no formula'} is of a system that a "
                       f"method takes ({told})")
    return items


def _few(tasks: Sequence[str], quick: bool) -> list[str]:
    """Of a quick run on named systems: the two first formulas of each."""
    if not quick:
        return list(tasks)
    by_system: dict[str, list[str]] = {}
    for task in tasks:
        by_system.setdefault(suite.system_of(task), []).append(task)
    return [task for found in by_system.values() for task in found[:2]]


def chosen(
    option: str, given: Sequence[str] | None, known: Sequence[str], default: Sequence[str] | None = None
) -> list[str]:
    """What is ``given``, checked, in the order of ``known``; the default where nothing is."""
    if given is None:
        return list(known if default is None else default)
    unknown = [word for word in given if word not in known]
    if unknown or not given:
        told = f"there is no {unknown[0]!r}" if unknown else "name at least one"
        raise BadInput(f"--{option}: {told}; legal: {', '.join(known)}")
    return [word for word in known if word in given]


def _seeds(given: Sequence[str] | None, default: Sequence[int]) -> list[int]:
    from temporeal.policies.runs.learners import check_training_seed

    words = [str(seed) for seed in default] if given is None else given
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise BadInput(f"--seeds: whole numbers from 0, such as 1,2,3; got {','.join(words) or 'none'}")
    numbers = [int(word.lstrip("0")[:20] or 0) for word in words]  # 20 digits are too many; of thousands, int() crashes
    for number in numbers:
        try:
            check_training_seed(number)
        except BadInput as error:
            raise BadInput(f"--seeds: {error}") from error
    return list(dict.fromkeys(numbers))


def suite_tasks() -> list[str]:
    """The formulas that there are, of systems of the suite."""
    from temporeal.policies.runs.settings.folders import groups

    names = [name.removeprefix("stl/") for name in groups()["task"] if name.startswith("stl/")]
    order = list(SYSTEMS)
    return sorted((n for n in names if suite.system_of(n) in SYSTEMS),
                  key=lambda n: (order.index(suite.system_of(n)), suite.steps_of(n) or 0, n))


def check_files(tasks: Iterable[str]) -> None:
    """The files of the formulas ``tasks`` can be used."""
    for task in tasks:
        if found := flaw(task):
            raise BadInput(found)


def flaw(task: str) -> str:
    """What is wrong with a formula's file that is the user's own, the formula in it too; empty where nothing is."""
    from temporeal.policies.runs.settings.folders import file_of

    ours = Path(str(files("temporeal.configs"))) / "task" / "stl" / f"{task}.yaml"
    return "" if file_of("task", f"stl/{task}") == ours else _flaw(task, formula_digest(task))


@cache
def _flaw(task: str, digest: str) -> str:
    """:func:`flaw`, of the file that has this ``digest``."""
    from temporeal.policies.runs.settings import compose, folders
    from temporeal.robots.registry import resolve
    from temporeal.sim.task import default_of

    try:
        said = compose.compose([f"task=stl/{task}"])["task"]
    except BadInput as error:
        return str(error)
    system, _, rest = task.partition("_")
    own = (said.get("settings") or {}).get("system", default_of(resolve("temporeal.sim.tasks", said["name"]), "system"))
    if own == system:
        return _flaw_of_formula(task, said)
    other = f", or name it {own}_{rest}.yaml" if own in SYSTEMS else ""
    file = folders.file_of("task", f"stl/{task}")
    return (f"{file}: its name begins with {system!r}, but settings.system is {own!r}: say system: {system}{other}; "
            f"systems: {', '.join(SYSTEMS)}")


def _flaw_of_formula(task: str, said: Mapping[str, Any]) -> str:
    """What is wrong with the formula of a file that says ``said``, whatever a method makes of it."""
    from temporeal.policies.runs import environments
    from temporeal.policies.runs.settings import folders, values
    from temporeal.robots.registry import resolve
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.task import load_task

    given, file = said.get("settings") or {}, folders.file_of("task", f"stl/{task}")
    legal = [name for name in resolve("temporeal.sim.tasks", said["name"]).make.__kwdefaults__ if name not in OF_METHODS]
    if unknown := [name for name in given if name not in legal]:
        told = ("each method has its own: leave it out" if unknown[0] in OF_METHODS else
                f"legal: {', '.join(legal)}{values.hint(unknown[0], legal)}")
        return f"{file}: settings.{unknown[0]}: {told}"
    asked = {name: value for name, value in given.items() if name in ASKED}
    room = {name: value for name, value in given.items() if name in ROOM}
    try:
        environments.make_task({"task": {**said, "settings": {**asked, "view": "plain"}}})  # the view that takes all formulas
        if room:
            with suppress(FormulaError):  # one that is not TGPO's: its trial says so
                load_task(said["name"], **asked, **room)
    except (BadInput, ValueError) as error:
        return f"{file}: {error}"
    return ""


# ---------------------------------------------------------------- running


def run(
    quick: bool = False, *, out: Path = STUDY, systems: list[str] | None = None, methods: list[str] | None = None,
    tasks: list[str] | None = None, seeds: list[str] | None = None, keep: list[str] | None = None,
    judge: list[str] | None = None, parallel: list[str] | None = None,
) -> list[Row]:
    """Make the trials that are asked for and not there yet; rows and the page of all that are."""
    known = suite_tasks()
    items = selection(known, quick, systems, methods, tasks, seeds)
    at_once = crew(parallel)
    check_files({item.task: None for item in items})
    study = Study(out / QUICK if quick else out, known, quick)
    # a trial has the descriptor, too: none of a study that is gone writes beside another's
    with ExitStack() as stack:
        lock = stack.enter_context(held(study.folder, NAME, DYING))
        if keep is not None:
            taken = study.take_over(one("keep", "file", keep))
            say(f"{taken} trials of {keep[0]} are taken over")
        before = None if judge is None else with_policies(Path(one("judge", "folder", judge)))
        if before is not None and not before.samefile(study.folder):  # nobody trains them anew meanwhile
            stack.enter_context(held(before, NAME, DYING))
        return go_on(study, items, at_once, before, lock)


def go_on(study: Study, items: Sequence[Item], at_once: int, judge: Path | None, lock: Lock) -> list[Row]:
    """Make those of ``items`` that are not there yet, ``judge``: the policies of a folder where they suit; the rows."""
    todo = [item for item in items if study.kept(item) is None]
    say(f"{len(items)} trials, {len(items) - len(todo)} of them done already, in {study.folder}; {at_once} at once")
    progress = Progress(todo, at_once, time.monotonic() + QUICK_LIMIT if study.quick else None)
    before = {} if judge is None else policies_of(judge, study, todo)
    left = work_off(todo, study.folder, progress, study.write, before, lock)
    if left:
        say(f"{left} trials are left: the time of --quick is over, or one took longer than {QUICK_TRIAL:.0f} s, as on "
            "a machine that is busy; the same command makes them")
    rows = study.write()
    say(f"page: {study.folder / 'index.html'}")
    return rows


TRAINED = ("wall_s", "cpu_s", "peak_memory_B", "settings")  # what a training says of itself, and its folder does not


def with_policies(folder: Path) -> Path:
    """``folder``, if it is one of this benchmark that has policies."""
    if not (folder / "runs").is_dir():
        raise BadInput(f"--judge: {folder} has no policies: a folder of this benchmark, with runs/ in it, such as "
                       f"{STUDY}")
    return folder


def policies_of(folder: Path, study: Study, todo: Sequence[Item]) -> dict[str, dict[str, Any]]:
    """By the names of trials: what an order says of the policy that ``folder`` has for them."""
    now, out = git("rev-parse", "--short", "HEAD"), dict[str, dict[str, Any]]()
    for item in todo:
        found, run_folder = read(folder / f"{item.name}.json"), folder / "runs" / item.name
        if (found is not None and METHODS[item.method].kind == suite.LEARNER and found.get("status") == suite.DONE
                and not lacking(found) and study.suits(item, found) and run_folder.is_dir()):
            out[item.name] = {"run": str(run_folder), "trained": {k: found.get(k) for k in TRAINED}, "taken_over": True,
                              "parallel": found.get("parallel"), "revision": found["revision"], "judged_by": now}
    say(f"{len(out)} policies of {folder} are judged again")
    return out


def crew(given: Sequence[str] | None) -> int:
    """How many trials run at once: the cores that this process may use, unless told otherwise."""
    if given is None:
        return len(os.sched_getaffinity(0))
    number = one("parallel", "whole number from 1", given)
    if not (number.isascii() and number.isdigit()) or int(number) < 1:
        raise BadInput(f"--parallel: one whole number from 1, got {number}")
    return int(number)


def one(option: str, kind: str, given: Sequence[str]) -> str:
    """The only word that an option has."""
    if len(given) != 1:
        raise BadInput(f"--{option}: one {kind}, got {','.join(given) or 'none'}")
    return given[0]


def work_off(
    todo: Sequence[Item], folder: Path, progress: Progress, write: Callable[[], object],
    before: Mapping[str, dict[str, Any]] = MappingProxyType({}), lock: Lock = (),
) -> int:
    """Make the trials ``todo``, some at once, ``write`` after each; how many no time was left for. ``before``:
    :func:`policies_of`."""
    stop, left = threading.Event(), 0

    def halt(number: int, _: object) -> None:  # once: what is ended then takes a second or two, whoever insists
        if not stop.is_set():
            stop.set()
            raise Interrupted(number)

    def make(number: int) -> dict[str, Any] | None:
        limit = progress.limit(todo[number])
        if limit <= 0.0 or stop.is_set():
            return None
        progress.begin(number)
        found = made(todo[number], folder, limit, stop, progress.at_once, before.get(todo[number].name, {}), lock)
        if found["status"] == suite.FAILED and progress.cut_short(found):  # which says nothing of the method
            (folder / f"{todo[number].name}.json").unlink(missing_ok=True)
            return None
        return found

    with on_signals([signal.SIGINT, signal.SIGTERM], halt), ThreadPoolExecutor(progress.at_once) as pool:
        try:
            numbers = {pool.submit(make, number): number for number in range(len(todo))}
            waiting = set(numbers)
            while waiting:
                finished, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in finished:
                    number, found = numbers[future], future.result()
                    left += found is None
                    if found is not None:
                        progress.done(number, outcome(found))
                        write()
                progress.draw()
        finally:  # also where something interrupts: what runs is ended, what waits is not begun
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    return left


def made(
    item: Item, folder: Path, limit_s: float, stop: threading.Event, at_once: int, before: Mapping[str, Any],
    lock: Lock = (),
) -> dict[str, Any]:
    """Make one trial in a process of its own, of ``at_once``; what became of it, also where that failed. Kept in
    ``folder``. ``before``: of a policy that is there already (:func:`policies_of`)."""
    from temporeal.robots.atomic_files import write_whole

    file, log, order_file = (folder / f"{item.name}.{end}" for end in ("json", "log", "order"))
    run_folder = folder / "runs" / item.name
    order = {**asdict(item), "system": item.system, "words": item.words, "episodes": item.episodes,
             "budget_s": item.budget_s, "run": str(run_folder), "file": str(file), "code": code_digest(item),
             "formula_file": formula_digest(item.task), "revision": git("rev-parse", "--short", "HEAD"),
             "machine": machine(), "command": command(item), "parallel": at_once, "began": time.time(),
             **before}
    for old in (file, log):
        old.unlink(missing_ok=True)
    write_whole(order_file, json.dumps(order).encode())
    error = worked([sys.executable, "-m", WORKER, str(order_file)], log, limit_s, stop, lock)
    found = read(file)
    if found is None:
        found = {**order, "status": suite.FAILED, "reason": error or "it wrote no result"}
        write_whole(file, (json.dumps(found) + "\n").encode())
    else:
        log.unlink(missing_ok=True)
    order_file.unlink(missing_ok=True)
    shutil.rmtree(run_folder / "events", ignore_errors=True)
    return found


def command(item: Item) -> str:
    """What makes it by hand: trains it, or plans, which this benchmark alone does."""
    words = [f"task=stl/{item.task}", *item.words, f"seed={item.seed}"]
    if METHODS[item.method].kind == suite.PLANNER:
        return f"temporeal bench stl-tasks --tasks {item.task} --methods {item.method} --seeds {item.seed}"
    return f"temporeal train {shlex.join(words)}"


def worked(words: Sequence[str], log: Path, limit_s: float, stop: threading.Event, lock: Lock = ()) -> str:
    """Run a process until it ends, for ``limit_s`` at most; what it complained of, empty where all is well. ``stop``
    ends it, and so does whatever interrupts this one: then there is no answer. It has the ``lock`` as long as it
    lives."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", STARTED_BY: str(os.getpid()),
                   "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    until = time.monotonic() + limit_s
    with open(log, "wb") as out:
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   pass_fds=lock, start_new_session=True)  # what interrupts is for the study to heed
    try:
        while process.poll() is None:
            if time.monotonic() > until:
                return f"{GIVEN_UP} {limit_s:.0f} s"
            if stop.is_set():
                raise Interrupted(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
    finally:
        ended(process)
    if process.returncode == 0:
        return ""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip(" ^~")]
    told = [line for line in lines if "please report it" not in line][-3:]
    return f"exit status {process.returncode}: {'; '.join([*told[-1:], *told[:-1]])[:600]}"


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, by force if it does not heed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(HEEDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def outcome(found: Trial) -> str:
    """One trial in words."""
    if found["status"] != suite.DONE:
        return f"{found['status']}: {found['reason'].splitlines()[0][:160]}"
    estimate, low, high = found["success"]
    few = f" ({found['episodes']} starts)" if found.get("few_starts") else ""
    return f"{estimate:.3f} [{low:.3f}, {high:.3f}]{few}"


@dataclass
class Progress:
    """How far the trials are, and when they will be done."""

    items: Sequence[Item]
    at_once: int = 1
    deadline: float | None = None  # of the monotonic clock
    took: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)  # of the monotonic clock, by number
    over: set[int] = field(default_factory=set)

    def limit(self, item: Item) -> float:
        """Seconds that ``item`` may take; 0 where it should not be started any more."""
        if self.deadline is None:
            return HUNG * item.budget_s + SPARE
        left = self.deadline - time.monotonic()
        return min(left, QUICK_TRIAL) if left > self.expected(item) else 0.0

    def cut_short(self, found: Trial) -> bool:
        """Whether a trial that failed was in a hurry: there is a deadline, and it has passed, or the trial was given up
        by the wall's clock, while what it was promised is CPU time."""
        return self.deadline is not None and (
            time.monotonic() >= self.deadline or str(found.get("reason")).startswith(GIVEN_UP))

    def expected(self, item: Item) -> float:
        """Seconds: as the same method took on this system; else its budget, and what there is to do besides."""
        own = self.took.get((item.system, item.method))
        parts = 2 if METHODS[item.method].kind == suite.MODEL else 1  # it is trained, then it plans
        return fmean(own) if own else parts * item.budget_s + AROUND

    def left(self) -> float:
        """Seconds until all are done."""
        now = time.monotonic()
        spent = {number: now - began for number, began in list(self.began.items())}  # others begin meanwhile
        each = [max(self.expected(item) - spent.get(number, 0.0), 0.0)
                for number, item in enumerate(self.items) if number not in self.over]
        return max([sum(each) / self.at_once, *each])

    def begin(self, number: int) -> None:
        """Trial ``number`` begins."""
        self.began[number] = time.monotonic()

    def draw(self) -> None:
        """What runs and how long it will take, on a terminal."""
        if sys.stderr.isatty():
            now = time.monotonic()
            running = ", ".join(f"{self.items[number].name} {clock(now - began)}"
                                for number, began in list(self.began.items()) if number not in self.over)
            text = f"  [{len(self.over)}/{len(self.items)}] {running}; all in {clock(self.left())}"
            print(f"\r{text[:WIDTH]:{WIDTH}}", end="", file=sys.stderr, flush=True)

    def done(self, number: int, text: str) -> None:
        """Say what came of trial ``number``."""
        item, seconds = self.items[number], time.monotonic() - self.began[number]
        self.took.setdefault((item.system, item.method), []).append(seconds)
        self.over.add(number)
        start = f"\r{'':{WIDTH}}\r" if sys.stderr.isatty() else ""
        print(f"{start}  [{len(self.over)}/{len(self.items)}] {item.title}: {text}, {seconds:.0f} s; "
              f"{clock(self.left())} left", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- what is kept


@dataclass
class Study:
    """The trials in a folder that hold: made with these settings and this code, or taken over."""

    folder: Path
    tasks: Sequence[str]
    quick: bool

    def kept(self, item: Item) -> dict[str, Any] | None:
        """The trial, if it is there, holds, and did not fail."""
        found = self.holds(item)
        return None if found is None or found["status"] == suite.FAILED else found

    def holds(self, item: Item) -> dict[str, Any] | None:
        """The trial, if it is there and was made with the settings and the code of now, or taken over."""
        found = read(self.folder / f"{item.name}.json")
        if found is None or not self.suits(item, found):
            return None
        if not found.get("taken_over") and found.get("code") != code_digest(item):
            return None
        whole = found.get("status") != suite.DONE or found["episodes"] >= item.episodes or found.get("few_starts")
        return found if whole and "status" in found else None

    def suits(self, item: Item, found: Trial) -> bool:
        """Whether a trial is of the formula, the settings and the budget of ``item``: of all settings where it tells
        them, however its command line put them, else (:func:`temporeal.policies.evaluate.suite.suite.unknown_settings`)
        of those that a command line names."""
        was = tuple(found.get(k) for k in ("formula_file", "budget_s", "quick"))
        if was != (formula_digest(item.task), item.budget_s, item.quick) or flaw(item.task):
            return False
        told, given = found.get("settings"), found.get("words") or []
        if told is not None:
            return told == settings_digest(item) and besides(given) == besides(item.words)
        words = item.words
        if CPU_CLOCK in words and CPU_CLOCK not in given and found.get("cpu_s", 0.0) >= item.budget_s:
            words = [word for word in words if word != CPU_CLOCK]  # by the wall clock, with a core for itself: the same
        return given == words

    def take_over(self, file: str) -> int:
        """Put the trials of a study.json that suit, and are not here, into the folder; how many that are."""
        from temporeal.robots.atomic_files import write_whole

        study = read(Path(file))
        if study is None or not isinstance(study.get("trials"), list):
            raise BadInput(f"--keep: {file} is no study.json of this benchmark: none can be read there")
        for number, trial in enumerate(study["trials"]):
            if missing := lacking(trial):
                raise BadInput(f"--keep: {file} is damaged: trial {number} has no {missing}; a trial has "
                               f"{', '.join(MUST)}, and what is {suite.DONE} {', '.join(MUST_DONE)}")
        taken = 0
        for trial in study["trials"]:
            if trial.get("task") not in self.tasks or trial.get("method") not in METHODS:
                continue
            item = Item(trial["task"], trial["method"], trial["seed"], self.quick)
            if self.suits(item, trial) and trial["status"] != suite.FAILED and self.kept(item) is None:
                write_whole(self.folder / f"{item.name}.json",
                            (json.dumps({**trial, "taken_over": True}) + "\n").encode())
                taken += 1
        return taken

    def trials(self) -> tuple[list[dict[str, Any]], int]:
        """All that hold, and how many do not."""
        found, stale = [], 0
        for item in self.items():
            trial = self.holds(item)
            stale += trial is None
            found += [] if trial is None else [trial]
        return found, stale

    def items(self) -> Iterator[Item]:
        """What the files of the folder are named for."""
        for path in sorted(self.folder.glob("*.json")):
            name, _, seed = path.stem.rpartition("-")
            for method in METHODS if seed.isdigit() else ():
                if (task := name.removesuffix(f"-{method}")) != name and task in self.tasks:
                    yield Item(task, method, int(seed), self.quick)

    def write(self) -> list[Row]:
        """``study.json``, the page and its tables in Markdown; the rows."""
        from temporeal.policies.cli.console import plain
        from temporeal.policies.evaluate.suite.page import write_page
        from temporeal.policies.evaluate.suite.tables import write_tables
        from temporeal.robots.atomic_files import write_whole

        trials, stale = self.trials()
        rows = rows_of(trials, self.tasks, judged=not self.quick)
        told = [plain(asdict(row)) for row in rows]
        whole = {"command": "temporeal bench stl-tasks", "bench": "stl-tasks", "quick": self.quick, "stale": stale,
                 "taken_over": sum(bool(t.get("taken_over")) for t in trials),
                 "unknown": len(suite.unknown_settings(suite.of(trials, status=suite.DONE))),
                 "revisions": sorted({str(t["revision"]) for t in trials}), "machine": machine(),
                 "seeds": sorted({t["seed"] for t in trials}),
                 "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                 "tasks": list(self.tasks), "rows": told, "tried": dict(TRIED), "trials": trials}
        write_page(self.folder / "index.html", whole)
        write_tables(self.folder / "tables.md", whole)
        write_whole(self.folder / "study.json", as_text({**whole, "trials": trials}).encode())
        return rows


TOLD = ("algo=", "algo.", "num_worlds=", *(f"task.settings.{name}=" for name in OF_METHODS))
"""How words begin that are in the digest of a trial's settings."""


def besides(words: Iterable[str]) -> list[str]:
    """The ``words`` of a command line that the digest of settings does not tell."""
    return [word for word in words if not word.startswith(TOLD)]


MUST: Mapping[str, type] = {"task": str, "method": str, "seed": int, "status": str, "system": str, "revision": str,
                            "words": list}
MUST_DONE: Mapping[str, type] = {"satisfied": int, "episodes": int}
"""What a trial of a study.json has at least, and one that is done besides."""


def lacking(trial: Any) -> str:
    """What ``trial`` lacks, or has of another kind; empty where it is one."""
    if not isinstance(trial, Mapping):
        return "entries"
    asked = {**MUST, **(MUST_DONE if trial.get("status") == suite.DONE else {})}
    return ", ".join(name for name, kind in asked.items() if not isinstance(trial.get(name), kind))


DRAWN = ("paths", "heat", "shapes")
"""What of a trial is for pictures only, and large."""
LEFT_OUT = ("run", "file", "terminated")
"""What of a trial tells where it was made, on this machine only; and what trials of before said wrongly, whose
episodes' ends by the clock were counted as early ones."""


def as_text(study: Mapping[str, Any]) -> str:
    """``study`` as JSON, without :data:`LEFT_OUT` and with few of its drawings (:func:`drawn_of`), each on a line of
    its own and rounded."""
    trials, few, lines = study["trials"], drawn_of(study["trials"]), dict[str, str]()
    lean = [{k: v for k, v in t.items() if k not in (LEFT_OUT if number in few else (*LEFT_OUT, *DRAWN))}
            for number, t in enumerate(trials)]
    for number in few:
        for key in set(DRAWN) & set(lean[number]):
            mark = f"<{key} of trial {number}>"
            lines[json.dumps(mark)] = json.dumps(rounded(lean[number][key]), separators=(",", ":"))
            lean[number][key] = mark
    text = json.dumps({**study, "trials": lean}, indent=1)
    for mark, line in lines.items():
        text = text.replace(mark, line, 1)
    return text + "\n"


def drawn_of(trials: Sequence[Trial]) -> set[int]:
    """The numbers of the trials whose drawings are kept with the study: of TGPO*, on each formula the lowest seed that
    has any."""
    least: dict[str, int] = {}
    for number, trial in enumerate(trials):
        if trial["method"] == suite.OURS and trial["status"] == suite.DONE and "paths" in trial:
            best = least.setdefault(trial["task"], number)
            least[trial["task"]] = number if trial["seed"] < trials[best]["seed"] else best
    return set(least.values())


def rounded(value: Any) -> Any:
    """``value`` with all numbers in it to 2 decimals, whole ones without any."""
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if not isinstance(value, float):
        return value
    near = round(value, 2)
    return int(near) if near.is_integer() else near


def read(file: Path) -> dict[str, Any] | None:
    """The JSON object in ``file``; None where there is none that is whole."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def code_digest(item: Item) -> str:
    """Of the sources and settings that a trial depends on."""
    digest, algo = hashlib.sha256(), METHODS[item.method].algo
    for path, content in sources():
        if needed(path, item, algo):
            digest.update(f"{path} {content}\n".encode())
    return digest.hexdigest()[:16]


def formula_digest(task: str) -> str:
    """Of a formula's file, which may be the user's own."""
    from temporeal.policies.runs.settings.folders import file_of

    path = file_of("task", f"stl/{task}")
    if path is None:
        raise BadInput(f"there is no formula {task!r} any more: its file was there when the study began")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def settings_digest(item: Item) -> str:
    """Of all settings of the method, as a trial of now tells them
    (:func:`temporeal_benchmarks.stl_study.trial.digest`)."""
    from temporeal.policies.runs.settings import compose
    from temporeal_benchmarks.stl_study import trial as _stl_trial

    key = json.dumps([item.words, _beside_formula(item.task, formula_digest(item.task))], sort_keys=True)
    if key not in _DIGESTS:
        _DIGESTS[key] = _stl_trial.digest(compose.compose([*item.words, f"task=stl/{item.task}"]))
    return _DIGESTS[key]


_DIGESTS: dict[str, str] = {}
"""By words and the rest of a formula's file: to compose settings takes long, and most files differ in formulas only."""


@cache
def _beside_formula(task: str, digest: str) -> Any:
    """What the file of a formula, with this ``digest``, says beside it."""
    import yaml

    from temporeal.policies.runs.settings.folders import file_of
    from temporeal_benchmarks.stl_study.trial import OF_FORMULA

    said = yaml.safe_load(file_of("task", f"stl/{task}").read_text())
    return {**said, "settings": {k: v for k, v in (said.get("settings") or {}).items() if k not in OF_FORMULA}}


def needed(path: str, item: Item, algo: str) -> bool:
    """Whether a trial depends on the source ``path``."""
    folder, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0]
    if folder == "policies/algos":
        return stem == algo or stem not in ALONE
    if folder == "configs/algo":
        return stem in (algo, "ppo", "__init__")
    if folder == "configs/experiment":
        return f"experiment={stem}" in item.words
    if folder == "configs/task/stl":
        return stem in (item.task, "__init__")
    if folder == "sim/systems":
        return stem in (item.system, "__init__")
    return folder != "sim/tasks" or stem in ("stl", "__init__")


@lru_cache(maxsize=1)
def _sources(stamp: float) -> tuple[tuple[str, str], ...]:
    root = Path(__file__).resolve().parents[2]
    paths = [path for part in CODE for path in ([root / part] if (root / part).is_file() else (root / part).rglob("*"))]
    return tuple(sorted((path.relative_to(root).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest())
                        for path in paths if path.suffix in (".py", ".yaml", ".xml", ".npz")))


def sources() -> tuple[tuple[str, str], ...]:
    """Path and digest of each source; looked at anew every few seconds."""
    return _sources(time.monotonic() // 5)
