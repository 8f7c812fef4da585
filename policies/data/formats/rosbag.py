"""ROS 2 bags (MCAP or SQLite) of a robot as episodes, by the topics and codecs of its ``ros.yaml``.

All signals are put on a grid of the control rate (:mod:`temporeal.policies.data.formats.bags.alignment`), which begins
with the first command. The command of a sample is the one in force at the middle of the step that begins there:
commands of the grid's own rate are paired one to one, whatever their jitter, with the state in which they were sent; of
faster ones the middle one is taken, slower ones hold. Rules and limits go into ``interface.about["alignment"]``; what
was left out of an episode goes into its ``info``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.formats import checks
from temporeal.policies.data.formats.bags import cameras, topics, windows
from temporeal.policies.data.formats.bags.alignment import HOLD, REFUSE, Alignment, check_rules, rule_of, runs
from temporeal.policies.data.formats.bags.cameras import Camera
from temporeal.policies.data.formats.bags.rows import Bag, Clock
from temporeal.policies.data.formats.bags.rows import read as read_rows
from temporeal.policies.data.formats.bags.topics import COMMAND, Topic
from temporeal.policies.data.formats.bags.windows import Window
from temporeal.policies.data.formats.found import Reading, Rejected
from temporeal.robots.signals import schema
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.samples.times import CLOCK_SET_S
from temporeal_bridge.interface.interface import CommandTopic, carried_by
from temporeal_bridge.interface.interface import Interface as Topics
from temporeal_bridge.recording.bags import full_name
from temporeal_bridge.transports.transport import is_action

GUARD_COMMAND = "guard/command"


@dataclass(frozen=True)
class Source:
    """What of a bag is read, and how.

    Args:
        robot: whose bag it is; topics: its interface.
        align: the grid, and what lies between samples.
        namespace: of the robot's topics.
        command: name of the command; "": the only one whose topics the bag has.
        signals: those that are read; (): all that the bag has.
        cameras: by name, image topics beside those of the interface.
        size: [H, W] that pictures are reduced to; None: as they are.
        episodes: ``bag``, ``mission``, or a CSV file of times.
        language: the instruction.
        renamed: by full name, what a topic is called in the bag.
        receipt: times are those of the recorder, whatever the headers say.
        from_guard: take the commands that the guard has sent (topic ``guard/command``).
        simulator: what moved the robot.
    """

    robot: RobotSpec
    topics: Topics
    align: Alignment
    namespace: str = ""
    command: str = ""
    signals: tuple[str, ...] = ()
    cameras: Mapping[str, str] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    episodes: str = windows.BAG
    language: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    receipt: bool = False
    from_guard: bool = False
    simulator: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Plan:
    """The topics of one bag, as they are read.

    Args:
        states: each with the rule of its signals; commands: each with the components that it carries.
    """

    bag: Bag
    states: list[tuple[Topic, dict[str, str]]]
    commands: list[tuple[Topic, tuple[int, ...]]]
    cameras: list[Camera]


def read(path: Path, source: Source) -> Reading:
    """The episodes of one bag."""
    bag = read_rows(path, wanted(source), source.renamed)
    command, parts = chosen_command(bag, source)
    notes: list[str] = [f"{path} is incomplete: {bag.cut}; what is before that is read"] if bag.cut else []
    states, lacks = chosen_states(bag, source)
    notes += [f"{name} is not read: {why}" for name, why in lacks.items()]
    seen = cameras.found(bag, source.topics, source.cameras, source.namespace, source.size, source.receipt)
    interface, rules = interface_of(source, command, [name for _, names in states for name in names], seen, path)
    plan = Plan(bag, [
        (topics.of_state(bag, bag.rows[full_name(row.topic, source.namespace)], row, names, source.receipt),
         {name: rules[name] for name in names}) for row, names in states], commands_of(bag, parts, source), seen)
    moving = [topic for topic, _ in (*plan.states, *plan.commands) if not topic.latched]
    check_clocks(path, {topic.name: topic.clock for topic in moving} | {each.topic: each.clock for each in seen})
    told = windows.windows(bag, source.episodes, source.namespace, source.language)
    return Reading(interface, episodes(plan, interface, rules, source, told), tuple(notes))


def wanted(source: Source) -> dict[str, bool]:
    """The topics that are read, by full name, and whether they carry pictures."""
    topics, full = source.topics, partial(full_name, namespace=source.namespace)
    out = {full(row.topic): False for row in topics.states}
    out |= {full(part.topic): False for command in topics.commands.values() for part in command.parts
            if not is_action(part.type)}
    out |= dict.fromkeys((full(GUARD_COMMAND), *windows.topics_for(source.episodes, source.namespace)), False)
    return out | dict.fromkeys((*(full(row.topic) for row in topics.pictures), *source.cameras.values()), True)


def chosen_command(bag: Bag, source: Source) -> tuple[str, tuple[CommandTopic, ...]]:
    """Name of the command, and the topics that carry it; () where the guard's record is taken."""
    guard = full_name(GUARD_COMMAND, source.namespace) in bag.rows
    there = {name: row.parts for name, row in source.topics.commands.items()
             if all(full_name(part.topic, source.namespace) in bag.rows for part in row.parts)}
    known = ", ".join(f"{name} ({full_name(row.topic, source.namespace)})"
                      for name, row in source.topics.commands.items())
    if source.command and source.command not in source.topics.commands:
        raise DataError(f"interface {source.topics.name!r} has no command {source.command!r}; it has: {known}")
    if source.from_guard and not guard:
        raise DataError(f"{bag.path} has no topic {full_name(GUARD_COMMAND, source.namespace)}")
    if guard and (source.from_guard or source.command and source.command not in there):
        names = [source.command] if source.command else list(source.topics.commands)
        if len(names) == 1:
            return names[0], ()
    names = [source.command] if source.command else list(there)
    if len(names) != 1 or names[0] not in there:
        found = f"the commands {', '.join(there)}" if there else "no command"
        raise DataError(f"{bag.path} has messages of {found}; --command says which is the action: {known}")
    return names[0], there[names[0]]


