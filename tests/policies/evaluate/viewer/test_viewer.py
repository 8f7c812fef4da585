"""Shows and what is drawn of them: episodes end as an evaluation judges them, pictures hold what is there."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.evaluate.evaluation import evaluate
from temporeal.policies.evaluate.rollout import Rollout
from temporeal.policies.evaluate.scene_figure import box, rotation, stage_of
from temporeal.policies.evaluate.viewer import pictures
from temporeal.policies.evaluate.viewer.browser import Page, PortTaken, check_port, free_port, status_text
from temporeal.policies.evaluate.viewer.pictures import Sketch, Studio
from temporeal.policies.evaluate.viewer.viewer import (
    SIDES,
    USUAL,
    Show,
    best_way,
    goal_pose,
    look_at,
    objects_of,
    room,
    share_seen,
)
from temporeal.robots.registry import UnknownName
from temporeal.sim.env import make_env
from temporeal.sim.rendering.cameras import Camera
from temporeal.sim.rendering.opengl_renderer import MissingRenderer
from temporeal.sim.task import Task, load_task


@pytest.fixture
def show() -> Iterator[Callable[..., Show]]:
    """Makes shows and closes their worlds."""
    made: list[Show] = []

    def make(task: str | Task = "reach", worlds: int = 1, **changes: Any) -> Show:
        loaded = load_task(task) if isinstance(task, str) else task
        env = make_env(loaded, num_worlds=worlds, compiled=False, seed=3)
        made.append(Show(env, stage_of(loaded, corners=8), **changes))
        return made[-1]

    yield make
    for one in made:
        one.env.backend.close()


def test_verdicts_are_those_of_an_evaluation(show: Callable[..., Show]) -> None:
    """Hovering by chance: some crash, all fail, and worlds that are over stay as they were."""
    played = show("hover", 4, actions="random")
    moments = [played.restart()]
    while not moments[-1].over.all():
        moments.append(played.step())
    lengths = np.array([1 + sum(not m.over[w] for m in moments) for w in range(4)])
    signals = {k: np.stack([m.signals[k] for m in moments]).astype(np.float32) for k in played.task.schema}
    trace = Rollout(signals, np.zeros((len(moments) - 1, 4, 4), np.float32), lengths, moments[-1].terminated,
                    np.ones(4, bool), played.task.control_dt)
    found = evaluate(trace, played.task.formula).episodes.satisfied
    assert [moments[-1].verdict(w) == "satisfied" for w in range(4)] == found.tolist()
    assert len(set(lengths.tolist())) > 1
    early = int(lengths.argmin())
    np.testing.assert_array_equal(moments[-1].qpos[early], moments[lengths[early] - 1].qpos[early])
    again = played.step()
    assert again.time == 0 and not again.over.any() and again.readings[0].samples == 1


def test_each_episode_has_a_policy_of_its_own(show: Callable[..., Show]) -> None:
    made: list[int] = []

    def policy() -> Callable[[torch.Tensor], torch.Tensor]:
        made.append(len(made))
        return lambda obs: torch.zeros(len(obs), 6)

    played = show("reach", policy=policy)
    played.restart()
    played.step()
    played.restart()
    assert made == [0, 1]


def test_unknown_actions_list_the_known(show: Callable[..., Show]) -> None:
    with pytest.raises(ValueError, match="zero, random; got 'best'"):
        show("hover", actions="best")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("aspect", [0.5, 2.0])
def test_all_points_fill_the_picture(side: str, aspect: float) -> None:
    points = np.random.default_rng(0).normal(size=(40, 3)) * [1, 2, 0.5] + [3, 0, 1]
    look = look_at(points, side, aspect)
    height, width = 200, round(200 * aspect)
    pixels = Sketch(np.zeros((height, width, 3), np.uint8), np.ones((height, width)), look).project(points)
    assert (pixels[:, 2] > 0).all()
    share = np.abs(2 * pixels[:, :2] / [width, height] - 1)
    assert 0.7 < share.max() <= 1.0
    mat = rotation(np.array(look.quat))
    np.testing.assert_allclose(mat[:, 2], (look.eye - look.target) / np.linalg.norm(look.eye - look.target), atol=1e-9)
    assert mat[2, 0] == pytest.approx(0, abs=1e-9) and mat[2, 1] >= 0  # upright


def test_what_is_behind_things_is_drawn_faintly() -> None:
    look = look_at(np.array([[-1.0, -1, -1], [1, 1, 1]]), "front", 1.0)
    depth = np.full((64, 64), 100.0)
    depth[:, :32] = 0.1
    sketch = Sketch(np.zeros((64, 64, 3), np.uint8), depth, look)
    sketch.line(np.linspace([0, -0.8, 0], [0, 0.8, 0], 30), (255, 255, 255), 3)
    found = sketch.done()[28:36].max(0).astype(int)
    assert found[36:46].min() > 150 > 90 > found[18:28].max() > 0


@pytest.mark.parametrize("task", ["hover", "reach"])
def test_pictures_show_the_robot_and_its_goal(task: str, show: Callable[..., Show]) -> None:
    played = show(task)
    first = played.restart()
    studio = Studio(played, first, size=(96, 72), renderer="gl")
    try:
        picture = studio.take(first)
        assert picture.shape == (72, 96, 3) and picture.std() > 10
        green = picture[..., 1].astype(int) - np.maximum(picture[..., 0], picture[..., 2])
        assert (green > 15).sum() >= 4  # the goal: nothing else is green
        np.testing.assert_allclose(studio.take(first).astype(int), picture, atol=2)  # OpenGL rounds as it likes
    finally:
        studio.close()


def blue(picture: np.ndarray) -> np.ndarray:
    """Where the robot in the plane is drawn: nothing else is as blue but its trail."""
    return picture[..., 2].astype(int) - np.maximum(picture[..., 0], picture[..., 1]) > 40


@pytest.mark.parametrize("width", [96, 240])
def test_an_arena_is_seen_from_above_and_its_robot_is_not_a_dot(width: int, show: Callable[..., Show]) -> None:
    played = show("stl", 1)
    first = played.restart()
    studio = Studio(played, first, size=(width, width), renderer="gl")
    try:
        assert studio.look.eye[2] > 10 and abs(studio.look.eye[:2] - studio.look.target[:2]).max() < 1
        found = blue(studio.take(first, words=False))
        rows, columns = np.nonzero(found)
        assert min(np.ptp(rows), np.ptp(columns)) >= 16  # the ball of 0.1 m would be 1 or 4 pixels
        place = first.signals["base_pos_w"][0]
        right, down, _ = Sketch(np.zeros((width, width, 3), np.uint8), np.ones((width, width)), studio.look).project(
            place[None])[0]
        assert (columns.mean(), rows.mean()) == pytest.approx((right, down), abs=3)
        assert (right > width / 2) == (place[0] > 0) and (down < width / 2) == (place[1] > 0)  # a map: x right, y up
    finally:
        studio.close()


def test_without_opengl_pictures_are_made_by_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def rig(*args: object, renderer: str) -> str:
        asked.append(renderer)
        if renderer == "gl":
            raise MissingRenderer("no OpenGL")
        return renderer

    monkeypatch.setattr(pictures, "Rig", rig)
    view = Camera("a", 8, 8, pos=(0, 0, 1), quat=(1, 0, 0, 0))
    assert pictures.pictures_rig(None, 1, view, "auto") == "warp" and asked == ["gl", "warp"]
    with pytest.raises(MissingRenderer):
        pictures.pictures_rig(None, 1, view, "gl")


def test_the_eye_is_where_the_objects_are_seen(show: Callable[..., Show]) -> None:
    """A drawer's handle is on the side of the cabinet that faces the arm."""
    played = show("drawer", 3)
    first, stage = played.restart(), played.stage
    wanted, points = objects_of(stage), room(played.stage, first, ())
    handle = next(i for i, b in enumerate(wanted) if any("bar" in p.name for p in stage.figure.parts if p.body == b))

    def seen(way: np.ndarray) -> float:
        return float(share_seen(stage, first, wanted, look_at(points, way, 1.5).eye)[handle])

    chosen = best_way(stage, first, (), 1.5)
    assert seen(chosen) > 2 * seen(np.array([1.0, -0.5, 0.5])) and seen(chosen) > 0.3


