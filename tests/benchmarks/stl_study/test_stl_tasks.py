"""The suite's bench: what is run, what is kept, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.examples import thinned

from temporeal.policies.cli.deployment.exclusive_folder import held
from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs import bench
from temporeal.policies.evaluate.suite import averages, catalog
from temporeal.policies.evaluate.suite.averages import DONE, FAILED
from temporeal.policies.evaluate.suite.catalog import BASELINES, METHODS, SYSTEMS
from temporeal.policies.runs import environments, learners
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.interrupts import Interrupted
from temporeal_benchmarks import code_digest as code_digests
from temporeal_benchmarks.measurements import stl_tasks
from temporeal_benchmarks.options import count
from temporeal_benchmarks.rows import Row
from temporeal_benchmarks.stl_study import digests, formula_files, work
from temporeal_benchmarks.stl_study import items as catalog_of_trials
from temporeal_benchmarks.stl_study import progress as limits
from temporeal_benchmarks.stl_study import study as studies
from temporeal_benchmarks.stl_study import trial as one_trial
from temporeal_benchmarks.stl_study.digests import code_digest
from temporeal_benchmarks.stl_study.items import EPISODES, Item, selection
from temporeal_benchmarks.stl_study.progress import Progress
from temporeal_benchmarks.stl_study.study import Study

TASKS = ["linear_reach", "linear_seq", "linear_horizon_50", "unicycle_reach"]


# ---------------------------------------------------------------- what is run


def test_all_of_the_first_seed_come_first_and_milp_on_linear_systems_only() -> None:
    items = selection(TASKS, False, None, None, None, None)
    assert [item.seed for item in items] == sorted(item.seed for item in items)
    assert len(items) == 3 * (3 * len(METHODS) + len(METHODS) - 1)
    assert {item.system for item in items if item.method == "milp"} == {"linear"}


def test_options_choose() -> None:
    items = selection(TASKS, False, ["linear"], ["cem", "tgpo"], ["linear_seq"], ["7", "7", "0"])
    assert [(i.task, i.method, i.seed) for i in items] == [
        ("linear_seq", "tgpo", 7), ("linear_seq", "cem", 7), ("linear_seq", "tgpo", 0), ("linear_seq", "cem", 0)]


@pytest.mark.parametrize(("given", "told"), [
    ({"systems": ["mars"]}, "legal: linear, unicycle"), ({"methods": ["sac"]}, "legal: tgpo, "),
    ({"wanted": ["unicycle_reach"], "systems": ["linear"]}, "legal: linear_reach"), ({"methods": []}, "at least one"),
    ({"seeds": ["x"]}, "whole numbers"), ({"seeds": []}, "whole numbers"), ({"seeds": ["-1"]}, "whole numbers"),
    ({"seeds": ["1", 20 * "9"]}, "--seeds: seed is a whole number from 0 to 2"),
    ({"seeds": [5000 * "9"]}, "--seeds: seed is a whole number from 0 to 2"),
    ({"seeds": [str(2**63 - 1)]}, "--seeds: .*seed of a training is at most ")])
def test_what_cannot_be_chosen_lists_what_can(given: dict[str, Any], told: str) -> None:
    options = {"systems": None, "methods": None, "wanted": None, "seeds": None, **given}
    with pytest.raises(BadInput, match=told):
        selection(TASKS, False, **options)


def test_quick_is_two_formulas_and_one_seed_and_ends_in_time() -> None:
    items = selection(catalog_of_trials.suite_tasks(), True, None, None, None, None)
    assert {item.task for item in items} == set(catalog_of_trials.QUICK_TASKS) and {item.seed for item in items} == {1}
    assert {catalog.METHODS[item.method].key for item in items} == set(METHODS) - {catalog.HOME}
    named = selection(catalog_of_trials.suite_tasks(), True, None, [catalog.HOME], None, None)
    assert [item.method for item in named] == [catalog.HOME] * 2
    assert sum(item.budget_s for item in items) < limits.QUICK_LIMIT < 600.0
    of_system = selection(catalog_of_trials.suite_tasks(), True, ["unicycle"], ["tgpo"], None, None)
    assert [item.system for item in of_system] == ["unicycle", "unicycle"]
    now = time.monotonic()
    assert Progress(items, 2, now + 1000.0).limit(items[0]) == limits.QUICK_TRIAL
    assert Progress(items, 2, now + 5.0).limit(items[0]) == 0.0


def test_every_formula_of_the_suite_has_a_system_with_a_budget() -> None:
    tasks = catalog_of_trials.suite_tasks()
    assert {averages.system_of(task) for task in tasks} == set(SYSTEMS)
    lengths = [steps for t in tasks if (steps := averages.steps_of(t)) is not None]
    assert lengths == sorted(lengths) and {50, 1000} <= set(lengths)


@pytest.mark.parametrize("method, system", thinned(
    [(method, system) for method in METHODS for system in SYSTEMS],
    keep=[("tgpo", "franka"), ("ppo", "quadrotor"), ("cem", "unicycle"), ("milp", "linear")]))
def test_the_words_of_a_method_are_settings_with_the_same_time_for_all(method: str, system: str) -> None:
    from temporeal.policies.runs.settings import compose

    item = Item(f"{system}_reach", method, 1)
    settings = compose.compose([*item.words, f"task=stl/{system}_reach"])
    assert settings["algo"]["name"] == METHODS[method].algo
    if METHODS[method].kind != catalog.PLANNER:
        assert settings["algo"]["max_seconds"] == SYSTEMS[system].budget_s
    words = [*METHODS[method].words, *SYSTEMS[system].of.get(method, ())]
    given = dict(word.removeprefix("algo.").split("=") for word in words if word.startswith("algo."))
    assert {name: str(settings["algo"][name]).lower() for name in given} == given


@pytest.mark.parametrize("method", thinned(METHODS, keep=["tgpo", "ppo", "cem", "milp"]))
def test_what_a_method_is_given_makes_its_task_and_describes_its_trial(method: str) -> None:
    from temporeal.policies.runs.settings import compose

    settings = compose.compose([*Item("linear_reach", method, 1).words, "task=stl/linear_reach"])
    assert one_trial.supported(settings).name == "stl"
    assert one_trial.described(settings, "linear")["steps_of_a_mission"] == 100


def test_the_time_left_is_what_others_of_the_same_kind_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    items = selection(["linear_reach"], False, None, ["tgpo", "cem"], None, ["1", "2"])
    progress, alone = Progress(items, 2), Progress(items)
    before = SYSTEMS["linear"].budget_s + limits.AROUND
    assert progress.left() == 2 * before
    for number, seconds in ((0, 100.0), (1, 20.0)):
        alone.begin(number)
        now[0] += seconds
        alone.done(number, "")
    assert alone.left() == 120.0
    alone.begin(2)
    now[0] += 40.0
    assert alone.left() == 80.0
    for number in (2, 3):
        alone.begin(number)
        alone.done(number, "")
    assert alone.left() == 0.0


@pytest.mark.parametrize("given", [[], ["0"], ["two"], ["1", "2"]])
def test_how_many_at_once_is_one_number(given: list[str]) -> None:
    with pytest.raises(BadInput, match="--parallel: one whole number from 1"):
        count("parallel", given, 2)
    assert count("parallel", ["3"], 2) == 3 and count("parallel", None, 2) == 2


def test_the_ablation_of_starts_is_no_baseline_and_leaves_the_others_as_they_are() -> None:
    from temporeal.policies.algos.tgpo import Allocator, TGPOConfig
    from temporeal.policies.runs.settings import compose

    assert catalog.HOME not in BASELINES and catalog.HOME not in catalog.MODEL_FREE
    assert Item("linear_reach", "tgpo", 1).words == [
        "threads=1", "algo=tgpo", "algo.max_seconds=150.0", "algo.clock=cpu",
        f"algo.total_steps={catalog_of_trials.ENDLESS}", "algo.threads=1"]
    settings = compose.compose([*Item("linear_reach", catalog.HOME, 1).words, "task=stl/linear_reach", "num_worlds=8"])
    _, made = learners.algorithm(settings)
    assert isinstance(made, TGPOConfig) and made.mid_episode_starts == 0.0
    for config_of, there in ((made, False), (TGPOConfig(), True)):
        env = environments.make_env(settings, training=True)
        Allocator(env, config_of, 1)
        env.reset()
        assert (env.distribution.mid_episode_starts > 0.0) is there and bool(
            (env.mid_episode | env.queue.starts.mid_episode).any()) is there


# ---------------------------------------------------------------- what is made, told and left

WORKER = '''
import json, sys
order = json.load(open(sys.argv[1]))
calls = open(order["run"].split("runs")[0] + "calls.txt", "a")
calls.write(order["task"] + " " + order["method"] + "\\n")
if order["method"] == "ppo":
    sys.exit("it broke")
status = {"f-mdp": "not supported"}.get(order["method"], "done")
more = {"reason": "no such form"} if status != "done" else {
    "satisfied": 900, "episodes": order["episodes"], "success": [0.9, 0.88, 0.92], "cpu_s": 100.0, "wall_s": 100.0,
    "curve": [[1.0, 1, 0.5]], "first_to_fail": {"a": 100},
    "paths": [{"satisfied": True, "points": [[0, 0, 0], [1, 1, 0]]}], "planar": True, "formula": "x < 1",
    "shapes": [{"type": "box", "name": "fence", "role": "fence", "low": [-5, -5, 0], "high": [5, 5, 1]}]}
json.dump({**order, "status": status, "depth": 1, **more, **order.get("trained", {})}, open(order["file"], "w"))
'''


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker that makes results up; its folder."""
    folder = tmp_path / "worker"
    folder.mkdir()
    (folder / "stub_of_trials.py").write_text(WORKER)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(work, "WORKER", "stub_of_trials")
    monkeypatch.setattr(code_digests, "sources", lambda parts: (("sim/x.py", "1"), ("policies/planners/cem.py", "2")))
    return tmp_path / "out"


