"""Double of isaaclab.app."""

from isaaclab import STARTED, Violation


class AppLauncher:
    """Starts the application, once."""

    def __init__(self, launcher_args=None, **settings):
        if STARTED:
            raise Violation("the application is started once per process")
        unknown = set(settings) - {"headless", "device", "enable_cameras", "livestream"}
        if unknown:
            raise Violation(f"AppLauncher: unknown arguments {sorted(unknown)}")
        STARTED.append(self)
        self.app = object()
