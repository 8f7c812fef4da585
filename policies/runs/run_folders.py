"""A training run is a folder: its settings, checkpoints and events. Opening, overwriting and resuming one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from temporeal.policies.runs.environments import backend_defaults, resolved
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings import files, values
from temporeal.policies.runs.settings.compose import PRESET
from temporeal.policies.runs.settings.files import Settings
from temporeal.robots.registry import guess_file

CONFIG, CHECKPOINTS, DIVERGED, EVENTS = "config.yaml", "checkpoints", "diverged", "events"  # in a run's folder
BASE = "base"  # in a run's folder: a copy of what its policy corrects
AGREEMENT = "agreement.json"  # in the folder of a run on a robot: what actor and learner agreed on
# what a run keeps over a resume; the learner knows the rest
SAME = ("robot", "task", "backend", "randomize", "curriculum", "cameras", "augment", "renderer", "seed", "num_worlds",
        "processes", "base")
# the values then of settings that older runs lack
ABSENT_DEFAULTS: Mapping[str, Any] = {"curriculum": {"name": "none", "kind": "none", "parameters": {}}, "cameras": {},
                                        "augment": {}, "renderer": "auto"}
UNSET = "not set"


def check_writable(folder: Path, option: str = "--out") -> None:
    """Refuse a ``folder`` in which (or in whose nearest existing parent) no file can be made. Makes nothing."""
    try:
        place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}; choose another with {option}") from error


def run_folder(settings: Mapping[str, Any]) -> Path:
    """The run's folder."""
    if isinstance(settings["out"], (list, dict)):
        raise BadInput(f"out={settings['out']}: one folder")
    if settings["out"] is not None:
        return Path(str(settings["out"]))
    return Path("outputs/train") / f"{title_of(settings)}-{learner_of(settings)}-{settings['seed']}"


def learner_of(settings: Mapping[str, Any]) -> str:
    """The learner in the name of a run's folder: of a run that corrects a base, the word that was chosen, so that
    ``algo=resip`` is beside the ``algo=ppo`` that it corrects."""
    algo, base = settings["algo"], settings.get("base") or {}
    return str(algo.get(PRESET, algo["name"]) if base.get("policy") or base.get("expert") else algo["name"])


def title_of(settings: Mapping[str, Any]) -> str:
    """The name of a run's task."""
    return str(settings["task"].get("title", settings["task"]["name"]))


@contextmanager
def opened_run(settings: Settings, folder: Path, overwrite: bool) -> Iterator[None]:
    """Open the run's folder for a training inside. If the training fails before anything is learned, as with settings
    that do not fit each other, the folder is restored: an overwritten run is back, a new folder is gone."""
    open_run(settings, folder, overwrite)
    before = set_aside(folder)
    try:
        yield
    except Exception:
        if not resumes(settings) and {path.name for path in folder.iterdir()} <= {CONFIG, EVENTS, BASE}:
            put_back(folder)
        raise
    finally:
        if before.exists():
            shutil.rmtree(before)


def put_back(folder: Path) -> None:
    """Restore the run that :func:`open_run` set aside, if any."""
    shutil.rmtree(folder)
    if set_aside(folder).exists():
        set_aside(folder).rename(folder)


def set_aside(folder: Path) -> Path:
    """Where an overwritten run is kept until the new one is trained."""
    folder = folder.absolute()
    return folder.with_name(f".{folder.name}.overwritten")


def open_run(settings: Settings, folder: Path, overwrite: bool) -> None:
    """Make the run's folder and write its settings. An existing run is never lost silently.

    A run that is overwritten is :func:`set_aside`.
    """
    saved = folder / CONFIG
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is no folder: choose another with out=<folder>")
    if resumes(settings):
        if not saved.exists():
            raise BadInput(f"nothing to resume: {saved} is not there; start without resume=true")
        if not is_run(folder):
            raise BadInput(f"nothing to resume: {saved} was not written by `temporeal train`")
        check_same(files.read(saved), settings)
        anew = settings["algo"].get("merge")  # has one checkpoint, at its end: begun anew, it is the same
        if settings["resume"] is True and not anew and not any((folder / CHECKPOINTS).glob("*.pt")):
            raise BadInput(f"nothing to resume: the run {folder} was stopped before its first checkpoint; "
                           "--overwrite instead of resume=true starts it anew")
        return
    if folder.exists() and any(folder.iterdir()):
        if not is_run(folder):
            raise BadInput(f"{folder} is there and is no run: choose another folder with out=<folder>")
        if not overwrite:
            raise BadInput(
                f"the run {folder} is there: resume=true goes on, --overwrite starts anew, out=<folder> elsewhere")
    overwritten = False
    try:
        if set_aside(folder).exists():
            shutil.rmtree(set_aside(folder))  # of a training that was killed
        if saved.exists():
            folder.rename(set_aside(folder))
            overwritten = True
        folder.mkdir(parents=True, exist_ok=True)
        files.write({**settings, "resume": None}, saved)
    except OSError as error:
        if overwritten:
            put_back(folder)
        raise BadInput(f"cannot write to {folder}: {error.strerror}; choose another with out=<folder>") from error