def chosen_states(bag: Bag, source: Source) -> tuple[list[tuple[Any, list[str]]], dict[str, str]]:
    """The state topics with the signals that are read of each; and why others are not."""
    out, lacks = [], dict[str, str]()
    for row in source.topics.states:
        name = full_name(row.topic, source.namespace)
        if name in bag.rows:
            good, wrong = topics.filled(bag.rows[name], row)
        else:
            good, wrong = [], dict.fromkeys(carried_by(row), f"the bag has no message on {name}")
        lacks |= wrong
        if good := [signal for signal in good if not source.signals or signal in source.signals]:
            out.append((row, good))
    given = {signal for _, names in out for signal in names}
    pictures = {*source.cameras, *(signal for row in source.topics.pictures for signal in carried_by(row))}
    for signal in source.signals:
        if signal not in given | pictures:
            why = lacks.get(signal, "no topic of the interface carries it")
            raise DataError(f"{bag.path}: signal {signal}: {why}; read can be: {', '.join(sorted(given)) or 'none'}")
    if not out:
        raise DataError(f"{bag.path} has no signal of robot {source.robot.name!r} "
                        f"({'; '.join(f'{name}: {why}' for name, why in lacks.items())}); its topics: "
                        f"{', '.join(bag.topics)}")
    return out, {} if source.signals else lacks


def interface_of(
    source: Source, command: str, names: Sequence[str], seen: Sequence[Camera], path: Path
) -> tuple[Interface, dict[str, str]]:
    """The interface, and the rule of each signal."""
    specs = {name: source.topics.carried[name] for name in names} | {camera.spec.name: camera.spec for camera in seen}
    pictures = {camera.spec.name for camera in seen}
    rules = {name: rule_of(spec, name in pictures) for name, spec in specs.items()}
    check_rules(source.align.rules, specs, pictures)
    rules |= source.align.rules
    limit = source.robot.commands[command]
    action = ActionSpec(command, limit.low, limit.high, limit.unit)
    return Interface(source.robot.name, schema(*specs.values()), action, source.align.rate_hz,
                     simulator=source.simulator, about={
                         "source": path.name, "format": "rosbag2", "interface": source.topics.name, **source.about,
                         "alignment": {
                             "rate_hz": source.align.rate_hz, "signals": rules, "gap_limit": source.align.stated(),
                             "gaps": source.align.gaps,
                             "action": f"{HOLD}: the command in force at the middle of the step"}}), rules


def commands_of(
    bag: Bag, parts: Sequence[CommandTopic], source: Source
) -> list[tuple[Topic, tuple[int, ...]]]:
    """The topics of the command, each with the components that it carries; (): all."""
    if not parts:
        return [(topics.of_guard(bag, bag.rows[full_name(GUARD_COMMAND, source.namespace)]), ())]
    return [(topics.of_command(bag, bag.rows[full_name(part.topic, source.namespace)], part, source.receipt),
             part.components) for part in parts]


def check_clocks(path: Path, clocks: Mapping[str, Clock]) -> None:
    """Refuse topics, cameras among them, whose times are of clocks that differ: nothing says how much."""
    lags = {name: clock.lag_s for name, clock in clocks.items() if len(clock.times) > 1}
    if lags and max(lags.values()) - min(lags.values()) > CLOCK_SET_S:
        told = ", ".join(f"{name}: {'of the receipt' if lag == 0 else f'stamps {lag:.3g} s before it'}"
                         for name, lag in lags.items())
        raise DataError(f"{path}: the topics have clocks that nothing relates ({told}); --clock receipt takes the "
                        "times at which the recorder received all of them")


