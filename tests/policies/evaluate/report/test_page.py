"""The page: complete in itself, safe with any text, and its data are the episodes."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.away import away

from temporeal.policies.evaluate.evaluation import evaluate
from temporeal.policies.evaluate.judging import reference_of
from temporeal.policies.evaluate.report.charts import histogram, interval, ticks
from temporeal.policies.evaluate.report.outputs import make_report
from temporeal.policies.evaluate.report.page import write_json, write_page
from temporeal.policies.evaluate.report.replay import FRAMES, pick_episodes
from temporeal.policies.evaluate.report.section import Context, Section
from temporeal.policies.evaluate.report.wording import percent
from temporeal.policies.evaluate.rollout import Rollout
from temporeal.policies.evaluate.scene_figure import stage_of
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Task, load_task

SCHEMA = schema(SignalSpec("base_pos_w", (3,), "m"), SignalSpec("height", (), "m"))
FORMULA = parse("F[0,2] (base_pos_w.x > 1) & G[0,2] (height > 0.5)", SCHEMA)
SCENE = ({"type": "sphere", "name": "A", "center": (1, 0, 1), "radius": 0.2, "role": "goal"},)


def section(episodes: int = 30, title: str = "Own simulator") -> Section:
    rng = np.random.default_rng(0)
    position = rng.normal(1, 0.5, (6, episodes, 3)).astype(np.float32)
    lengths = rng.integers(3, 7, episodes)
    signals = {"base_pos_w": position, "height": np.abs(position[..., 2])}
    trace = Rollout(signals, np.zeros((5, episodes, 4), np.float32), lengths, lengths < 6, np.ones(episodes, bool), 0.5)
    return Section("native", title, evaluate(trace, FORMULA), trace)


def page(tmp_path: Path, **changes: object) -> str:
    context = Context(**{"title": "Evaluation of test", "robot": "crazyflie", "formula": "x < 1 & y > 0",
                         "scene": SCENE, "require": 0.9, **changes})
    return write_page(tmp_path / "page.html", [section()], context).read_text(encoding="utf-8")


def replay_data(text: str) -> dict:
    return json.loads(re.search(r'id="replay-data">(.*?)</script>', text, re.S).group(1))


def test_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert not re.findall(r"https?://", text)
    assert not re.findall(r"<link|<img|\bsrc=|@import|\burl\(", text)
    assert "{{" not in text


def test_every_element_is_closed(tmp_path: Path) -> None:
    void, stack = {"meta", "input", "br", "link"}, []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in void:
                stack.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert stack.pop() == tag

        def handle_startendtag(self, tag: str, attrs: object) -> None:
            pass

    Balance().feed(page(tmp_path))
    assert stack == []


def test_each_section_can_be_gone_to(tmp_path: Path) -> None:
    text = page(tmp_path)
    links = dict(re.findall(r'<a href="#(\w+)">(.*?)</a>', text))
    assert list(links.values()) == ["Result", "Replay", "Own simulator", "How to read this"]
    assert set(links) == set(re.findall(r'<(?:h2|div class="top") id="(\w+)"', text))


def test_text_is_escaped_wherever_it_comes_from(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>{{data}}"
    text = page(tmp_path, title=evil, formula=evil, facts={evil: evil}, constants={evil: 1.0}, settings={"a": evil},
                scene=({"type": "sphere", "name": evil, "center": (0, 0, 1), "radius": 1.0},))
    assert "<script>alert" not in text
    assert replay_data(text)["scene"][0]["name"] == evil


def test_replay_holds_the_recorded_positions_and_the_last_sample(tmp_path: Path) -> None:
    used = section()
    write_page(tmp_path / "page.html", [used], Context("t", "r", "f"))
    episodes = replay_data((tmp_path / "page.html").read_text(encoding="utf-8"))["episodes"]
    index = pick_episodes(used.evaluation)[0]
    length = used.rollout.lengths[index]
    frames = np.array(episodes[0]["pos"]).reshape(-1, 3) / 1000
    np.testing.assert_allclose(frames, used.rollout.signals["base_pos_w"][:length, index], atol=5.1e-4)
    assert episodes[0]["end"] == pytest.approx((length - 1) * 0.5)
    assert len(episodes[0]["lower"]) == len(episodes[0]["upper"]) == len(frames)


def test_chosen_episodes_start_with_a_typical_one_and_hold_the_worst() -> None:
    evaluation = section(200).evaluation
    chosen = pick_episodes(evaluation, 12)
    margins = evaluation.episodes.robustness
    assert len(chosen) == len(set(chosen)) == 12
    assert margins[chosen[0]] == pytest.approx(np.median(margins), abs=0.1)
    assert set(np.argsort(margins, kind="stable")[:3]) <= set(chosen) and int(margins.argmax()) in chosen
    assert pick_episodes(section(1).evaluation) == [0]


def test_json_file_has_a_part_per_section(tmp_path: Path) -> None:
    content = json.loads(write_json(tmp_path / "a" / "report.json", [section()], {"task": "test"}).read_text())
    assert content["task"] == "test" and content["native"]["episodes"] == 30


def test_certainty_is_never_rounded_up() -> None:
    assert percent(1.0) == "100.0 %" and percent(0.9999) == "> 99.9 %" and percent(0.998) == "99.8 %"


@pytest.mark.parametrize(("low", "high", "want"), [
    (0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (-0.3, 0.3, [-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3]),
    (0, 9, [0, 2, 4, 6, 8]),
])
def test_ticks_are_round_numbers(low: float, high: float, want: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(want)


def test_no_bar_is_half_failure_half_success() -> None:
    drawn = histogram(np.linspace(-0.31, 1, 200), title="t", unit="m")
    edges = [(kind, *map(float, pair.split(" to "))) for kind, pair in
             re.findall(r'class="(good|bad)"[^>]*><title>([^:]*):', drawn)]
    assert all(high <= 0 if kind == "bad" else low >= 0 for kind, low, high in edges)
    assert {kind for kind, *_ in edges} == {"good", "bad"}


def test_bars_count_every_value_and_far_ones_are_noted() -> None:
    values = np.concatenate([np.linspace(0.1, 0.2, 99), [-5.0]])
    drawn = histogram(values, title="t", unit="m")
    assert sum(int(n) for n in re.findall(r": (\d+)</title></rect>", drawn)) == 99
    assert "1 further left, down to -5" in drawn


@pytest.mark.parametrize("values", [[], [np.nan], [0.0], [0.0, 0.0], [3.0], [-1e-6] * 5])
def test_degenerate_values_still_draw(values: list[float]) -> None:
    assert histogram(np.array(values), title="t", unit="m").startswith(("<svg", "<p"))


def test_interval_bar_is_named_for_screen_readers() -> None:
    assert 'aria-label="0.9, interval 0.8 to 0.95, axis from 0 to 1"' in interval(0.8, 0.9, 0.95, 0.85)


# ---- robots that are not quadrotors


def arm_section(task: Task, broken: bool = False) -> Section:
    """Two episodes of a task whose joints sway; no simulation."""
    samples, rng = task.steps + 1, np.random.default_rng(0)
    home = stage_of(task, corners=6).figure.model.home_qpos
    signals = {name: np.zeros((samples, 2, *spec.shape), np.float32) for name, spec in task.schema.items()}
    sway = 0.1 * np.sin(np.arange(samples))[:, None, None]
    if "joint_pos" in signals:
        size = signals["joint_pos"].shape[-1]
        signals["joint_pos"][:] = (home[-size:] if "base_pos_w" in signals else home[:size]) + sway
    for name, value in signals.items():
        if name.endswith("_quat_w"):
            value[..., 0] = 1.0
        elif name.endswith("_pos_w"):
            value[:] = rng.uniform(0.2, 0.6, value.shape)
    signals["mission_time"][:] = task.control_dt * np.arange(samples)[:, None]
    if broken:
        signals["joint_pos"][-1, 0] = np.nan
    finite = np.array([not broken, True])
    trace = Rollout(signals, np.zeros((samples - 1, 2, 6), np.float32), np.full(2, samples), np.zeros(2, bool), finite,
                    task.control_dt)
    return Section("mujoco", "MuJoCo", evaluate(trace, task.formula, reference=reference_of(task)), trace)


def report_of(task: Task, tmp_path: Path, **changes: bool) -> tuple[str, Section]:
    used = arm_section(task, **changes)
    written = make_report(task, [(used.key, used.title, used.evaluation, used.rollout)], tmp_path)
    return written.html.read_text(encoding="utf-8"), used


@pytest.mark.parametrize("name", ["reach", "lift", "ant", "cube_rotate"])
def test_every_robot_has_a_page(name: str, tmp_path: Path) -> None:
    text, _ = report_of(load_task(name), tmp_path)
    data = replay_data(text)
    assert not re.findall(r"https?://|<link|<img|\bsrc=|@import|\burl\(", text)
    assert len(text) < 3_000_000
    assert data["figure"]["parts"] and all(max(map(max, part["faces"])) < len(part["at"]) // 3
                                           for part in data["figure"]["parts"])
    assert "Motion" in text and "Flight" not in text


def test_replay_of_an_arm_holds_mujocos_poses(tmp_path: Path) -> None:
    task = load_task("lift")
    text, used = report_of(task, tmp_path)
    data, episode = replay_data(text), replay_data(text)["episodes"][0]
    index = pick_episodes(used.evaluation)[0]
    frames = len(episode["lower"])
    packed = np.frombuffer(base64.b64decode(episode["poses"]), "<i2").reshape(frames, data["figure"]["bodies"], 7)
    figure = stage_of(task, corners=6).figure
    stride = round(episode["dt"] / task.control_dt)
    samples = {k: v[::stride, index][:frames] for k, v in used.rollout.signals.items()}
    pos, quat = figure.poses(figure.qpos(samples))
    np.testing.assert_allclose(packed[: len(pos), :, :3] * episode["unit"], pos, atol=episode["unit"])
    np.testing.assert_allclose(packed[: len(pos), :, 3:] / 32767, quat, atol=2e-5)
    np.testing.assert_allclose(np.array(episode["pos"]).reshape(-1, 3)[: len(pos)] / 1000,
                               samples["cube_pos_w"], atol=5.1e-4)
    assert len(episode["goals"]) == 1 and len(episode["goals"][0]["pos"]) == 3 * frames


def test_long_episodes_are_thinned_out(tmp_path: Path) -> None:
    text, _ = report_of(load_task("ant"), tmp_path)
    assert all(len(e["lower"]) <= FRAMES + 1 for e in replay_data(text)["episodes"])
    assert len(replay_data(text)["episodes"][0]["goals"][0]["pos"]) % 3 == 0  # a place on the floor has its z


def test_an_episode_that_is_not_finite_is_shown_up_to_there(tmp_path: Path) -> None:
    text, _ = report_of(load_task("reach"), tmp_path, broken=True)
    assert len(replay_data(text)["episodes"]) == 2


def test_a_home_that_is_no_place_is_no_reference() -> None:
    assert reference_of(load_task("reach")) is None
    assert reference_of(load_task("hover")) is not None


def test_the_place_to_be_at_is_told_though_the_task_went_to_a_gpu() -> None:
    seconds, task = np.linspace(0.0, 3.0, 7), load_task("track")
    here = reference_of(task)(seconds)
    away(task.observe.reference)
    with pytest.raises(RuntimeError, match="same device"):
        task.observe.reference(torch.as_tensor(seconds, dtype=torch.float32))
    np.testing.assert_array_equal(reference_of(task)(seconds), here)


@pytest.mark.parametrize(("name", "plane"), [("stl", True), ("reach", False)])
def test_a_task_in_the_plane_is_seen_from_above(name: str, plane: bool, tmp_path: Path) -> None:
    text, _ = report_of(load_task(name), tmp_path)
    data = replay_data(text)
    assert data["plane"] is plane
    if plane:
        assert {shape["type"] for shape in data["scene"]} >= {"box", "cylinder"} and data["scene"][0]["name"] == "a"


def test_the_title_is_the_files_name(tmp_path: Path) -> None:
    used = arm_section(load_task("stl"))
    rows = [(used.key, used.title, used.evaluation, used.rollout)]
    written = make_report(load_task("stl"), rows, tmp_path, title="mine")
    assert "<h1>Evaluation of mine</h1>" in written.html.read_text() and json.loads(
        written.json.read_text())["task"] == "mine"


def test_pages_of_quadrotors_hold_no_meshes(tmp_path: Path) -> None:
    used = section()
    written = make_report(load_task("hover"), [(used.key, used.title, used.evaluation, used.rollout)], tmp_path)
    data = replay_data(written.html.read_text(encoding="utf-8"))
    assert "figure" not in data and "poses" not in data["episodes"][0]
