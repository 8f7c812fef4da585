"""What a deployed policy is told: sentences, or formulas from files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import complain as note
from temporeal.policies.runs.errors import BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.robots.artifact.manifest import Manifest
    from temporeal.sim.stl.instructions.missions.places import Places


def texts(options: Any, manifest: Manifest, where: Places | None = None) -> list[str]:
    """The sentences of ``--instruction``, or the missions in the files of ``--formula``, each in its one form.

    Sentences over the places of a map, ``where``, are missions, too.
    """
    if options.places is not None and (manifest.formulas is None or not options.instruction):
        raise BadInput(f"--places {options.places} is for --instruction of a policy that flies any formula")
    if not options.formula:
        if where is not None:
            return [meant(sentence, where) for sentence in options.instruction]
        if options.instruction and manifest.formulas is not None:
            raise BadInput(f"--instruction {options.instruction[0]!r}: the policy {manifest.name!r} is told by "
                           "formulas: --formula mission.yaml; or say where places are: --places map.yaml")
        if options.require and manifest.formulas is None:
            raise BadInput(f"--require {options.require:g}: the policy {manifest.name!r} has no forecast; it takes no "
                           "formula")
        return list(options.instruction)
    if manifest.formulas is None:
        raise BadInput(f"--formula {options.formula[0]}: the policy {manifest.name!r} takes no formula: it was trained "
                       f"for its own, {manifest.formula:.200}. One that takes any is trained with algo=generalist")
    if options.instruction:
        raise BadInput("--formula and --instruction: a policy is told by formulas, or in words")
    return [read(path) for path in options.formula]


def read(path: Path) -> str:
    """The mission in a YAML file: keys ``formula`` and ``constants``."""
    from temporeal.robots.handed_over.files import read_text
    from temporeal_bridge.instruction.typed_formulas import canonical, content_of

    try:
        with bad_input():
            text = read_text(path)
            content_of(text)
    except BadInput as error:
        raise BadInput(f"--formula {path}: {error}") from error
    except OSError as error:
        raise BadInput(f"--formula {path}: {error.strerror or error}") from error
    return canonical(text)


def meant(sentence: str, where: Places) -> str:
    """The mission of a sentence over the places of a map, in its one form; what it means is said."""
    from temporeal.sim.stl.instructions.missions import reading, telling, writing
    from temporeal_bridge.instruction.typed_formulas import canonical

    with bad_input():
        found = reading.read(sentence, where)
        text = {"formula": writing.formula_text(found.mission, where),
                "constants": writing.formula_constants(found.mission, where)}
    note("\n  ".join([telling.sentence(found.mission), *found.assumed]))
    return canonical(json.dumps(text))


def check_require(require: float) -> None:
    """``--require`` is a probability."""
    if not 0 <= require <= 1:
        raise BadInput(f"--require is a probability from 0 to 1, got {require:g}")


def shown(told: str) -> str:
    """What a flight was told, for people: of a mission its formula, without what it calls its parts."""
    if not told.startswith("{"):
        return told
    try:
        return " ".join(str(json.loads(told)["formula"]).rpartition(";")[2].split())
    except (ValueError, LookupError, TypeError):
        return told


def forecast_lines(number: int, answer: Mapping[str, Any]) -> Sequence[str]:
    """What the controller says of a formula before it is flown."""
    return [f"flight {number}: {shown(str(answer['instruction']))}",
            f"  P(satisfied) {answer['forecast']:.2f}; read in {answer['read_ms']:.0f} ms, planned in "
            f"{answer['planned_ms']:.0f} ms",
            *(f"  {k}. {line}" for k, line in enumerate(answer["itinerary"], 1)),
            *(f"  note: {note}" for note in answer["notes"])]
