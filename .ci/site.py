"""What mkdocs.yml cannot say: the page of commands is made from their ``--help``; files and commands that pages name
exist, on the site and in the pages beside it."""

from __future__ import annotations

import logging
import re
import shlex
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LOG = logging.getLogger("mkdocs.plugins.site")  # a warning ends a build with --strict
FOLDERS = "robots|sim|policies|ros2_ws|configs|launch|benchmarks|examples|tests|docs|src"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
TOPICS = ("sim/episode", "sim/reset", "sim/fault", "sim/fault_active")  # of a simulated robot: no paths
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")
LINK = re.compile(r"\]\(((?!https?:|mailto:|#)[^)#\s]+)[^)]*\)")
COMMAND = re.compile(r"(?:^|`)(?:\.venv/bin/)?temporeal ([a-z][^\n`]*)", re.M)
BESIDE = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "ros2_ws/README.md")
NAME = re.compile(r"(?<!/)\b(temporeal(?:_bridge)?(?:\.\w+)+)")
PACKAGES = {"temporeal": ROOT / "src/temporeal",
            "temporeal_bridge": ROOT / "ros2_ws/src/temporeal_bridge/temporeal_bridge"}
LIMIT = 1_500_000  # bytes of a picture
COMMANDS = "reference/commands.md"
HEAD = """\
# Commands

`temporeal VERB --help` prints what is below. This page is made from it when the site is built.

Settings are words such as `task=hover seed=2` ([all of them](settings.md)). Every verb has `--json`.

| exit status | means |
|---|---|
| 0 | good |
| 1 | the result fails its gate |
| 2 | bad input |
| 3 | an error of Temporeal itself |
| 130, 143 | interrupted, terminated |
"""


def commands() -> str:
    """The page of all verbs."""
    from temporeal.policies.cli.main import load_verb, verb_names

    pages = []
    for name in verb_names():
        verb = load_verb(name)
        pages.append(f"## {name}\n\n{verb.SUMMARY[0].upper()}{verb.SUMMARY[1:]}.\n\n```text\n{help_of(verb)}\n```\n")
        pages += [f"### {name} {part}\n\n```text\n{text}\n```\n" for part, text in parts_of(verb).items()]
    return HEAD + "\n" + "\n".join(pages)


def help_of(verb: Any) -> str:
    """What ``--help`` prints."""
    if hasattr(verb, "parser"):
        return str(verb.parser().format_help().strip())
    return str(verb.text() if hasattr(verb, "text") else verb.HELP).strip()


def parts_of(verb: Any) -> dict[str, str]:
    """What ``--help`` of each part of a verb prints, where its parts have options of their own."""
    return verb.part_helps() if hasattr(verb, "part_helps") else {}


def missing(text: str) -> list[str]:
    """Paths in code spans that are neither a file nor a folder of the repository."""
    return [path for path in PATH.findall(text) if path not in TOPICS and not (ROOT / path.rstrip("/.")).exists()]


def unknown_names(text: str) -> list[str]:
    """Dotted names of ours that no module has."""
    return [name for name in dict.fromkeys(NAME.findall(text)) if not is_name(*name.split("."))]


def is_name(package: str, *parts: str) -> bool:
    """Whether ``package.parts`` is a module, or a name that a module defines. Nothing is imported."""
    place = PACKAGES[package]
    for k, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
            continue
        module = place / f"{part}.py" if (place / f"{part}.py").is_file() else place / "__init__.py"
        rest = parts[k + 1:] if module.stem == part else parts[k:]
        return not rest or (module.is_file() and re.search(rf"\b{rest[0]}\b", module.read_text()) is not None)
    return True


def wrong_commands(text: str) -> list[str]:
    """Shown commands that name no verb, no benchmark, an option that the verb has not, or settings that are refused."""
    shown = (line.split(" #")[0].strip() for line in COMMAND.findall(text.replace("\\\n", " ")))
    return [f"temporeal {line}: {why}" for line in dict.fromkeys(shown) if (why := wrong(line))]