def calls(out: Path) -> list[str]:
    return (out / "calls.txt").read_text().splitlines()


def go(out: Path, *, methods: list[str], **more: Any) -> dict[str, Row]:
    more = {"parallel": ["1"], **more}
    rows = stl_tasks.run(False, out=out, tasks=["linear_reach"], methods=methods, seeds=["1"], **more)
    return {row.name: row for row in rows}


def test_a_study_goes_on_with_what_is_missing_or_was_made_with_other_code(
    stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = go(stub, methods=["tgpo", "cem"])
    assert calls(stub) == ["linear_reach tgpo", "linear_reach cem"]
    assert rows["linear.tgpo.success"].value == 0.9 and rows["linear.tgpo.success"].ok is None  # one formula only
    assert go(stub, methods=["tgpo", "cem"]).keys() == rows.keys() and len(calls(stub)) == 2
    (stub / "linear_reach-tgpo-1.json").write_text('{"cut')
    go(stub, methods=["tgpo"])
    assert len(calls(stub)) == 3
    changed = (("sim/x.py", "1"), ("policies/planners/cem.py", "other"))
    monkeypatch.setattr(code_digests, "sources", lambda parts: changed)
    go(stub, methods=["tgpo"])
    assert len(calls(stub)) == 3  # of another algorithm nothing depends
    shown = json.loads((stub / "study.json").read_text())
    assert [t["method"] for t in shown["trials"]] == ["tgpo"] and shown["stale"] == 1
    go(stub, methods=["cem"])
    assert calls(stub)[3:] == ["linear_reach cem"]
    monkeypatch.setattr(catalog_of_trials, "SYSTEMS", {**SYSTEMS, "linear": catalog.Target(0.95, 180.0, 99.0)})
    go(stub, methods=["tgpo"])
    assert len(calls(stub)) == 5  # another budget


def test_policies_of_before_are_judged_by_the_code_of_now(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = Item("linear_reach", "tgpo", 1)
    told = {**told_of(item), "code": "older", "revision": "abc", "wall_s": 7.0, "cpu_s": 6.0, "peak_memory_B": 5,
            "settings": digests.settings_digest(item)}
    before = stub.parent / "before"
    (before / "runs" / item.name).mkdir(parents=True)
    for change in ({"words": []}, {"status": FAILED}, {"settings": "other"}, {}):
        (before / f"{item.name}.json").write_text(json.dumps({**told, **change}))
        (stub / f"{item.name}.json").unlink(missing_ok=True)
        go(stub, methods=["tgpo"], judge=[str(before)])
        found = json.loads((stub / f"{item.name}.json").read_text())
        assert (found["revision"] == "abc") == (found["cpu_s"] == 6.0) == ("judged_by" in found) == (not change)
    assert found["settings"] == told["settings"]
    assert found["run"] == str(before / "runs" / item.name) and found["taken_over"] and found["satisfied"] == 900
    with pytest.raises(BadInput, match=r"--judge: .*/nowhere has no policies: .*with runs/ in it"):
        go(stub, methods=["tgpo"], judge=[str(before.parent / "nowhere")])
    assert not (before.parent / "nowhere").exists()
    go(before, methods=["tgpo"], judge=[str(before)])  # a folder may judge its own
    monkeypatch.setattr(stl_tasks, "DYING", 0.0)
    with held(before, "a test"), pytest.raises(BadInput, match=f"{before}: another temporeal bench stl-tasks writes"):
        go(stub, methods=["tgpo"], judge=[str(before)])


def test_failures_are_told_counted_and_tried_again_refusals_are_kept(stub: Path) -> None:
    rows = go(stub, methods=["ppo", "f-mdp"])
    assert (rows["trials.failed"].value, rows["trials.failed"].ok) == (1.0, False)
    assert rows["trials.not_supported"].value == 1.0
    assert rows["linear.f-mdp.success"].value == 0.0
    assert "1 not supported" in str(rows["linear.f-mdp.success"].peer)
    found = json.loads((stub / "linear_reach-ppo-1.json").read_text())
    assert (found["status"], found["reason"]) == (FAILED, "exit status 1: it broke")
    go(stub, methods=["ppo", "f-mdp"])
    assert calls(stub) == ["linear_reach ppo", "linear_reach f-mdp", "linear_reach ppo"]
    page = (stub / "index.html").read_text()
    assert "it broke" in page and "no such form" in page


def test_the_verb_passes_options_and_folder_and_a_failure_is_status_1(
    stub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "stl-tasks", "--out", str(stub), "--tasks", "linear_reach", "--seeds", "1", "--methods"]
    assert main([*words, "tgpo, cem"]) == 0
    assert "linear.tgpo.success" in capsys.readouterr().out
    assert (stub / "stl-tasks" / "index.html").is_file() and (stub / "stl-tasks.json").is_file()
    assert main([*words, "ppo"]) == 1
    capsys.readouterr()
    assert main([*words, "sac"]) == 2
    assert "legal: tgpo" in capsys.readouterr().err


def test_options_are_only_there_with_the_benchmark_that_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "stl", "--systems", "linear"]) == 2
    assert "--systems" in capsys.readouterr().err
    assert main(["bench", "stl-tasks", "--help"]) == 0
    assert "--methods" in capsys.readouterr().out
    assert bench.split(" a, b,") == ["a", "b"] and bench.split(None) is None


