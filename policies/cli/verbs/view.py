"""``temporeal view``: look at a task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import (
    Parser,
    add_json,
    add_overrides,
    add_overwrite,
    add_trust,
    counter,
    print_json,
    say,
)
from temporeal.policies.runs.errors import OK, BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.policies.evaluate.viewer.pictures import Studio
    from temporeal.policies.evaluate.viewer.viewer import Moment, Show
    from temporeal.policies.runs.trained import TrainedPolicy
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

SUMMARY = "look at a task in the browser, or as a PNG or a video"
HELP = """\
Shows a task's worlds while they run: live in the browser, with the formula's verdict and bounds; or as files with --png
or --video, without a screen. A policy (--policy, a run or an artifact) drives the robot; without one, actions are zero
or random. Episodes are drawn as in an evaluation, with the settings' randomization and cameras.

Example:
  temporeal view task=lift                                     in the browser: http://127.0.0.1:8080
  temporeal view --policy outputs/train/reach-ppo-1 --worlds 4
  temporeal view task=waypoints --png start.png --size 960x720
  temporeal view --policy outputs/train/reach-ppo-1 --worlds 9 --size 320x240 --video reach.webm
"""
FRAME_S = 0.04  # of a video, at speed 1
PORTS = range(8080, 8100)
CORNERS = 48  # of a circle
MOST = 64  # worlds: each has its own monitor


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("view", HELP)
    add_overrides(p)
    p.add_argument("--policy", type=Path, metavar="RUN_OR_ARTIFACT", help="the policy; its task is shown")
    p.add_argument("--actions", choices=("zero", "random"), help="without a policy (default: zero)")
    p.add_argument("--worlds", type=int, default=1, metavar="N", help=f"worlds, 1 to {MOST} (%(default)s)")
    p.add_argument("--png", type=Path, metavar="FILE", help="write a picture and stop")
    p.add_argument("--at", type=float, default=0.0, metavar="S", help="time of the picture, s (0: the start)")
    p.add_argument("--video", type=Path, metavar="FILE", help="write a video, .webm or .mp4, and stop")
    p.add_argument("--seconds", type=float, metavar="S",
                   help="length of the video (default: one episode); in the browser: stop after so long")
    p.add_argument("--speed", type=float, default=1.0, help="of the video, 1: real time (%(default)s)")
    p.add_argument("--size", default="640x480", metavar="WxH", help="pixels of each world's picture (%(default)s)")
    p.add_argument("--camera", metavar="NAME",
                   help="of the pictures: one of the model's, or frame, front, side, top, follow")
    p.add_argument("--renderer", choices=("auto", "warp", "gl"), default="auto",
                   help="of the pictures (auto: gl, which needs OpenGL and no GPU; warp where there is none)")
    p.add_argument("--host", default="127.0.0.1", help="address to serve on (%(default)s: this machine only)")
    p.add_argument("--port", type=int, help=f"port to serve on (default: the first free one from {PORTS[0]})")
    add_overwrite(p)
    add_trust(p)
    add_json(p)
    return p


def completions() -> list[str]:
    """Options of the groups that are shown."""
    from temporeal.policies.runs.settings.folders import groups

    return [f"{group}={option}" for group, options in groups().items() if group in ("task", "backend", "randomize")
            for option in options] + ["seed=", "task.settings."]


def run(argv: Sequence[str]) -> int:
    """Write pictures if asked to, else serve the browser."""
    options = parser().parse_intermixed_args(argv)
    size = check(options)
    check_subject(options)
    with bad_input():
        import_needed(options)
    show = make_show(options)
    try:
        with bad_input():
            pictures(show, size, options) if options.png or options.video else browser(show, options)
    finally:
        show.env.backend.close()
    return OK


def check(options: Any) -> tuple[int, int]:
    """Refuse what cannot be done before anything slow; the size of a picture."""
    from temporeal.policies.runs import run_folders
    from temporeal.policies.runs.replacing import refuse_to_replace

    if not 1 <= options.worlds <= MOST:
        raise BadInput(f"--worlds is a whole number from 1 to {MOST}, got {options.worlds}")
    if not options.at >= 0 or options.at == float("inf"):
        raise BadInput(f"--at is a time in s, at least 0, got {options.at:g}")
    for name in ("seconds", "speed"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise BadInput(f"--{name} is above 0, got {value:g}")
    if options.port is not None and not 1 <= options.port <= 65535:
        raise BadInput(f"--port is a whole number from 1 to 65535, got {options.port}")
    if options.policy is not None and options.actions is not None:
        raise BadInput("--actions is for a view without --policy")
    for option, legal in (("png", (".png",)), ("video", (".webm", ".mp4"))):
        path = getattr(options, option)
        if path is None:
            continue
        if path.suffix.lower() not in legal:
            raise BadInput(f"--{option} is a file with the ending {' or '.join(legal)}, got {str(path)!r}")
        if path.is_dir():
            raise BadInput(f"--{option} {path} is a folder")
        refuse_to_replace(path, options.overwrite, f"--{option}")
        run_folders.check_writable(path.parent, f"--{option}")
    return picture_size(options.size)


def check_subject(options: Any) -> None:
    """Refuse settings, runs and artifacts that cannot be, before anything slow is imported."""
    from temporeal.policies.runs import trained
    from temporeal.policies.runs.settings.compose import compose

    if options.policy is None:
        compose(options.overrides)
    else:
        trained.require_trained(options.policy)


def picture_size(text: str) -> tuple[int, int]:
    """Width and height of ``640x480``."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(p.isascii() and p.isdigit() and 16 <= int(p) <= 4096 for p in parts):
        raise BadInput(f"--size is WIDTHxHEIGHT, 16 to 4096 pixels each, such as 640x480; got {text!r}")
    return int(parts[0]), int(parts[1])


