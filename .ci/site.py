"""What mkdocs.yml cannot say: the page of commands is made from their ``--help``; files and commands that pages name
exist, on the site and in the pages beside it."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LOG = logging.getLogger("mkdocs.plugins.site")  # a warning ends a build with --strict
FOLDERS = "robots|sim|policies|ros2_ws|configs|launch|benchmarks|examples|tests|docs|src"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")
LINK = re.compile(r"\]\(((?!https?:|mailto:|#)[^)#\s]+)[^)]*\)")
COMMAND = re.compile(r"(?:^|`)(?:\.venv/bin/)?temporeal ([a-z][^\n`]*)", re.M)
BESIDE = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "ros2_ws/README.md")
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
    return HEAD + "\n" + "\n".join(pages)


def help_of(verb: Any) -> str:
    """What ``--help`` prints."""
    return verb.parser().format_help().strip() if hasattr(verb, "parser") else verb.HELP.strip()


def missing(text: str) -> list[str]:
    """Paths in code spans that are neither a file nor a folder of the repository."""
    return [path for path in PATH.findall(text) if not (ROOT / path.rstrip("/.")).exists()]


def wrong_commands(text: str) -> list[str]:
    """Shown commands that name no verb, no benchmark, or an option that the verb has not."""
    return [f"temporeal {line}" for line in COMMAND.findall(text) if not is_command(line.split("#")[0].split())]


def is_command(words: list[str]) -> bool:
    """Whether ``temporeal WORDS`` names a verb and, where the options are the verb's own, options that it has."""
    from temporeal.policies.cli.main import load_verb, verb_names

    if words[0] not in verb_names():
        return False
    if words[0] == "bench":  # each benchmark has options of its own
        return len(words) == 1 or words[1].startswith("-") or words[1].isupper() or (
            ROOT / "benchmarks/measurements" / f"{words[1].replace('-', '_')}.py").exists()
    known = help_of(load_verb(words[0]))
    options = [word.split("=")[0] for word in words if re.fullmatch(r"--[a-z][\w-]*(=.*)?", word)]
    return all(option == "--help" or re.search(rf"{option}\b", known) for option in options)


def complaints(text: str) -> list[str]:
    """What a page says of the repository that is not so."""
    return [f"names `{path}`, which does not exist" for path in missing(text)] + [
        f"shows `{command}`, which does not exist" for command in wrong_commands(text)]


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
    text, broken = to_repository(markdown, Path(source))
    for complaint in complaints(markdown) + [f"links to {target}, which does not exist" for target in broken]:
        LOG.warning("%s %s", page.file.src_uri, complaint)
    return text
