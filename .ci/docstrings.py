"""A Griffe extension: our docstrings mark names by Sphinx roles, the site is Markdown."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc|obj):`~?([^`]+)`")


def plain(text: str) -> str:
    """``:func:`~a.b.name``` as code: the name's last part where it says ``~``."""
    def code(found: re.Match[str]) -> str:
        name = found[1].rsplit(".", 1)[-1] if found[0].split("`")[1].startswith("~") else found[1]
        return f"`{name}`"

    return ROLE.sub(code, text)


class Roles(Extension):
    """Docstrings without roles."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called once for each object that is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