def test_scenes_without_objects_are_seen_in_the_usual_way(show: Callable[..., Show]) -> None:
    played = show("hover")
    way = best_way(played.stage, played.restart(), played.task.shapes, 1.5)
    np.testing.assert_allclose(way, np.array(USUAL) / np.linalg.norm(USUAL))


def test_a_ghost_hides_behind_what_is_nearer() -> None:
    look = look_at(np.array([[-1.0, -1, -1], [1, 1, 1]]), "front", 1.0)
    away = float(np.linalg.norm(look.eye))
    depth = np.full((64, 64), 100.0)
    depth[:, :32] = away - 1.0  # between the box and the eye
    cube = box((0.5, 0.5, 0.5), 9.0)
    sketch = Sketch(np.zeros((64, 64, 3), np.uint8), depth, look)
    sketch.ghost(cube.vertices, cube.faces, (0, 200, 0))
    assert abs(int(sketch.front[32, 36, 1]) - 110) < 4 and not sketch.front[..., [0, 2]].any()
    assert sketch.front[:, :32].max() == 0 and sketch.front[2, 60].max() == 0
    found = np.argwhere(sketch.front[..., 1] > 0)
    edges = sketch.project(np.array([[0.5, 0, 0.5], [0.5, 0.5, 0]]))
    assert found[:, 0].min() == pytest.approx(edges[0, 1], abs=1.5)
    assert found[:, 1].max() == pytest.approx(edges[1, 0], abs=1.5)