def episodes(
    plan: Plan, interface: Interface, rules: Mapping[str, str], source: Source, told: Sequence[Window]
) -> Iterator[Episode | Rejected]:
    """The episodes of each window: one, or the parts between gaps."""
    for window in told:
        where = f"{plan.bag.path}, {window.name}"
        try:
            found = cut(plan, interface, rules, source.align, window)
        except checks.DAMAGED as error:
            yield checks.rejected(where, error)
            continue
        for k, episode in enumerate(found):
            at = where if len(found) == 1 else f"{where}, part {k}"
            yield checks.attempted(at, partial(replace, episode), interface)


def cut(
    plan: Plan, interface: Interface, rules: Mapping[str, str], align: Alignment, window: Window
) -> list[Episode]:
    """The episodes of one window."""
    grid = grid_of(plan, align, window)
    signals, gone = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for topic, of in plan.states:
        values, gone[topic.name] = topics.on_grid(topic, grid, of, align)
        signals |= values
    numbers = {}
    for camera in plan.cameras:
        numbers[camera.spec.name], gone[camera.topic] = camera.numbers(grid, rules[camera.spec.name], align)
    action, without = action_of(plan, interface, grid, align)
    lost = np.any(list(gone.values()), axis=0)
    if lost.any() and align.gaps == REFUSE:
        raise DataError(gap(plan, grid, gone, align))
    parts = [part for part in runs(lost, without) if (part.stop - part.start - 1) * align.period >= align.shortest_s]
    if not parts:
        raise DataError(gap(plan, grid, gone | {"the command": without}, align)
                        + f"; no part of it lasts {align.shortest_s:g} s")
    told = {"source": plan.bag.path.name, **window.info, **left_out(plan)}
    out = []
    for k, part in enumerate(parts):
        pictures: dict[str, Any] = {camera.spec.name: camera.shown(plan.bag, numbers[camera.spec.name][part])
                    for camera in plan.cameras}
        info = {**told, "begin_s": round(float(grid[part.start]), 6)} | ({"part": k} if len(parts) > 1 else {})
        out.append(Episode({name: values[part] for name, values in signals.items()} | pictures,
                           action[part.start : part.stop - 1], success=window.success if len(parts) == 1 else None,
                           language=window.language, info=info))
    return out


def grid_of(plan: Plan, align: Alignment, window: Window) -> np.ndarray:
    """The times of the samples: from the first command on, while all topics have some."""
    moving = [topic.clock.times for topic, _ in plan.states if not topic.latched and len(topic.clock.times)]
    moving += [camera.clock.times for camera in plan.cameras]
    begin = max([window.begin_s, *(float(times[0]) for times in moving)])
    end = min([window.end_s, *(float(times[-1]) for times in moving)])
    sent = np.sort(np.concatenate([topic.clock.times for topic, _ in plan.commands]))
    later = sent[np.searchsorted(sent, begin):]
    begin = float(later[0]) if len(later) and later[0] < end else begin
    count = int(np.floor((end - begin) * align.rate_hz + 1e-6)) + 1
    if count < 2:
        raise DataError(f"from {window.begin_s:.3f} to {window.end_s:.3f} s its topics and the command have no step in "
                        "common")
    return begin + np.arange(count) / align.rate_hz


def action_of(plan: Plan, interface: Interface, grid: np.ndarray, align: Alignment) -> tuple[np.ndarray, np.ndarray]:
    """The commands [G, U] in force at the middle of each step, and where there is none [G]."""
    action = np.zeros((len(grid), interface.action.size))
    without = np.zeros(len(grid), bool)
    for topic, components in plan.commands:
        values, lost = topics.on_grid(topic, grid + 0.5 * align.period, {COMMAND: HOLD}, align)
        without |= lost
        if COMMAND in values:
            action[:, list(components) or slice(None)] = values[COMMAND]
    return action, without


def gap(plan: Plan, grid: np.ndarray, gone: Mapping[str, np.ndarray], align: Alignment) -> str:
    """The first gap, in words."""
    name, lost = min(gone.items(), key=lambda item: int(np.argmax(item[1])) if item[1].any() else len(grid))
    k = int(np.argmax(lost))
    wrong = [f"message {number}: {why}" for topic, _ in (*plan.states, *plan.commands) if topic.name == name
             for number, why in sorted(topic.wrong.items())[:1]]
    return (f"{name}, index {k}: no sample near {grid[k]:.3f} s (at most {align.stated()} are bridged)"
            + (f"; {wrong[0]}" if wrong else ""))


def left_out(plan: Plan) -> dict[str, Any]:
    """Messages that were no samples, for the episode's ``info``."""
    out: dict[str, Any] = {}
    for topic, _ in (*plan.states, *plan.commands):
        late = int((~topic.clock.good).sum())
        if late or topic.wrong:
            first = next(iter(sorted(topic.wrong.items())), None)
            out[topic.name] = {"late": late, "refused": len(topic.wrong)} | (
                {} if first is None else {"first_refused": f"message {first[0]}: {first[1]}"[:200]})
    return {"left_out": out} if out else {}
