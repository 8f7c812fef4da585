"""What a command needs installed: the bridge, and the packages that evaluate and draw."""

from __future__ import annotations

from temporeal.policies.runs.errors import NO_BRIDGE, BadInput
from temporeal.robots.optional_packages import install


def needs_bridge() -> None:
    """Refuse a command without the package temporeal_bridge."""
    import importlib.util

    if importlib.util.find_spec("temporeal_bridge") is None:
        raise BadInput(NO_BRIDGE)


TRAINING = ("torch", "mujoco", "scipy")  # of the extra `train`, what judges and draws cannot do without


def needs_training(verb: str, instead: str = "") -> None:
    """Refuse ``verb`` without the packages that evaluate and draw, which a robot lacks; ``instead``: what else can be
    done."""
    import importlib.util

    def there(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            return False

    if missing := [name for name in TRAINING if not there(name)]:
        raise BadInput(f"{verb} needs {', '.join(missing)}, not installed here: {install('train')}{instead}")
