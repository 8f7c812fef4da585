"""``randomize=mine.yaml``: a randomization from what flights left open, a file of ``temporeal identify``.

The file is data of somebody's: its numbers are checked and go into the settings (``randomize.posterior``), so that a
run, an artifact or a report names no file. What flights do not show (sensors, the inner loop's gains, steady forces) is
of ``randomize=default``; words that follow change either.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.settings import handed_over
from temporeal.policies.runs.settings.overrides import POSTERIOR, Opened

if TYPE_CHECKING:
    from temporeal.robots.spec import RobotSpec

GROUP, ENDS, BASE = "randomize=", (".yaml", ".yml"), "default"
LARGEST = 1 << 22  # bytes of a file


def is_file(word: str) -> bool:
    """Whether ``word`` names a file for the randomization."""
    return word.startswith(GROUP) and word.endswith(ENDS)


def divided(words: Sequence[str]) -> tuple[list[str], list[Opened]]:
    """``words`` with the base in place of files, and what the last file sets."""
    files = [word for word in words if is_file(word)]
    others = [f"{GROUP}{BASE}" if is_file(word) else word for word in words]
    last = [word for word in words if word.startswith(GROUP)][-1:]
    return others, opened(files[-1]) if files and files[-1:] == last else []


def opened(word: str) -> list[Opened]:
    """What ``word`` sets: every parameter that the flights told, and the posterior."""
    path = Path(word.removeprefix(GROUP)).expanduser()
    found = posterior_in(path)
    from temporeal.sim.identification.randomization import drawn_together

    kinds = [Opened(word, ("randomize", "parameters", name), {"kind": POSTERIOR})
             for name in drawn_together(found)]
    return [Opened(word, ("randomize", "name"), path.stem), *kinds, Opened(word, ("randomize", "posterior"), found)]


def posterior_in(path: Path) -> dict[str, Any]:
    """The posterior in a file of ``temporeal identify``: its ``--randomization``, or the identification itself, whose
    battery then stays at the reference's voltage."""
    import yaml

    from temporeal.robots.handed_over.files import read_text
    from temporeal.robots.handed_over.texts import from_yaml
    from temporeal.sim.env_config import QUADROTOR
    from temporeal.sim.identification import identified_file, randomization
    from temporeal.sim.randomization.posterior import checked

    try:
        with bad_input():
            found = from_yaml(read_text(path, LARGEST), str(path))
            if isinstance(found, dict) and found.get("format") == identified_file.FORMAT:
                found = randomization.content(identified_file.check(found, str(path)))
            found = checked(found, QUADROTOR, str(path))
            check_fit(found, str(path))
            handed_over.checked({"randomize": {"name": path.stem, "posterior": found}}, str(path))
            return found
    except (OSError, yaml.YAMLError) as error:
        raise BadInput(f"{GROUP}{path}: {error}") from error


def check_fit(posterior: Mapping[str, Any], where: str) -> None:
    """Refuse what a fit that did not converge left open, and say what contradicts its prior."""
    from temporeal.sim.randomization.statuses import CONTRADICTS

    if not posterior["converged"]:
        raise ValueError(f"{where}: its fit did not converge: means may lie off by more than the covariance says; "
                         "identify again, with a longer flight, --known or another --stretch")
    if odd := [name for name, status in posterior["status"].items() if status == CONTRADICTS]:
        warnings.warn(f"{where}: contrary to what sources or you say: {', '.join(odd)}, drawn as the flights have it: "
                      "is it the robot that it is said to be?", UserWarning, stacklevel=2)


def check_robot(posterior: Any, robot: RobotSpec) -> None:
    """Refuse the numbers of a posterior that are none of this robot's."""
    if posterior is None or robot.kind != "quadrotor":
        return  # the environment says more
    from temporeal.sim.env_config import QUADROTOR
    from temporeal.sim.identification import randomization
    from temporeal.sim.randomization.posterior import checked

    where = "randomize.posterior"
    found = checked(posterior, QUADROTOR, where)
    if found["robot"] == robot.name and (wrong := randomization.strange(found, robot)):
        raise ValueError(f"{where}: {'; '.join(wrong)}: is it in these units, and of this robot?")