def resumes(settings: Mapping[str, Any]) -> bool | Path:
    """Whether to resume: False, True (from the last checkpoint) or the checkpoint file."""
    value = settings["resume"]
    if value is None or isinstance(value, bool):
        return bool(value)
    if not Path(str(value)).is_file():
        raise BadInput(f"resume={value}: true, false or a checkpoint file that is there")
    return Path(str(value))


def check_same(old: Settings, new: Settings) -> None:
    """A resumed run is the same run: task, learner, worlds and seed may not change."""
    with suppress(BadInput, TypeError):  # of a run whose settings are no more: what differs is told below
        old, new = resolved(old), resolved(new)
    for key in SAME:
        before, now = (compared(key, x.get(key, ABSENT_DEFAULTS.get(key))) for x in (old, new))
        if (key in old or key in ABSENT_DEFAULTS) and (found := difference(key, before, now)):
            was, is_now = (UNSET if x is UNSET else values.shown(x) for x in found[1:])
            raise BadInput(f"resume: {found[0]} of the run is {was}, now {is_now}; resume with the settings it was "
                           "started with")


def compared(key: str, value: Any) -> Any:
    """What of a setting makes a run the same: a backend has its defaults, a task's title is but a name."""
    if key == "base" and isinstance(value, Mapping):  # what is handed over names no model; its files are compared
        told = {name: part for name, part in value.items() if name not in ("model", "map")}
        return told if told.get("transfer") else {name: told[name] for name in told if name != "transfer"}
    if key == "task" and isinstance(value, Mapping):
        return {name: part for name, part in value.items() if name != "title"}
    return backend_defaults(value) if key == "backend" else value


def difference(key: str, old: Any, new: Any) -> tuple[str, Any, Any] | None:
    """The first setting below ``key`` that differs, and both values; None if none does."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return None if old == new else (key, old, new)
    if old.get("name") != new.get("name"):
        return key, old.get("name"), new.get("name")
    for name in dict.fromkeys((*old, *new)):
        absent = [UNSET if name not in x else x[name] for x in (old, new)]
        if found := difference(f"{key}.{name}", *absent):
            return found
    return None


def is_run(folder: Path) -> bool:
    """Whether ``folder`` holds one of our runs: many projects have a ``config.yaml``, and ``--overwrite`` removes runs.
    """
    try:
        return {"robot", "task", "algo", "seed", "num_worlds"} <= set(files.read(folder / CONFIG))
    except BadInput:
        return False


def load_run(folder: Path, corrections: bool = False) -> Settings:
    """Settings of the run in ``folder``, with the defaults of its backend, which is imported for them.

    ``corrections``: whether it may be one whose policy was learned on a robot beside a base, and is none without it.
    """
    settings = read_run(folder)
    if not corrections and (base := corrected_base(folder)):
        raise BadInput(f"{folder}: its policy was learned on a robot as corrections of {base} (temporeal learner "
                       "--base --correct), and moves nothing alone; it acts beside its base: temporeal actor --ros "
                       "ARTIFACT --correct SCALE explore=false")
    return {**settings, "backend": backend_defaults(settings.get("backend"))}


def corrected_base(folder: Path) -> str:
    """What the policy of a learner's run corrects; "": nothing."""
    from temporeal.robots.handed_over.files import Refused
    from temporeal.robots.handed_over.texts import from_json

    file = folder / AGREEMENT
    if not file.is_file():
        return ""
    try:
        correction = from_json(file.read_bytes(), str(file))["agreement"]["correction"]
        return "" if correction["scale"] == "none" else str(correction["base"])
    except (Refused, ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{file} does not say what the policy of this run corrects, if anything: {error}") from error


def read_run(folder: Path) -> Settings:
    """Settings of the run in ``folder`` as they were saved; nothing slow is imported."""
    if not (folder / CONFIG).is_file():
        hint = f"runs here: {', '.join(known)}" if (known := known_runs()) else "`temporeal train` makes one"
        near = "" if folder.exists() else guess_file(folder)
        raise BadInput(f"{folder} is not a run (it has no {CONFIG}); {near}{hint}")
    settings = files.read(folder / CONFIG)
    if not is_run(folder):
        raise BadInput(f"{folder} is not a run: its {CONFIG} was not written by `temporeal train`")
    return settings


def known_runs(root: Path = Path("outputs/train")) -> list[str]:
    """The runs below ``outputs/train``."""
    return sorted(str(path.parent) for path in root.glob(f"[!.]*/{CONFIG}"))