def wrong(line: str) -> str:
    """What is wrong with ``temporeal LINE``; nothing: ''."""
    from temporeal.policies.cli.main import load_verb, verb_names

    try:
        words = shlex.split(line)
    except ValueError:  # the end of the command is in no code span
        words = line.split()
    if words[0] not in verb_names():
        return "no such verb"
    if words[0] == "bench":  # each benchmark has options of its own
        from temporeal.policies.cli.verbs.bench import NAMED

        name = words[1] if len(words) > 1 and words[1].islower() and words[1][0] != "-" else "stl"
        module = ROOT / "benchmarks/measurements" / NAMED.get(name, name).replace("-", "_")
        return "" if module.is_dir() or module.with_suffix(".py").exists() else "no such benchmark"
    verb = load_verb(words[0])
    known = parts_of(verb).get(words[1] if len(words) > 1 else "", help_of(verb))
    options = [word.split("=")[0] for word in words if re.fullmatch(r"--[a-z][\w-]*(=.*)?", word)]
    missing = [option for option in options if option != "--help" and not re.search(rf"{option}\b", known)]
    return f"no option {missing[0]}" if missing else refused(words) if words[0] in ("train", "view") else ""


def refused(words: list[str]) -> str:
    """Why the settings among ``words`` are refused. Capitals stand for a name; files, ``my_...`` and ``ars`` are the
    reader's."""
    from temporeal.policies.runs.errors import BadInput
    from temporeal.policies.runs.settings.compose import compose

    given = [word for word in words[1:] if re.match(r"[\w.'\"*/-]+=", word) and not word.startswith("--")]
    if any(re.search(r"mine|=my_|=ars$|\.py$|<|\.\.\.|=[A-Z]", word) for word in given):
        return ""
    try:
        compose(given)
    except BadInput as error:
        return str(error).splitlines()[0]
    return ""


def complaints(text: str) -> list[str]:
    """What a page says of the repository that is not so."""
    return [f"names `{path}`, which does not exist" for path in missing(text) + unknown_names(text)] + [
        f"shows `{command}" for command in wrong_commands(text)]


def to_repository(text: str, page: Path) -> tuple[str, list[str]]:
    """The site has no sources: a link to a file outside docs/ becomes its path; and those that lead nowhere."""
    broken = []

    def path(found: re.Match[str]) -> str:
        words, target = found[1], (page.parent / found[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return found[0]
        if not target.exists():
            broken.append(found[2])
        code = f"`{target.relative_to(ROOT)}`"
        return code if target.name in words else f"{words} ({code})"

    return OUTSIDE.sub(path, text), broken


def on_files(files: Files, config: Any) -> Files:
    """Adds the page of commands; checks the pages beside the site, and the size of pictures."""
    files.append(File.generated(config, COMMANDS, content=commands()))
    for file in files.media_files():
        if file.abs_src_path and Path(file.abs_src_path).stat().st_size > LIMIT:
            LOG.warning("%s has more than %d bytes", file.src_uri, LIMIT)
    for name in BESIDE:
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        links = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
        for complaint in complaints(text) + [f"links to {target}, which does not exist" for target in links]:
            LOG.warning("%s %s", name, complaint)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Notes tell of other revisions; all other pages of this one."""
    source = page.file.abs_src_path
    if source is None or page.file.src_uri.startswith("notes/"):
        return markdown
    if page.file.src_uri == "results.md":  # which figures are stale changes with every commit
        from temporeal_benchmarks.results_page import page as results

        markdown = results()
    text, broken = to_repository(markdown, Path(source))
    for complaint in complaints(markdown) + [f"links to {target}, which does not exist" for target in broken]:
        LOG.warning("%s %s", page.file.src_uri, complaint)
    return text
