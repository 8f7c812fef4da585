"""``temporeal data import``: bags and other people's demonstrations as a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli import recordings
from temporeal.policies.cli.console import Parser, add_json, complain, counter, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.data.formats.importing import File
    from temporeal.policies.data.formats.rosbag import Source

SUMMARY = "bags (MCAP, SQLite), robomimic, robosuite, Minari, NPZ and CSV files as a dataset"
HELP = """\
Reads files of others and writes a dataset. FILE is

  a ROS 2 bag          .mcap, .db3 or its folder, through the robot's ros.yaml (docs/how-to/importing-data.md)
  robomimic, robosuite .hdf5 or .h5; robosuite's own demonstrations have states and commands alone
  Minari               its folder (HDF5 or Arrow)
  NPZ                  one file with observations, actions, terminals, timeouts (D4RL, OGBench); or a folder of ours
  CSV                  a file or folder: t, signals (name.0, name.1), action.0, action.1, perhaps reward

Signals of a bag are put on the grid of --rate: numbers are interpolated linearly, quaternions by slerp, switches and
commands hold, of pictures the nearest is taken. A gap longer than --gap splits the episode, or refuses it; nothing is
made up across it. Good episodes are kept, the others are listed with file, episode and index.

Exit status: 0 every episode is imported, 1 some are left out, 2 none is, or bad input.

Example:
  temporeal data import flights/bag --out demos --robot franka --interface forward_position --rate 25
  temporeal data import monday.mcap --out demos --robot franka --rate 25 --camera wrist=/wrist/image_raw/compressed
  temporeal data import low_dim.hdf5 --out can --mask train
  temporeal data import cube-single-play-v0.npz --out cube --rate 20
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="files or folders, of one robot and rate")
    parser.add_argument("--out", type=Path, required=True, metavar="SET", help="folder of the dataset")
    parser.add_argument("--append", action="store_true", help="add to the dataset that is there")
    parser.add_argument("--format", metavar="NAME", help="of the files (default: what they look like)")
    parser.add_argument("--rate", type=float, metavar="HZ", help="samples per second (bags: of the control grid)")
    parser.add_argument("--language", default="", metavar="TEXT", help="the instruction of all episodes")
    parser.add_argument("--pictures", default="h264-fast", metavar="HOW",
                        help="h264-fast (default), h264 (smaller, slower), lossless, av1 or raw")
    parser.add_argument("--clip", action="store_true", help="bring commands within [-1, 1]")
    parser.add_argument("--mask", default="", metavar="NAME", help="robomimic: the demonstrations of this mask alone")
    add_bags(parser)
    add_json(parser)


def add_bags(parser: Parser) -> None:
    """Options of bags."""
    recordings.add_choice(parser)
    add = parser.add_argument_group("bags").add_argument
    add("--interface", metavar="NAME", help="of the robot's ros.yaml (default: its default, or what the bag says)")
    add("--command", default="", metavar="NAME", help="the command that is the action (default: the only one there)")
    add("--from-guard", action="store_true", help="take the commands that the guard has sent (topic guard/command)")
    add("--only", default="", metavar="A,B", help="signals to read (default: all that the bag has)")
    add("--camera", action="append", default=[], metavar="NAME=/TOPIC", help="an image topic, raw or compressed")
    add("--size", metavar="HxW", help="reduce pictures to so many rows and columns")
    add("--episodes", default="bag", metavar="HOW", help="bag (default), mission, or a CSV of begin,end[,instruction]")
    add("--interpolate", action="append", default=[], metavar="SIGNAL=RULE", help="linear, slerp, hold or nearest")
    add("--gap", type=float, metavar="S", help="longest gap that is bridged (default: 3 periods of the topic, at "
        "least one of --rate and the robot's stale_after_s)")
    add("--gaps", choices=("split", "refuse"), default="split", help="what a longer one does to the episode")
    add("--shortest", type=float, default=0.5, metavar="S", help="parts of an episode that are shorter are left out")
    add("--clock", choices=("stamps", "receipt"), default="stamps", help="whose times are taken (default: stamps)")


def run(options: Any) -> int:
    """Import, and say what came of it."""
    from temporeal.policies.data.formats import importing

    if options.rate is not None and not 0 < options.rate < 1e6:
        raise BadInput(f"--rate {options.rate:g}: a positive number of samples per second is needed")
    with recordings.bridge_input():
        files = [file_of(path, options) for path in options.files]
        settings = importing.Options(options.append, options.pictures, options.clip, options.language)
        result = importing.write(options.out, files, settings,
                                 lambda what, done, of: counter(f"{options.out}: {what}")(done, of))
    if options.json:
        print_json({"out": options.out, "episodes": result.episodes, "notes": result.notes,
                    "rejected": [{"where": each.where, "why": each.why} for each in result.rejected]})
    else:
        for line in (*result.notes, *(f"left out: {each}" for each in result.rejected)):
            complain(f"temporeal: {line}")
        say(f"{options.out}: {result.episodes} episodes imported, {len(result.rejected)} left out")
    return FAILED if result.rejected else OK