def import_needed(options: Any) -> None:
    """Import the packages that the result needs, so that a missing one is reported before the simulation."""
    import importlib

    if not (options.png or options.video):
        importlib.import_module("viser")
        return
    importlib.import_module("cv2")
    if options.video:
        importlib.import_module("av")


def make_show(options: Any) -> Show:
    """The worlds and what drives them."""
    from contextlib import nullcontext
    from dataclasses import replace

    from temporeal.policies.evaluate.full_horizon import to_full_horizon
    from temporeal.policies.evaluate.judging import EVALUATION_SEED
    from temporeal.policies.runs import environments, trained
    from temporeal.policies.runs.run_folders import title_of
    from temporeal.policies.runs.settings.compose import compose, override
    from temporeal.policies.runs.settings.handed_over import described_by

    subject = None if options.policy is None else trained.load_trained(options.policy, options.trust)
    settings = compose(options.overrides) if subject is None else override(subject.settings, options.overrides)
    with nullcontext() if subject is None else described_by(subject.folder):
        task = environments.make_task(settings)
        if options.at > task.episode_s:
            raise BadInput(f"--at {options.at:g}: an episode of {task.name} lasts {task.episode_s:g} s")
        policy = None if subject is None else trained.trained_policy(subject, settings, task)
        shown = replace(to_full_horizon(task) if policy is None else policy.task, name=title_of(settings))
        env = environments.make_env(settings, task=shown, num_worlds=options.worlds,
                                    seed=settings["seed"] + EVALUATION_SEED, compiled=False)
    try:
        return show_of(env, task, policy, options.actions or "zero")
    except BaseException:
        env.backend.close()
        raise


def show_of(env: Env, task: Task, policy: TrainedPolicy | None, actions: str) -> Show:
    """The show of ``task`` in ``env``, driven by ``policy``, else by ``actions``."""
    from temporeal.policies.evaluate.scene_figure import stage_of
    from temporeal.policies.evaluate.viewer.viewer import Show

    act = None if policy is None else lambda: policy.act(env)
    with bad_input():
        return Show(env, stage_of(task, corners=CORNERS), act, actions=actions)


