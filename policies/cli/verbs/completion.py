"""``temporeal completion``: shell completion."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from temporeal.policies.cli.console import Parser, say
from temporeal.policies.runs.errors import OK, BadInput

SUMMARY = "print a completion script for bash, zsh or fish"
HELP = """\
Prints a script that lets your shell complete verbs, options, settings (group=choice) and benchmark names.

Example:
  eval "$(temporeal completion bash)"                      in ~/.bashrc
  eval "$(temporeal completion zsh)"                       in ~/.zshrc, after compinit
  temporeal completion fish > ~/.config/fish/completions/temporeal.fish
"""

# Each script hands the words typed so far to `temporeal completion --words ...` and offers what that prints.
BASH = """\
_temporeal() {
    local line words=("${COMP_WORDS[@]:1:COMP_CWORD-1}") current="${COMP_WORDS[COMP_CWORD]}"
    # bash splits task=hov into three words: glue them
    local typed="${COMP_LINE:0:COMP_POINT}"; typed="${typed##* }"
    if [[ "$typed" == *=* ]]; then
        words=(${COMP_LINE:0:COMP_POINT}); words=("${words[@]:1:${#words[@]}-2}")
    else
        typed="$current"
    fi
    COMPREPLY=()
    while IFS= read -r line; do
        [[ "$line" == "$typed"* ]] || continue
        [[ "$typed" == *=* ]] && line="${line#*=}"
        COMPREPLY+=("$line")
    done < <(temporeal completion --words "${words[@]}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *= ]] && compopt -o nospace
    return 0
}
complete -o default -F _temporeal temporeal
"""
ZSH = """\
_temporeal() {
    local -a offered
    offered=("${(@f)$(temporeal completion --words "${(@)words[2,CURRENT-1]}" 2>/dev/null)}")
    compadd -S '' -a -- offered
    _files
}
compdef _temporeal temporeal
"""
FISH = """\
complete -c temporeal -a '(temporeal completion --words (commandline -opc)[2..-1] 2>/dev/null)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("completion", HELP)
    p.add_argument("shell", nargs="?", metavar="bash|zsh|fish", help="your shell")
    p.add_argument("--words", nargs=argparse.REMAINDER, help="print what may follow these words (the scripts ask this)")
    return p


def run(argv: Sequence[str]) -> int:
    """Print a script, or the completions of some words."""
    options = parser().parse_args(argv)
    if options.words is not None:
        for word in complete(options.words):
            say(word)
        return OK
    if options.shell not in SCRIPTS:
        raise BadInput(f"completion for {options.shell!r}? known: {', '.join(SCRIPTS)}")
    say(SCRIPTS[options.shell].rstrip())
    return OK


def complete(words: Sequence[str]) -> list[str]:
    """Candidates after ``words`` (after ``temporeal``): verbs, then the verb's ``completions()`` and options."""
    from temporeal.policies.cli.main import load_verb, verb_names

    if not words:
        return [*verb_names(), "--help", "--version"]
    try:
        verb = load_verb(words[0])
    except BadInput:
        return []
    own = list(verb.completions()) if hasattr(verb, "completions") else []
    return [*own, *options_of(verb.parser())] if hasattr(verb, "parser") else own


def completions() -> list[str]:
    """Names of shells."""
    return list(SCRIPTS)


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """The long options of a parser."""
    return [text for action in parser._actions for text in action.option_strings if text.startswith("--")]
