"""What a verb may replace: one rule, in ``docs/reference/runs.md``.

In its own place (in or beside what it is made of, or the verb's default folder) a result is replaced by a newer one. At
a place that the user names nothing is replaced without ``--overwrite``.
"""

from __future__ import annotations

from pathlib import Path

from temporeal.policies.runs.errors import BadInput

REPORT = ("report.html", "report.json")
"""Files of a report, in its folder."""


def refuse_to_replace(named: Path | None, overwrite: bool, option: str = "--out", files: tuple[str, ...] = ()) -> None:
    """Refuse a place that the user ``named`` with ``option`` where something is already.

    Args:
        named: None: no place was named, and the result goes to its own.
        overwrite: whether the user said that it may be replaced.
        files: what of the folder ``named`` would be replaced; none: all of it. An empty folder is free.
    """
    if named is None or overwrite:
        return
    found = next((place for place in [named / name for name in files] or [named] if is_taken(place)), None)
    if found is not None:
        raise BadInput(f"{found} is there: --overwrite replaces it, another {option} writes elsewhere")


def is_taken(place: Path) -> bool:
    """Whether there is a file, a link or a folder with something in it."""
    if place.is_dir() and not place.is_symlink():
        return any(place.iterdir())
    return place.is_symlink() or place.exists()