def test_the_attitude_asked_for_is_a_ghost_above_the_cube(show: Callable[..., Show]) -> None:
    played = show("cube_reorient")
    first = played.restart()
    (goal,) = played.stage.goals
    place, quat = goal_pose(goal, played.stage, first.signals, 0)
    off = place - first.signals["cube_pos_w"][0]
    assert off[:2] == pytest.approx([0, 0]) and off[2] > 2 * 0.035 * 3**0.5  # they never touch
    np.testing.assert_array_equal(quat, first.signals["goal_quat_w"][0])
    pictures = []
    for goals in (played.stage.goals, ()):
        studio = Studio(played, first, size=(96, 72), renderer="gl")
        try:
            studio.stage = replace(studio.stage, goals=goals)
            pictures.append(studio.take(first, words=False).astype(int))
        finally:
            studio.close()
    u, v, _ = Sketch(np.zeros((72, 96, 3), np.uint8), np.ones((72, 96)), studio.look).project(place[None])[0]
    changed = np.abs(pictures[0] - pictures[1]).max(-1) > 8
    assert changed.sum() > 60  # a cube, not only its axes
    rows, columns = changed.nonzero()
    assert abs(rows.mean() - v) < 4 and abs(columns.mean() - u) < 4
    assert 0 < rows.min() and rows.max() < 71  # all of it


def test_the_camera_that_follows_holds_robot_and_goal(show: Callable[..., Show]) -> None:
    played = show("ant", 3)
    moment = played.restart()
    studio = Studio(played, moment, size=(64, 48), renderer="gl")
    try:
        studio.follow(moment)
        for world, look in enumerate(studio.looks):
            sketch = Sketch(np.zeros((48, 64, 3), np.uint8), np.ones((48, 64)), look)
            goal = np.append(moment.signals["goal_pos_w"][world], 0.0)
            pixels = sketch.project(np.stack([moment.signals["base_pos_w"][world], goal]))
            assert ((pixels[:, :2] > 0) & (pixels[:, :2] < [64, 48])).all()
        before = studio.looks[0]
        later = played.step()
        later.signals["goal_pos_w"][0] += 8.0
        studio.follow(later)
        wanted = studio._wanted(later, 0)
        gone = np.linalg.norm(studio.looks[0].eye - before.eye) / np.linalg.norm(wanted.eye - before.eye)
        assert 0 < gone < 0.2  # it glides
        np.testing.assert_allclose(studio.looks[0].quat, before.quat, atol=1e-9)
    finally:
        studio.close()


def test_worlds_lie_side_by_side_and_the_camera_follows_what_walks(show: Callable[..., Show]) -> None:
    played = show("ant", 3)
    first = played.restart()
    studio = Studio(played, first, size=(64, 48), renderer="gl")
    try:
        assert studio.camera == "follow"
        assert studio.take(first).shape == (2 * 48 + 2, 2 * 64 + 2, 3)
    finally:
        studio.close()


def test_cameras_of_the_model_are_taken_by_name_and_others_are_listed(show: Callable[..., Show]) -> None:
    played = show("reach")
    first = played.restart()
    studio = Studio(played, first, size=(32, 32), camera="wrist", renderer="gl")
    studio.close()
    with pytest.raises(UnknownName, match="no camera 'nose'; viewpoints: frame, .*; the model's own: wrist"):
        Studio(played, first, camera="nose")


