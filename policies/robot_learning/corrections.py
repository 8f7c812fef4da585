"""The base that a policy corrects on a robot: what of it actor and learner agree on, and what stands for none.

Weights that were learned as small corrections of one base are no policy of their own, nor of another base or scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.robots.artifact.manifest import Manifest

INSTEAD = ("To correct a base on a robot behind ROS 2: `temporeal actor --ros ARTIFACT --correct SCALE` with "
           "`temporeal learner --base ARTIFACT --correct SCALE`; in --sim there is none")


def correction(manifest: Manifest, scale: float) -> dict[str, Any]:
    """What is agreed on of a base and the ``scale`` of its correction: its name, and the SHA-256 of all of it."""
    from temporeal.robots.artifact.manifest import identity

    if not 0.0 <= scale <= 1.0:
        raise BadInput(f"the scale of a correction is from 0 to 1, got {scale:g}")
    return {"scale": float(scale), "base": manifest.name, "sha256": identity(manifest)}


def asked(scale: float | None, artifact: Path | None, option: str) -> dict[str, Any] | None:
    """The correction that ``--correct`` asks for, of the artifact that ``option`` names; None: there is none."""
    from temporeal.robots.artifact.loading import load_manifest

    if scale is None:
        return None
    if artifact is None:
        raise BadInput(f"--correct {scale:g}: of what? {option} ARTIFACT names the base, whose commands are corrected")
    with bad_input():
        return correction(load_manifest(artifact), scale)


def refuse_base(words: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Refuse the base of a training, ``base.policy=...``, which actor and learner do not read: the policy would move
    the robot alone."""
    given = [word for word in words if word.lstrip("+~").partition("=")[0].partition(".")[0] == "base"]
    given += [f"base.{name}={settings['base'][name]}" for name in ("policy", "expert") if settings["base"][name]]
    if given:
        raise BadInput(f"{given[0]} is of `temporeal train`; actor and learner read no base.* setting, and the policy "
                       f"would act alone. {INSTEAD}")
