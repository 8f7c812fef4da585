"""What stands in the pages on deploying is so: links, a file to copy, and numbers that are a robot's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from temporeal.robots.franka import spec as franka
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.guard.safety.fallback_actions import BELOW_M, LONGEST
from temporeal_bridge.interface.loading import load_interface

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = {kind: (DOCS / f"deploying-{kind}.md").read_text(encoding="utf-8") for kind in ("arm", "hand", "quadrotor")}


def after(text: str, words: str) -> list[float]:
    """The numbers of the list that follows ``words``."""
    return [float(number) for number in re.findall(r"[\d.]+", text.split(words, 1)[1].split("]")[0])]


@pytest.mark.parametrize("kind", PAGES)
def test_links_lead_somewhere(kind: str) -> None:
    text = PAGES[kind]
    assert f"(deploying-{kind}.md)" in (DOCS / "deploying.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert links and all((DOCS / link).is_file() for link in links)


def test_the_cube_of_the_hand_page_comes_by_its_file() -> None:
    text = PAGES["hand"]
    (file,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    content = yaml.safe_load(file)
    assert {"cube_pos_w", "cube_quat_w"} <= load_interface(load_robot("leap_hand"), None, content).carried.keys()


def test_the_leap_hand_is_brought_home_by_the_command_of_the_page() -> None:
    robot = load_robot("leap_hand")
    topic = load_interface(robot).command("joint_pos_cmd")
    message = COMMAND_CODECS[topic.codec].encode(np.array(robot.home["joint_pos"]), topic.options)
    assert after(PAGES["hand"], "'{position: [") == pytest.approx(list(message.position), abs=1e-3)


def test_the_arm_gets_the_stiffness_of_training() -> None:
    assert after(PAGES["arm"], "{joint_stiffness: [") == list(franka.KP)


def test_the_net_may_be_as_high_as_the_guard_lets_it_be() -> None:
    level = load_interface(load_robot("crazyflie")).safety["level"]
    low, high = re.findall(r"from ([\d.]+) m below\s+to\s+([\d.]+) m above", PAGES["quadrotor"])[0]
    assert float(low) == pytest.approx(BELOW_M - level["landed_m"])
    assert float(high) == pytest.approx(LONGEST * level["max_s"] * level["sink_m_s"])
