"""The node processes of a deployment: their arguments, and running them together."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import complain

if TYPE_CHECKING:
    from temporeal_bridge.process.children import Process


def node_arguments(
    deploy: Mapping[str, Any], robot: str, artifact: Path, out: Path, bag: Path, folder: Path | None,
    trust: Path | None = None,
) -> dict[str, list[str]]:
    """Arguments of each node process, in the order in which they are asked to end: the guard first."""
    from temporeal_bridge.launching.flights import worker_options

    shared = [*node_options(deploy, robot), "--out", str(out)]
    trusted = ["--trust", str(trust)] if trust else []
    flown = [*shared, "--artifact", str(artifact), *trusted]
    core = [] if deploy["core"] is None else ["--core", str(deploy["core"])]
    first, awake = [*flown, "--priority", deploy["priority"], *core], ["--awake"] if deploy["awake"] else []
    start = ["--start"] if deploy["autostart"] else []
    nodes = {"guard_node": [*first, *awake],
             "policy_node": [*first, *start, *(["--worker", str(folder)] if folder else awake)]}
    if folder is not None and deploy["worker"] is None:
        nodes["worker_node"] = [*worker_options(artifact, folder, out), *trusted]
    nodes["monitor_node"] = flown
    if deploy["record"]:
        nodes["recorder"] = [*shared, "--bag", str(bag)]
    return nodes


def worker_folder(artifact: Path, given: str | None) -> Path | None:
    """Where controller and inference worker meet: as given, else a new folder; None for a policy without chunks."""
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal_bridge.controller.mailbox import new_folder

    if load_manifest(artifact).chunk is None:
        return None
    return new_folder() if given is None else Path(given)


def node_options(deploy: Mapping[str, Any], robot: str) -> list[str]:
    """Options of every node."""
    out = ["--robot", robot, "--transport", deploy["transport"]]
    out += [] if deploy["domain"] is None else ["--domain", str(deploy["domain"])]
    out += ["--namespace", deploy["namespace"]]
    out += ["--interface", deploy["interface"]] if deploy["interface"] else []
    out += ["--signals", str(deploy["signals"])] if deploy["signals"] else []
    return out + (["--loopback"] if deploy["loopback"] else [])


def run_nodes(nodes: Mapping[str, Sequence[str]], lost: list[Process]) -> Process | None:
    """Run all node processes until an interruption (None) or until one ends by itself (that one).

    Then the others are stopped, the guard first: it stops the robot, and only then the rest ends, so that the stop is
    monitored and recorded. A controller that ends with status 0 was relieved by another process's (``policy_node
    --takeover``): the guard and the others go on. They also go on without a process that no flight needs; that is
    reported at once and added to ``lost``. The recorder waits for the guard's end.
    """
    from temporeal_bridge.process.children import WITHOUT, end, how_ended, start

    running: list[Process] = []
    try:
        for name, words in nodes.items():
            guard = ["--guard", str(running[0].pid)] if name == "recorder" else []
            running.append(start(name, [*words, *guard]))
        while True:
            for process in [each for each in running if each.poll() is not None]:
                if process.returncode == 0 and process.name == "policy_node":
                    complain("temporeal: policy_node has ended in order: another controller relieved it, or somebody "
                             "asked it to; the guard and the others go on")
                elif process.name in WITHOUT:
                    complain(f"temporeal: ERROR: {how_ended(process)}: {WITHOUT[process.name]}")
                    lost.append(process)
                else:
                    return process
                running.remove(process)
            time.sleep(0.05)
    except KeyboardInterrupt:
        return None
    finally:
        end(running[:1])
        end(running[1:])
        # as they ended; who was still loading had no handler for the word that we said
        lost += [each for each in running if each.name in WITHOUT and each.returncode not in (0, -signal.SIGTERM)]
