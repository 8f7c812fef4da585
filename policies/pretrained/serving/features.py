"""Whether what a mapping gives is what a policy of LeRobot reads: names, shapes, words, history. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterable

from temporeal.policies.pretrained.serving.folders import KINDS, ModelFolder
from temporeal.policies.pretrained.serving.interface import Field, Interface
from temporeal.robots.handed_over.files import Refused

EMPTY = "observation.images.empty_camera_"  # pictures that no camera gives: LeRobot fills them itself


def check_interface(folder: ModelFolder, interface: Interface, history: str) -> int:
    """The rows of a chunk, if the policy takes the inputs of ``interface`` and gives its action."""
    given = {f.name: f for f in interface.inputs}
    rows = check_asked(folder, given, interface.action.shape[0], interface.instruction, history)
    for name, shape in inputs_of(folder).items():
        check_shape(given[name], shape)
    return rows


def check_asked(folder: ModelFolder, names: Iterable[str], size: int, instruction: bool, history: str) -> int:
    """The rows of a chunk, if the policy reads the inputs ``names``, gives an action of ``size`` numbers, and takes an
    instruction or takes none."""
    check_names(set(names), set(inputs_of(folder)), folder)
    actions = list(folder.features("output_features").values())
    if [shape for _, shape in actions] != [(size,)]:
        raise Refused(f"the action of the policy in {folder.path} has the shape "
                      f"{' and '.join(str(list(shape)) for _, shape in actions)}, the mapping takes {size} numbers")
    kind = KINDS[folder.kind]
    if instruction != kind.reads_text:
        says = "takes no" if instruction else "needs an"
        raise Refused(f"a policy of kind {folder.kind} {says} instruction; the mapping says otherwise")
    count = folder.config.get("n_obs_steps", 1)
    if count != 1 and history != "repeat":
        raise Refused(f"the policy in {folder.path} reads {str(count)[:20]} observations, one control step apart, and "
                      "is asked once per chunk: history: repeat in the mapping gives it the newest one several times, "
                      "as at an episode's begin")
    return int(folder.config[kind.chunk])


def inputs_of(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    """Shape of each input that somebody must give."""
    return {name: shape for name, (_, shape) in folder.features("input_features").items() if not name.startswith(EMPTY)}


def check_names(given: set[str], wanted: set[str], folder: ModelFolder) -> None:
    """The mapping gives what the policy reads, all of it and nothing else."""
    if lacking := sorted(wanted - given):
        raise Refused(f"the policy in {folder.path} reads {', '.join(lacking)}, which the mapping does not give "
                      f"(LeRobot would leave a missing picture out); it reads: {', '.join(sorted(wanted))}")
    if more := sorted(given - wanted):
        raise Refused(f"the mapping gives {', '.join(more)}, which the policy in {folder.path} does not read; it "
                      f"reads: {', '.join(sorted(wanted))}")


def check_shape(given: Field, wanted: tuple[int, ...]) -> None:
    """An input has the shape that the policy was trained with."""
    if len(wanted) == 3:
        height, width = wanted[1:]
        if given.dtype != "uint8" or len(given.shape) != 3 or given.shape[2] != wanted[0]:
            raise Refused(f"{given.name} is a picture: uint8 [{height}, {width}, {wanted[0]}]; the mapping gives "
                          f"{given.dtype} {list(given.shape)}")
        if given.shape[:2] != (height, width) and not given.resize:
            raise Refused(f"{given.name} is {height} by {width} pixels in the policy's data, the camera's are "
                          f"{given.shape[0]} by {given.shape[1]}: resize: true in the mapping scales them")
    elif given.shape != wanted or given.dtype != "float32":
        raise Refused(f"{given.name} has the shape {list(wanted)} in the policy, the mapping gives {given.dtype} "
                      f"{list(given.shape)}")