def test_colours_that_a_task_draws_for_an_episode_are_seen(show: Callable[..., Show]) -> None:
    """Of each world, and of each episode anew; what this camera does not show is not its matter."""

    def appearance(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        left = (state["cube_pos_w"][:, 1:2] > 0).float()
        return {"color.cube.geom": torch.cat([left, 0 * left, 1 - left], -1), "camera.other.turn": torch.zeros(4, 3)}

    played = show(replace(load_task("lift"), appearance=appearance), 4)
    page = Page(played, port=free_port("127.0.0.1", range(18220, 18250)))
    studio = Studio(played, page.moment, size=(32, 32), renderer="gl")
    try:
        for _ in range(2):
            left = page.moment.signals["cube_pos_w"][:, 1] > 0
            assert 0 < left.sum() < 4
            studio.take(page.moment)
            assert (studio.rig.params()["color.cube.geom"][:, 0].numpy() == left).all()
            for world in range(4):
                page._choose(world)
                page.draw()
                assert page.meshes["cube.geom"].color == ((255, 0, 0) if left[world] else (0, 0, 255))
            page._restart()
    finally:
        studio.close()
        page.close()


# ---- the browser's page


@pytest.fixture
def page(show: Callable[..., Show]) -> Iterator[Page]:
    made = Page(show("lift", 2, actions="random"), port=free_port("127.0.0.1", range(18110, 18160)))
    yield made
    made.close()


def test_nodes_stand_where_the_bodies_are(page: Page) -> None:
    for _ in range(5):
        page.step()
    page.draw()
    figure, moment = page.figure, page.moment
    (pos,), (quat,) = figure.poses(moment.qpos[:1])
    np.testing.assert_allclose([frame.position for frame in page.bodies], pos, atol=1e-9)
    np.testing.assert_allclose([frame.wxyz for frame in page.bodies], quat, atol=1e-9)
    names = {frame.name for frame in page.bodies}
    assert "/world/cube.root" in names and len(names) == len(figure.bodies)
    (goal, frame), = page.goals
    np.testing.assert_allclose(frame.position, moment.signals["goal_pos_w"][0])
    assert page.path.visible and page.path.points.shape[1:] == (2, 3)


def test_another_world_can_be_chosen(page: Page) -> None:
    page._choose(1)
    page.draw()
    np.testing.assert_allclose(page.goals[0][1].position, page.moment.signals["goal_pos_w"][1])


def test_joints_can_be_posed_by_hand(page: Page) -> None:
    before = [np.array(frame.position) for frame in page.bodies]
    page.asked.by_hand = True
    at, slider = page.sliders[1]
    slider.value = slider.value + 0.5
    page.draw()
    assert not np.allclose(before, [frame.position for frame in page.bodies])
    np.testing.assert_allclose(page.moment.qpos, page.show.moment.qpos)  # nothing was simulated
    assert len(page.sliders) == 9 and all(s.min < s.max for _, s in page.sliders)


def test_it_plays_pauses_steps_and_starts_anew(page: Page) -> None:
    page.asked.speed = 4.0
    page.run(0.5)
    assert page.moment.time > 0
    page._toggle()
    assert page.play.label == "Play"
    held = page.moment.time
    page.run(0.1)
    assert page.moment.time == held
    page._one()
    page.run(0.1)
    assert page.moment.time == pytest.approx(held + page.show.task.control_dt)
    page.asked.restart = True
    page.run(0.05)
    assert page.moment.time == 0 and page.trail == []


def test_the_text_names_every_clause_with_its_bounds(page: Page) -> None:
    text = status_text(page.show, 0)
    assert "**undecided**" in text and "`G[0,6] (grip_pos_w.z > floor)`" in text
    assert text.count("\n- ") == 2


def test_the_page_shows_the_ghost_where_the_goal_is(show: Callable[..., Show]) -> None:
    made = Page(show("cube_reorient"), port=free_port("127.0.0.1", range(18190, 18220)))
    try:
        (goal, frame), = made.goals
        handle = made.server.scene._handle_from_node_name["/goal/goal/ghost/0"]
        assert handle.opacity == pytest.approx(0.45) and np.abs(handle.vertices).max() == pytest.approx(0.035)
        place, quat = goal_pose(goal, made.stage, made.moment.signals, 0)
        np.testing.assert_allclose(frame.position, place)
        np.testing.assert_allclose(frame.wxyz, quat)
    finally:
        made.close()


def test_a_port_is_had_once(page: Page) -> None:
    port = page.server.get_port()
    with pytest.raises(PortTaken, match=f"port {port} .*choose another with --port"):
        check_port("127.0.0.1", port)
    with pytest.raises(PortTaken, match="no such address"):
        check_port("no.such.host.invalid", port)
    assert free_port("127.0.0.1", [port, port + 1]) != port


def test_after_closing_the_port_is_free(show: Callable[..., Show]) -> None:
    port = free_port("127.0.0.1", range(18160, 18190))
    Page(show("hover"), port=port).close()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                break
        time.sleep(0.05)
    else:
        pytest.fail("still served")
    check_port("127.0.0.1", port)
