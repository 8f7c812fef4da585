"""The base that a policy corrects on a robot: what of it actor and learner agree on, and what stands for none.

Weights that were learned as small corrections of one base are no policy of their own, nor of another base or scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from temporeal.policies.runs.errors import BadInput

INSTEAD = ("To correct a base on a robot behind ROS 2: `temporeal actor --ros ARTIFACT --correct SCALE` with "
           "`temporeal learner --base ARTIFACT --correct SCALE`; in --sim there is none")


def refuse_base(words: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Refuse the base of a training, ``base.policy=...``, which actor and learner do not read: the policy would move
    the robot alone."""
    given = [word for word in words if word.lstrip("+~").partition("=")[0].partition(".")[0] == "base"]
    given += [f"base.{name}={settings['base'][name]}" for name in ("policy", "expert") if settings["base"][name]]
    if given:
        raise BadInput(f"{given[0]} is of `temporeal train`; actor and learner read no base.* setting, and the policy "
                       f"would act alone. {INSTEAD}")
