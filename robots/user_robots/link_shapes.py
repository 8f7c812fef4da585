"""Capsules around a robot's links, from its YAML: ``capsules: {links: {arm: [[x, y, z, x, y, z, radius]]}}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporeal.robots.model_files import Content, frames
from temporeal.robots.spec import LinkShapes
from temporeal.robots.user_robots.entries import check_keys, known, number

MOST = 200  # capsules: each pair of them is looked at for every command. Chosen
NUMBERS = 7


def link_shapes(content: Content, given: Mapping[str, Any]) -> LinkShapes | None:
    """The capsules that the entry ``given`` has; None without any."""
    where = f"{content.path}: {content.beside}: capsules"
    check_keys(where, given, ("links", "loose"))
    links, loose = given.get("links", {}), given.get("loose", [])
    if not isinstance(links, Mapping) or not all(isinstance(rows, list) for rows in links.values()):
        raise content.fail(f"{content.beside}: capsules.links", f"lists of capsules by link are needed, got {links!r}")
    if not isinstance(loose, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in loose):
        raise content.fail(f"{content.beside}: capsules.loose", f"pairs of links are needed, got {loose!r}")
    legal = frames(content)
    known(content, "capsules.links", list(links), legal)
    if sum(map(len, links.values())) > MOST:
        raise content.fail(f"{content.beside}: capsules", f"at most {MOST} are read")
    pairs = [known(content, "capsules.loose", pair, legal) for pair in loose]
    capsules = tuple((str(name), tuple(capsule(content, str(name), row) for row in rows))
                     for name, rows in links.items())
    return LinkShapes(capsules, tuple((a, b) for a, b in pairs)) if capsules else None


def capsule(content: Content, name: str, row: Any) -> tuple[float, ...]:
    """One capsule: seven numbers, the last one above 0."""
    where = f"capsules.links.{name}"
    if not isinstance(row, list) or len(row) != NUMBERS:
        raise content.fail(f"{content.beside}: {where}", f"[x, y, z, x, y, z, radius] is needed, got {row!r}")
    found = tuple(number(content, where, value) for value in row)
    if found[-1] <= 0:
        raise content.fail(f"{content.beside}: {where}", f"a radius above 0 is needed, got {found[-1]:g}")
    return found
