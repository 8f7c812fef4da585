"""How to install optional packages."""


def install(extra: str) -> str:
    """The command that installs the ``extra`` of setup.cfg: temporeal is on no package index."""
    return f"pip install -c constraints.txt '.[{extra}]' (in a clone of temporeal)"
