"""``temporeal data export``: a dataset in another layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, counter
from temporeal.policies.cli.specs.dataset_options import written
from temporeal.policies.runs.errors import OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.episodes.episode import Episode

SUMMARY = "a dataset as robomimic or Minari file, as NPZ, or for LeRobot's own policies"
HELP = """\
Writes the episodes of a dataset in another layout. `temporeal data import` reads each of them back as it was.

  robomimic      one .hdf5 file: data/demo_K with actions, obs, next_obs
  minari         a folder with main_data.hdf5 and metadata.json
  npz            a folder with a .npz file per episode
  lerobot-state  a LeRobot dataset whose numbers are one observation.state, which LeRobot's own policies need

--actions unit scales commands to [-1, 1] by their limits: robomimic's policies give nothing else.

Example:
  temporeal data export demos demos.hdf5 --format robomimic --actions unit
  temporeal data export demos demos-lerobot --format lerobot-state
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folder", type=Path, metavar="SET", help="the dataset's folder")
    parser.add_argument("out", type=Path, metavar="OUT", help="the file or folder to write; it must not be there yet")
    parser.add_argument("--format", required=True, metavar="NAME", help="robomimic, minari, npz or lerobot-state")
    parser.add_argument("--actions", choices=("raw", "unit"), default="raw",
                        help="commands in their units (default), or scaled to [-1, 1]")
    add_json(parser)


def run(options: Any) -> int:
    """Write it."""
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.formats import kinds

    if options.format not in kinds.WRITERS:
        raise BadInput(f"--format {options.format}: legal are {', '.join(kinds.WRITERS)}")
    if options.out.exists():
        raise BadInput(f"{options.out} is there already: export writes a new one")
    data = Dataset.open(options.folder)
    interface, found = data.interface, episodes(data)
    if options.actions == "unit":
        from temporeal.policies.data.formats.unit_actions import of_interface, scaled

        interface, found = of_interface(data.interface), scaled(found, data.interface)
    count = kinds.exported(options.format, options.out, interface, found)
    written(options, {"out": options.out, "episodes": count, "format": options.format})
    return OK


def episodes(data: Dataset) -> Iterator[Episode]:
    """The episodes one by one; progress is shown."""
    show = counter("episodes")
    for number in range(data.episodes):
        episode = data.episode(number)
        yield replace(episode, info=dict(episode.info))
        show(number + 1, data.episodes)
