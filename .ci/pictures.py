"""The pictures of README and docs, made anew: ``make demo pictures``.

Each comes from a command that a user can give; the animation is a video of ``temporeal view``, the charts are those of
the demo's report. Which command made which is in docs/gallery.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs/pictures"
DEMO = ROOT / "outputs/demo"
TASKS = ("lift", "drawer", "peg", "cube_reorient", "ant", "stl/quadrotor_tour")
FRAME = 2  # every second frame of a video with 25 in a second
GOALS = ("F[0,3] (norm(base_pos_w - a) < reach & F[0,3] (norm(base_pos_w - b) < reach))"
         " & G[7,9] (norm(base_pos_w - c) < hold)")
"""The clauses of the demo's mission that ask for a place."""


def temporeal(*words: str) -> None:
    """One command, as a user gives it."""
    print("temporeal", *words, flush=True)
    subprocess.run([sys.executable, "-m", "temporeal.policies.cli.main", *words], check=True, cwd=ROOT)


def animation(video: Path, to: Path) -> None:
    """A video as an animated WebP, which README and pages show without a player."""
    import av
    from PIL import Image

    with av.open(str(video)) as file:
        frames: list[Image.Image] = [frame.to_image() for frame in file.decode(video=0)][::FRAME]
    frames[0].save(to, save_all=True, append_images=frames[1:], duration=40 * FRAME, loop=0, quality=60, method=6)


def flown() -> None:
    """The demo's policy on its mission."""
    with tempfile.TemporaryDirectory() as folder:
        video = Path(folder) / "waypoints.webm"
        temporeal("view", "--policy", str(DEMO / "run"), "--renderer", "gl", "--size", "480x360", "--video", str(video))
        animation(video, OUT / "waypoints.webp")
    temporeal("view", "--policy", str(DEMO / "run"), "--renderer", "gl", "--worlds", "6", "--size", "320x240",
              "--at", "4", "--png", str(OUT / "worlds.png"), "--overwrite")


def judged() -> None:
    """Why a recorded flight of the demo satisfies its mission: all of it, and the places alone."""
    manifest = json.loads((DEMO / "artifact/manifest.json").read_text())
    truth = sorted((DEMO / "flights").rglob("truth_*.npz"))[0]
    with tempfile.TemporaryDirectory() as folder:
        for name, formula in (("flight.png", manifest["formula"]), ("goals.png", GOALS)):
            file = Path(folder) / "mission.json"
            file.write_text(json.dumps({"formula": formula, "constants": manifest["constants"],
                                        "signals": {"base_pos_w": "[3] m", "height": "m"}}))
            temporeal("spec", "plot", str(file), str(truth), "--dt", "0.01", "-o", str(OUT / name), "--overwrite")


def chart(page: str, title: str) -> str:
    """A chart of a report as a file of its own: the page's colours on white."""
    at = page.index(f"<title>{title}</title>")
    drawn = page[page.rindex("<svg", 0, at):page.index("</svg>", at)]
    colours = dict(re.findall(r"--(\w+): light-dark\((#\w+),", page))
    style = "".join(re.findall(r"^svg (?:text|\.\w+) \{.*$", page, re.M)).replace("svg ", "")
    style = re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], style)
    return drawn.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1).replace(
        ">", f'><style>{style}</style><rect width="100%" height="100%" fill="#ffffff"/>', 1) + "</svg>\n"


def main() -> None:
    """All of them."""
    if not (DEMO / "report.html").exists():
        sys.exit(f"pictures: {DEMO} is not there: make demo")
    OUT.mkdir(exist_ok=True)
    (OUT / "robustness.svg").write_text(chart((DEMO / "report.html").read_text(), "Robustness of each episode"))
    judged()
    flown()
    for task in TASKS:
        temporeal("view", f"task={task}", "seed=1", "--renderer", "gl", "--size", "480x360",
                  "--png", str(OUT / f"{task.rsplit('/', 1)[-1]}.png"), "--overwrite")


if __name__ == "__main__":
    main()