def file_of(path: Path, options: Any) -> File:
    """How a file is read."""
    from temporeal.policies.data.formats import kinds
    from temporeal.policies.data.formats.importing import File

    if options.format not in (None, *kinds.FORMATS):
        raise BadInput(f"--format {options.format}: legal are {', '.join(kinds.FORMATS)}")
    kind = options.format or kinds.kind_of(path)
    if kind == kinds.ROSBAG:
        from temporeal.policies.data.formats import rosbag

        return File(path, lambda: rosbag.read(path, source_of(path, options)), limits_of_data=False)
    given = {"rate_hz": options.rate, "robot": options.robot or "", "mask": options.mask}
    legal = {"robomimic": ("rate_hz", "robot", "mask"), "npz-folder": ()}.get(kind, ("rate_hz", "robot"))
    if options.mask and "mask" not in legal:
        raise BadInput(f"--mask: {path} is of format {kind}; masks are robomimic's")
    return File(path, partial(kinds.READERS[kind], path, **{name: given[name] for name in legal}))


def source_of(path: Path, options: Any) -> Source:
    """What of a bag is read: of the robot that is named, or that the bag's guard recorded."""
    from temporeal.policies.data.formats.bags.alignment import Alignment
    from temporeal.policies.data.formats.rosbag import Source
    from temporeal.robots.spec import load_robot
    from temporeal_bridge.interface.loading import load_interface

    about: dict[str, Any] = {}
    renamed: Mapping[str, str] = {}
    rate, namespace = options.rate, options.namespace or ""
    if options.robot and options.interface or not records_guard(path):
        if not options.robot:
            raise BadInput(f"{path} was recorded without a guard: --robot NAME says whose it is, and --interface which "
                           "topics of its ros.yaml")
        robot = load_robot(options.robot)
        topics = load_interface(robot, options.interface, options.signals)
    else:
        options.bag = path
        namespace, mission, robot, topics = recordings.chosen(options)
        renamed, about = mission.get("renamed", {}), {"artifact": mission["name"]}
        rate = rate if rate is not None else mission["manifest"].get("rate_hz")
    if not isinstance(rate, (int, float)) or not rate > 0:
        raise BadInput(f"{path}: --rate HZ says how many samples a second the set has")
    if options.gap is not None and not 0 < options.gap < float("inf"):
        raise BadInput(f"--gap is a time in seconds above 0, got {options.gap}")
    align = Alignment(
        float(rate), pairs(options.interpolate, "--interpolate", "SIGNAL=RULE"), gap_s=options.gap,
        floor_s=float(topics.safety.get("stale_after_s", 0.0)), gaps=options.gaps, shortest_s=options.shortest)
    return Source(
        robot, topics, align, f"/{namespace.strip('/')}".rstrip("/"), options.command,
        tuple(name for name in options.only.split(",") if name), pairs(options.camera, "--camera", "NAME=/TOPIC"),
        size_of(options.size), options.episodes, options.language, renamed, options.clock == "receipt",
        options.from_guard, simulator_of(path, namespace), about)


def records_guard(path: Path) -> bool:
    """Whether a guard recorded what was flown."""
    from temporeal_bridge.recording import bags

    return any(topic.endswith(f"/{bags.ARTIFACT}") and count
               for topic, count in bags.read(path, lambda topic: topic.endswith(f"/{bags.ARTIFACT}")).counts.items())


def simulator_of(path: Path, namespace: str) -> str:
    """What moved the robot; "": the bag does not say."""
    from temporeal_bridge.recording import bags
    from temporeal_bridge.recording.topics import SIMULATED

    name = bags.full_name(SIMULATED, f"/{namespace.strip('/')}")
    told = bags.simulated(bags.read(path, lambda topic: topic == name), namespace)
    return {True: "temporeal robot_sim", False: "real", None: ""}[told]


def pairs(words: list[str], option: str, form: str) -> dict[str, str]:
    """``a=b`` as a mapping."""
    out = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value) or name in out:
            raise BadInput(f"{option} {word}: {form} is needed, each name once")
        out[name] = value
    return out


def size_of(text: str | None) -> tuple[int, int] | None:
    """Rows and columns."""
    if text is None:
        return None
    rows, x, columns = text.partition("x")
    if not (x and rows.isdigit() and columns.isdigit() and 0 < int(rows) <= 4096 and 0 < int(columns) <= 4096):
        raise BadInput(f"--size {text}: HxW is needed, such as 224x224; 1 to 4096 each")
    return int(rows), int(columns)
