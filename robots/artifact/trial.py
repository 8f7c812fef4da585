"""The first run of an artifact that nobody vouches for: in a process of its own, with bounded memory and time.

A network of a few bytes can ask for any amount of both, while it is loaded or while it runs, and a fault of onnxruntime
can end a process. What the process of the trial survives is then loaded by the caller. Linux and macOS.

    tried(Path("outputs/artifact"), manifest)
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from temporeal.robots.artifact.loading import LARGEST_NETWORK
from temporeal.robots.artifact.manifest import GOLDEN, ArtifactError, Manifest

MEMORY = 2 << 30  # bytes beside the networks: five times what the largest of our own takes. Chosen
COPIES = 4  # of a network that onnxruntime may hold while it prepares it. Chosen
SLOWEST, LEAST_S = 10.0, 30.0  # a trial's time in the recorded trace's own, and at least. Chosen
REFUSED = 2  # exit status: the artifact breaks a rule, and the output says which


def tried(folder: Path, manifest: Manifest, memory: int = MEMORY, least_s: float = LEAST_S) -> None:
    """Load the artifact in ``folder`` and replay its trace, in a process that may take ``memory`` bytes beside the
    networks, and ten times as long as the trace, at least ``least_s``.

    Raises:
        ArtifactError: it breaks a rule, as :meth:`temporeal.robots.artifact.runtime.Artifact.load` and ``self_test``
            say; or its process passed a limit, or died.
    """
    sizes = [(folder / name).stat().st_size for name in manifest.networks if (folder / name).is_file()]
    limit = memory + COPIES * min(sum(sizes), LARGEST_NETWORK)
    words = [sys.executable, "-m", "temporeal.robots.artifact.trial", str(folder), str(limit), str(least_s)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    if done.returncode == REFUSED and done.stdout.strip():
        raise ArtifactError(done.stdout.strip())
    why = "takes too much time" if done.returncode == -signal.SIGALRM else (
        f"takes more than {limit / 1e9:.1f} GB of memory, or ends its process (status {done.returncode})")
    raise ArtifactError(f"{folder}: its network {why}: it was tried in a process of its own, and is not run here. With "
                        "--trust KEY.pem.pub an artifact that this key signed is run without a trial")


def bounded(memory: int, seconds: float) -> None:
    """This process ends once it takes more than ``memory`` bytes or, in all, ``seconds``."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def main(words: Sequence[str]) -> int:
    """The process of a trial: folder, bytes, least seconds."""
    from temporeal.robots.artifact.runtime import Artifact

    folder, memory, least_s = Path(words[0]), int(words[1]), float(words[2])
    bounded(memory, least_s)
    try:
        artifact = Artifact.load(folder)
        steps = len(next(iter(artifact.golden.values())))
        bounded(memory, max(least_s, SLOWEST * steps / artifact.manifest.rate_hz))
        artifact.self_test()
    except (ArtifactError, MemoryError) as error:
        print(str(error) or f"{GOLDEN} and the network do not fit in {memory:,} bytes")
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