def test_a_process_that_hangs_is_given_up_and_one_that_was_killed_failed(tmp_path: Path) -> None:
    began = time.monotonic()
    told = work.worked([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log", 0.3, go_on())
    assert "given up" in told and time.monotonic() - began < 30.0
    for code in ("raise SystemExit(143)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"):
        assert "exit status" in work.worked([sys.executable, "-c", code], tmp_path / "log", 60.0, go_on())
    stop = go_on()
    stop.set()
    with pytest.raises(Interrupted):
        work.worked([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log", 60.0, stop)


def test_a_crash_is_told_by_its_error_first(tmp_path: Path) -> None:
    code = "def f():\n    raise ValueError('no such thing')\nf()"
    told = work.worked([sys.executable, "-c", code], tmp_path / "log", 60.0, go_on())
    assert told.startswith("exit status 1: ValueError: no such thing; ")
    assert work.worked([sys.executable, "-c", "pass"], tmp_path / "log", 60.0, go_on()) == ""


def test_what_stops_the_study_ends_the_trials_that_run(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of them, and keeps nothing of theirs; the third is not begun."""
    code = "import json, os, sys, time; open(json.load(open(sys.argv[1]))['run'].split('runs')[0] + 'pid-' + " \
           "str(os.getpid()), 'w'); time.sleep(60)"
    (stub.parent / "worker" / "sleeper_of_trials.py").write_text(code)
    monkeypatch.setattr(work, "WORKER", "sleeper_of_trials")

    def draw(progress: Progress) -> None:
        if len(list(stub.glob("pid-*"))) == 2:
            raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(Progress, "draw", draw)
    began = time.monotonic()
    with pytest.raises(Interrupted):
        go(stub, methods=["tgpo", "cem", "ppo"], parallel=["2"])
    assert time.monotonic() - began < 40.0
    for path in stub.glob("pid-*"):
        assert subprocess.run(["ps", "-p", path.name[4:]], capture_output=True).returncode == 1
    assert len(list(stub.glob("pid-*"))) == 2 and not list(stub.glob("linear_reach-*.json"))


def test_a_folder_in_use_is_refused_at_once_and_its_study_can_be_taken_over(
    stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stl_tasks, "DYING", 0.0)
    go(stub, methods=["tgpo"])
    with held(stub, "it"):
        with pytest.raises(BadInput, match=rf"{stub}: another .* choose another folder with --out"):
            go(stub, methods=["cem"])
        assert calls(stub) == ["linear_reach tgpo"]
        other = stub.with_name("other")
        go(other, methods=["tgpo"], reuse=[str(stub / "study.json")])
        assert not (other / "calls.txt").exists() and (other / "linear_reach-tgpo-1.json").is_file()
    go(stub, methods=["cem"])


STARTER = '''
import signal, sys
from temporeal_benchmarks.stl_study import work
from temporeal.policies.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs tests in the background ignores it
work.WORKER = "worker_of_trials"
words = ["--tasks", "linear_reach", "--methods", "tgpo", "--seeds", "1", "--out", sys.argv[1]]
sys.exit(main(["bench", "stl-tasks", *words]))
'''
HANGS = '''
import json, os, signal, sys, time
def hang(order):
    open(order["file"] + ".began", "w").write(str(os.getpid()))
    time.sleep(60.0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
'''
TRIAL = '''
from temporeal_benchmarks.stl_study import trial
trial.trial = hang
trial.main(sys.argv[1:])
'''
SURVIVOR = "hang(json.load(open(sys.argv[1])))\n"


def begun(tmp_path: Path, worker: str) -> tuple[subprocess.Popen[str], Path, int]:
    """A study of one trial that would go on for a minute: its process, its folder, and its trial's process id."""
    (tmp_path / "worker_of_trials.py").write_text(HANGS + worker)
    path = os.pathsep.join([str(tmp_path), *(part for part in sys.path if part)])
    study = subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], env={**os.environ, "PYTHONPATH": path},
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "stl-tasks"
    file = folder / "linear_reach-tgpo-1.json.began"
    while not (file.exists() and file.read_text()):
        assert study.poll() is None, study.communicate()[1]
        time.sleep(0.02)
    return study, folder, int(file.read_text())


@pytest.mark.slow
def test_a_trial_ends_with_a_study_that_is_killed_and_leaves_the_folder_free(tmp_path: Path) -> None:
    study, folder, _ = begun(tmp_path, TRIAL)
    study.kill()
    study.communicate()
    with held(folder, "it", stl_tasks.DYING):  # what holds it is dead, see the next test
        pass


@pytest.mark.slow
def test_a_trial_that_outlives_its_study_keeps_the_folder(tmp_path: Path) -> None:
    """However that may be: nothing else may write there."""
    study, folder, trial = begun(tmp_path, SURVIVOR)
    study.kill()
    study.communicate()
    with pytest.raises(BadInput, match="choose another folder"), held(folder, "it", stl_tasks.DYING):
        pass
    os.kill(trial, signal.SIGKILL)
    with held(folder, "it", stl_tasks.DYING):
        pass


@pytest.mark.slow
def test_a_study_that_is_told_twice_to_stop_leaves_no_trial(tmp_path: Path) -> None:
    """Also one that does not heed and would last a minute; the status is that of the first signal."""
    study, folder, _ = begun(tmp_path, SURVIVOR)
    for number in (signal.SIGINT, signal.SIGTERM):
        study.send_signal(number)
        time.sleep(0.2)
    assert (study.wait(timeout=20.0), "Traceback" in study.communicate()[1]) == (130, False)
    with held(folder, "it", stl_tasks.DYING):
        pass


def test_a_trial_that_the_deadline_cuts_short_is_left_and_not_failed(
    stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.mkdir(parents=True, exist_ok=True)
    items = [Item("linear_reach", "ppo", 1)]  # its worker ends with an error
    for deadline, left, kept in ((0.0, 1, False), (None, 0, True)):
        progress = Progress(items, 1, deadline)
        monkeypatch.setattr(progress, "limit", lambda item: 60.0)
        assert work.work_off(items, stub, progress, lambda: None) == left
        assert (stub / "linear_reach-ppo-1.json").exists() is kept


def test_trials_at_once_are_all_made(stub: Path) -> None:
    rows = go(stub, methods=["tgpo", "cem", "f-mdp"], parallel=["3"])
    assert sorted(calls(stub)) == ["linear_reach cem", "linear_reach f-mdp", "linear_reach tgpo"]
    assert rows["trials.done"].value == 2.0


def go_on() -> threading.Event:
    return threading.Event()


def test_a_trial_depends_on_its_own_formula_method_and_system() -> None:
    item = Item("linear_reach", "tgpo", 1)

    def depends(path: str) -> bool:
        return digests.needed(path, item, "tgpo")

    assert all(map(depends, ["policies/algos/tgpo.py", "policies/algos/ppo.py", "sim/env.py", "sim/tasks/stl.py",
                             "sim/systems/linear.py", "sim/system.py", "configs/task/stl/linear_reach.yaml",
                             "configs/algo/tgpo.yaml", "configs/algo/ppo.yaml", "configs/config.yaml"]))
    assert not any(map(depends, ["policies/planners/cem.py", "sim/tasks/lift.py", "sim/systems/ant.py",
                                 "configs/task/stl/linear_seq.yaml", "configs/algo/cem.yaml",
                                 "configs/experiment/stl_ant.yaml"]))
    assert digests.needed("configs/experiment/stl_ant.yaml", Item("ant_reach", "ppo", 1), "ppo")
    assert not digests.needed("configs/experiment/stl_ant.yaml", Item("ant_reach", "cem", 1), "cem")
    found = {code_digest(Item(t, m, 1)) for t in ("linear_reach", "linear_seq") for m in ("tgpo", "cem")}
    assert len(found) == 4 and code_digest(item) == code_digest(Item("linear_reach", "tgpo-uniform", 2))
    listed = [path for path, _ in code_digests.sources(digests.CODE)]
    assert {"benchmarks/stl_study/trial.py", "configs/experiment/stl_ant.yaml"} <= set(listed)
    assert len(listed) == len(set(listed))


# ---------------------------------------------------------------- what is of before holds


def test_a_trial_of_fewer_starts_does_not_hold(tmp_path: Path) -> None:
    item, study = Item("linear_reach", "tgpo", 1), Study(tmp_path, ["linear_reach"], False)
    told = told_of(item)
    for change, holds in (({}, True), ({"episodes": 999}, False), ({"episodes": 9, "few_starts": True}, True),
                          ({"quick": True}, False), ({"words": []}, False), ({"code": "older"}, False),
                          ({"formula_file": "other"}, False), ({"status": FAILED}, True)):
        (tmp_path / "linear_reach-tgpo-1.json").write_text(json.dumps({**told, **change}))
        assert (study.holds(item) is not None) is holds
    assert study.kept(item) is None  # the failed one is made again


def told_of(item: Item) -> dict[str, Any]:
    return {"status": DONE, "words": item.words, "code": code_digest(item), "budget_s": item.budget_s,
            "formula_file": formula_files.formula_digest(item.task), "quick": False, "episodes": EPISODES,
            "task": item.task, "method": item.method, "seed": item.seed, "system": item.system, "revision": "def",
            "satisfied": 900, "depth": 1}


def test_trials_of_earlier_code_are_taken_over_where_formula_and_settings_are_the_same(tmp_path: Path) -> None:
    tasks = ["linear_reach", "linear_seq", "linear_stay"]
    reach, seq, stay = (Item(task, "tgpo", 1) for task in tasks)
    older = {"code": "older", "revision": "abc"}
    trials = [{**told_of(reach), **older}, {**told_of(seq), **older, "formula_file": "changed"},
              {**told_of(stay), **older, "status": FAILED}, {**told_of(reach), "task": "linear_gone"}]
    file = tmp_path / "study.json"
    file.write_text(json.dumps({"trials": trials}))
    study = Study(tmp_path / "new", tasks, False)
    study.folder.mkdir()
    assert study.take_over(str(file)) == 1 and study.take_over(str(file)) == 0
    assert study.kept(reach)["revision"] == "abc" and study.kept(seq) is None and study.kept(stay) is None
    own = {**told_of(seq), "revision": "def"}
    (study.folder / "linear_seq-tgpo-1.json").write_text(json.dumps(own))
    file.write_text(json.dumps({"trials": [{**own, **older}]}))
    assert study.take_over(str(file)) == 0 and study.kept(seq) == own
    for wrong in ("{}", "no JSON"):
        file.write_text(wrong)
        with pytest.raises(BadInput, match="study.json of this benchmark"):
            study.take_over(str(file))


PICTURES = {"paths": [{"satisfied": True, "points": [[0.12345, 2.0, 0.0], [1.0, 1.0, 0.0]]}], "planar": True,
            "heat": {"x": [0.0], "y": [0.0, 1.0], "x_label": "t1", "y_label": "t2", "best": [0.0, 1.0],
                     "value": [[None], [1.23456]]},
            "shapes": [{"type": "box", "name": "fence", "role": "fence", "low": [-5, -5, 0], "high": [5, 5, 1]}]}


def test_a_study_keeps_the_drawings_of_one_seed_and_they_are_taken_over(tmp_path: Path) -> None:
    study = Study(tmp_path / "old", ["linear_reach"], False)
    study.folder.mkdir()
    for method, seed, more in (("tgpo", 1, {}), ("tgpo", 2, PICTURES), ("tgpo", 3, PICTURES), ("cem", 1, PICTURES)):
        told = {**told_of(Item("linear_reach", method, seed)), "system": "linear", "depth": 1, "satisfied": 900,
                "revision": "abc", "success": [0.9, 0.8, 1.0], "run": "/home/me/runs/x", "file": "/home/me/x", **more}
        (study.folder / f"linear_reach-{method}-{seed}.json").write_text(json.dumps(told))
    study.write()
    file = study.folder / "study.json"
    kept = {(t["method"], t["seed"]): t for t in json.loads(file.read_text())["trials"]}
    assert [key for key, trial in kept.items() if "paths" in trial] == [("tgpo", 2)]
    assert kept["tgpo", 2]["paths"] == [{"satisfied": True, "points": [[0.12, 2, 0], [1, 1, 0]]}]
    assert '"best":[0,1],"value":[[null],[1.23]]}' in file.read_text()  # on a line of its own
    assert "/home/me" not in file.read_text()  # a study may be published
    after = Study(tmp_path / "new", ["linear_reach"], False)
    after.folder.mkdir()
    assert after.take_over(str(file)) == 4
    assert "Of 3 of 4 trials that are done no episodes are kept" in written(after)
    assert "linear_reach, TGPO*: 0.900" in written(after)
    bare = Study(tmp_path / "bare", ["linear_reach"], False)
    bare.folder.mkdir()
    file.write_text(json.dumps({"trials": [{k: v for k, v in t.items() if k not in PICTURES} for t in kept.values()]}))
    assert bare.take_over(str(file)) == 4
    assert "Of 4 of 4 trials that are done no episodes are kept" in written(bare)
    assert "Of 3 of 3 trials of TGPO* that are done no values are kept" in written(bare)


def written(study: Study) -> str:
    study.write()
    return (study.folder / "index.html").read_text()


def test_drawings_of_the_whole_suite_are_a_few_hundred_kilobytes() -> None:
    path = {"satisfied": True, "points": [[-1.23, 4.56, 1.78]] * 60}
    heat = {"x": [0.15] * 24, "y": [0.15] * 24, "value": [[-1.234] * 24] * 24}
    trials = [{"task": task, "method": "tgpo", "status": DONE, "seed": seed, "paths": [path] * 6, "heat": heat}
              for task in catalog_of_trials.suite_tasks() for seed in (1, 2, 3)]
    assert len(studies.as_text({"trials": trials})) < 600_000


@pytest.mark.parametrize(("trial", "told"), [
    (3, "trial 0 has no entries"),
    ({"task": "linear_one", "method": "tgpo"}, "no seed, status, system, revision, words"),
    ({"satisfied": None}, "no satisfied;"), ({"seed": "x"}, "no seed;")])
def test_a_damaged_study_is_refused_with_what_a_trial_has(tmp_path: Path, trial: Any, told: str) -> None:
    whole = told_of(Item("linear_reach", "tgpo", 1)) if isinstance(trial, dict) and "task" not in trial else {}
    (tmp_path / "k.json").write_text(json.dumps({"trials": [{**whole, **trial} if isinstance(trial, dict) else trial]}))
    with pytest.raises(BadInput, match=rf"--reuse: .*k.json is damaged: .*{told}.* a trial has task, method, seed, "):
        Study(tmp_path, ["linear_reach"], False).take_over(str(tmp_path / "k.json"))


def test_nothing_is_lacking_in_the_published_study() -> None:
    file = Path(__file__).parents[3] / "benchmarks" / "results" / "stl-tasks.json"
    assert {studies.lacking(trial) for trial in json.loads(file.read_text())["trials"]} == {""}


def test_settings_behind_the_words_are_compared_where_a_trial_tells_them(tmp_path: Path) -> None:
    """The words of before and of now are the same, whatever the algorithm's defaults became."""
    item, study = Item("linear_reach", "tgpo", 1), Study(tmp_path / "new", ["linear_reach"], False)
    study.folder.mkdir()
    now, file = digests.settings_digest(item), tmp_path / "study.json"
    for settings, taken in (("other", 0), (now, 1), (None, 0)):  # the last one is there already
        file.write_text(json.dumps({"trials": [{**told_of(item), "settings": settings}]}))
        assert study.take_over(str(file)) == taken
    assert "digest" not in written(study)
    (study.folder / f"{item.name}.json").unlink()
    assert study.take_over(str(file)) == 1
    assert "Of 1 trials only the formula and the settings on the command line are known" in written(study)
    for words, same in ((["threads=1", "algo=tgpo"], True), ([*item.words, "algo.gamma=0.5"], True),  # the digest knows
                        ([*item.words, "compiled=false"], False), (["algo=tgpo"], False)):
        assert study.suits(item, {**told_of(item), "words": words, "settings": now}) is same
        assert not study.suits(item, {**told_of(item), "words": words})


def test_names_with_dashes_are_read_back(tmp_path: Path) -> None:
    study = Study(tmp_path, ["linear_my-own", "linear_reach"], False)
    for name in ("linear_my-own-tgpo-home-3", "linear_reach-tgpo-2", "linear_gone-tgpo-1", "study"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert [(i.task, i.method, i.seed) for i in study.items()] == [("linear_my-own", "tgpo-home", 3),
                                                                   ("linear_reach", "tgpo", 2)]


@pytest.mark.slow
def test_what_is_given_up_in_a_hurry_is_left_and_not_failed(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine: the wall's clock says nothing of a method that was promised CPU time."""
    stub.mkdir(parents=True, exist_ok=True)
    (stub.parent / "worker" / "stub_of_trials.py").write_text("import time; time.sleep(60)")
    items = [Item("linear_reach", "tgpo", 1)]
    for deadline, left in ((time.monotonic() + 1e4, 1), (None, 0)):
        progress = Progress(items, 1, deadline)
        monkeypatch.setattr(progress, "limit", lambda item: 0.3)
        assert work.work_off(items, stub, progress, lambda: None) == left
        assert (stub / "linear_reach-tgpo-1.json").exists() is not bool(left)


def test_a_formula_of_ones_own_is_compared_as_those_of_the_suite(
    tmp_path: Path, stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[3]
    file = tmp_path / "own" / "task" / "stl" / "linear_mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text((root / "configs/task/stl/linear_reach.yaml").read_text())
    assert "linear_mine" not in catalog_of_trials.suite_tasks()
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path / "own"))
    rows = stl_tasks.run(False, out=stub, tasks=["linear_mine"], methods=["cem"], seeds=["1"], parallel=["1"])
    assert {row.name: row.value for row in rows}["linear.cem.success"] == 0.9
    before = formula_files.formula_digest("linear_mine")
    assert before == formula_files.formula_digest("linear_reach")
    file.write_text(file.read_text() + "\n# other\n")
    assert formula_files.formula_digest("linear_mine") != before


def test_a_method_that_takes_none_of_the_formulas_is_told(stub: Path) -> None:
    with pytest.raises(BadInput, match="nothing to do: none of unicycle_reach is .*milp is for linear"):
        stl_tasks.run(False, out=stub, tasks=["unicycle_reach"], methods=["milp"], seeds=["1"])


@pytest.mark.slow
def test_files_of_ones_own_are_refused_where_they_are_asked_for_and_do_no_other_harm(
    tmp_path: Path, stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[3] / "configs/task/stl/unicycle_reach.yaml").read_text()
    folder = tmp_path / "own" / "task" / "stl"
    folder.mkdir(parents=True)
    for name, said in {"unicycle_mine": text, "linear_uni": text, "linear_mars": text.replace("system: u", "system: m"),
                       "linear_horizon_foo": text.replace("unicycle", "linear"),
                       "unicycle_wrong": text.replace("base_pos_w", "base_pos", 1),
                       "unicycle_never": text.replace("!in_o &", "!in_o & G[0,28] (base_pos_w.x == 1) &"),
                       "unicycle_ever": text.replace("F[0,28] at_a", "F at_a"),
                       "unicycle_misspelt": text.replace("  formula:", "  frmla:"),
                       "unicycle_view": text.replace("  system:", "  view: tau_mdp\n  system:"),
                       "unicycle_paid": text.replace("  system:", "  reward: {hit: 20}\n  system:"),
                       "unicycle_slack": text.replace("  system:", "  slack: 3.0\n  system:"),
                       "unicycle_typo": text.replace("mid_episode_starts:", "mid_episode_satrts:")}.items():
        (folder / f"{name}.yaml").write_text(said)
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path / "own"))

    def make(task: str) -> dict[str, Row]:
        return {row.name: row for row in stl_tasks.run(
            False, out=stub, tasks=[task], methods=["cem"], seeds=["1"], parallel=["1"])}

    for task, told in {
        "linear_uni": r"linear_uni\.yaml: its name begins with 'linear', but settings\.system is 'unicycle': say "
                      r"system: linear, or name it unicycle_uni\.yaml; systems: linear, unicycle, ",
        "linear_mars": r"linear_mars\.yaml: .*'mnicycle': say system: linear; systems: linear, ",
        "unicycle_wrong": r"unicycle_wrong\.yaml: .*'base_pos'.*did you mean",
        "unicycle_never": r"unicycle_never\.yaml: .*base_pos_w\.x == 1 can never hold",
        "unicycle_ever": r"unicycle_ever\.yaml: .*window without an end",
        "unicycle_misspelt": r"unicycle_misspelt\.yaml: settings\.frmla: did you mean 'formula'\? legal: ",
        "unicycle_view": r"unicycle_view\.yaml: settings\.view: each method has its own: leave it out",
        "unicycle_paid": r"unicycle_paid\.yaml: settings\.reward: each method has its own: leave it out",
        "unicycle_slack": r"unicycle_slack\.yaml: .*slack is 3, but .* holds by less than",
        "unicycle_typo": r"unicycle_typo\.yaml, line \d+: .*'mid_episode_satrts'; did you mean",
    }.items():
        with pytest.raises(BadInput, match=told):
            make(task)
    assert not stub.exists()
    assert make("unicycle_mine")["unicycle.cem.success"].value == 0.9
    # trials of before on such files, and what a folder is written of afterwards
    for task in ("unicycle_typo", "linear_uni"):
        trial = {**told_of(Item(task, "cem", 1)), "settings": "x", "code": code_digest(Item(task, "cem", 1))}
        (stub / f"{task}-cem-1.json").write_text(json.dumps(trial))
    rows = make("linear_horizon_foo")
    assert (rows["trials.done"].value, rows["linear.cem.success"].value) == (2.0, 0.9)