def pictures(show: Show, size: tuple[int, int], options: Any) -> None:
    """The picture, the video, or both."""
    from temporeal.policies.evaluate.viewer.pictures import Studio
    from temporeal.sim.rendering.opengl_renderer import MissingRenderer

    first = show.restart()
    try:
        studio = Studio(show, first, size=size, camera=options.camera, renderer=options.renderer)
    except MissingRenderer as error:
        raise BadInput(str(error)) from error
    try:
        result: dict[str, Any] = {"task": show.task.name, "worlds": options.worlds}
        if options.png:
            result |= still(show, studio, options)
        if options.video:
            result |= film(show, studio, options)
    finally:
        studio.close()
    announce(show, result, options)


def still(show: Show, studio: Studio, options: Any) -> dict[str, Any]:
    """Write the picture at the time asked for."""
    import cv2

    from temporeal.robots.atomic_files import write_whole

    moment = show.moment
    assert moment is not None
    for k in range(round(options.at / show.task.control_dt)):
        if k % every(show) == 0:
            studio.follow(moment)
        if moment.over.all():
            break
        moment = show.step()
    options.png.parent.mkdir(parents=True, exist_ok=True)
    _, data = cv2.imencode(".png", cv2.cvtColor(studio.take(moment), cv2.COLOR_RGB2BGR))
    write_whole(options.png, data.tobytes())
    return {"png": options.png, "time": moment.time}


def every(show: Show) -> int:
    """Control steps between frames."""
    return max(1, round(FRAME_S / show.task.control_dt))


def film(show: Show, studio: Studio, options: Any) -> dict[str, Any]:
    """Write the video: one episode of all worlds, or as many as ``--seconds`` hold."""
    from fractions import Fraction

    from temporeal.sim.rendering.video import Video

    dt = show.task.control_dt
    steps = show.task.steps if options.seconds is None else max(1, round(options.seconds / dt))
    fps = min(options.speed / (dt * every(show)), 1000.0)
    options.video.parent.mkdir(parents=True, exist_ok=True)
    started, moment = time.monotonic(), show.restart()
    with Video(options.video, Fraction(fps).limit_denominator(1000)) as video:
        video.write(studio.take(moment))
        for k in range(1, steps + 1):
            moment = show.step()
            ended = options.seconds is None and bool(moment.over.all())
            if k % every(show) == 0 or k == steps or ended:
                video.write(studio.take(moment))
            counter(f"video, {time_left(started, k, steps)} left, step")(k, steps)
            if ended:
                break
        last = studio.take(moment)
        for _ in range(round(fps) if options.seconds is None else 0):
            video.write(last)  # a second to read the verdict
    return {"video": options.video, "frames": video.frames, "fps": fps}


def time_left(started: float, done: int, of: int) -> str:
    """How long the rest takes at this pace, as ``m:ss``."""
    from temporeal.policies.training.progress import clock

    return clock((time.monotonic() - started) / done * (of - done))


def announce(show: Show, result: dict[str, Any], options: Any) -> None:
    """Print what was written, and the verdicts."""
    moment = show.moment
    assert moment is not None
    verdicts = verdicts_of(moment)
    if options.json:
        print_json({**result, "verdicts": verdicts})
        return
    if "png" in result:
        say(f"{result['png']}: t = {result['time']:.2f} s")
    if "video" in result:
        say(f"{result['video']}: {result['frames']} frames at {result['fps']:g} a second")
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    say(f"{show.task.name}, {options.worlds} world{'s' if options.worlds > 1 else ''}: {counts}")


def verdicts_of(moment: Moment) -> list[str]:
    """The verdict of each world."""
    return [moment.verdict(world) for world in range(len(moment.qpos))]


def browser(show: Show, options: Any) -> None:
    """Serve until Ctrl-C."""
    from temporeal.policies.evaluate.viewer.browser import Page, free_port

    port = options.port or free_port(options.host, PORTS)
    page = Page(show, host=options.host, port=port)
    try:
        if options.json:
            print_json({"task": show.task.name, "url": page.url})
        else:
            say(f"{show.task.name}: {page.url} (Ctrl-C ends it)")
        page.run(options.seconds)
    finally:
        page.close()
