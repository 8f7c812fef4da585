"""The life of a node process: read its command line, join the bus, run until it is stopped, write a summary."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from temporeal_bridge.process.children import orphaned
from temporeal_bridge.process.files import write_json
from temporeal_bridge.process.scheduling import (
    check_awake,
    give_way,
    keep_awake,
    load_behind,
    take_core,
    take_priority,
)
from temporeal_bridge.transports import ros_arguments
from temporeal_bridge.transports.selection import open_transport
from temporeal_bridge.transports.transport import Transport

LONGEST_WAIT_S = 0.1  # so that a stop signal is seen


class Node(Protocol):
    """A node on a transport. :meth:`step` runs after messages were delivered, at the latest at :meth:`deadline`."""

    def step(self) -> None:
        """Do what is due now."""

    def deadline(self) -> float:
        """Monotonic time [s] at which :meth:`step` must run next, messages or not."""

    def summary(self) -> dict[str, Any]:
        """What happened so far, for the JSON file."""


def spin(node: Node, transport: Transport, stop: Callable[[], bool]) -> None:
    """Run ``node`` until ``stop()``.

    Optional attributes of the node: ``done`` ends it from within; ``may_end()`` can delay the end; ``wait(seconds)``
    replaces the transport's wait (the node then reads the bus itself); ``rescue(error)`` is called when a step fails,
    before the error is raised: a robot may be in motion.
    """
    wait, may_end = getattr(node, "wait", transport.wait), getattr(node, "may_end", lambda: True)
    try:
        while not ((stop() or getattr(node, "done", False)) and may_end()):
            left = node.deadline() - transport.monotonic()
            wait(min(max(left, 0.0), LONGEST_WAIT_S))
            node.step()
    except Exception as error:
        getattr(node, "rescue", lambda _: None)(error)
        raise


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collects SIGINT, SIGTERM and SIGHUP as they arrive; the former handlers are restored on exit.

    SIGHUP (the terminal is gone) counts because a robot in motion must not be left alone; under nohup it is ignored.
    """
    stopped: list[int] = []
    hang_up = [n for n in (getattr(signal, "SIGHUP", None),) if n is not None and signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda got, _: stopped.append(got))
              for number in (signal.SIGINT, signal.SIGTERM, *hang_up)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


Make = Callable[[argparse.Namespace, Transport], Node]
"""Builds a node from its command line."""


def run(
    options: argparse.ArgumentParser, arguments: Sequence[str] | None, make: Make, file: str, ahead: int = 0,
    wakes: bool = False,
) -> int:
    """The whole life of a node process; the exit status is 0, or 2 after a message about wrong input.

    Args:
        file: name of the summary in the folder ``--out``.
        ahead: priority above the other nodes, see :func:`take_priority`.
        wakes: whether this node, of those with ``--awake``, keeps the core from sleeping.
    """
    with stop_signals() as stopped:
        return live(options, sys.argv[1:] if arguments is None else arguments, make, file, stopped, ahead, wakes)


def live(
    options: argparse.ArgumentParser, arguments: Sequence[str], make: Make, file: str, stopped: Sequence[int],
    ahead: int = 0, wakes: bool = False,
) -> int:
    """From the command line to the summary; ends when ``stopped`` is not empty. See :func:`run`."""
    alone = orphaned()
    own, ros = ros_arguments.split(arguments)
    try:
        args = parse_all(options, own, ros)
        with scheduled(args, ahead, wakes), joined(options.prog, args, ros) as transport:
            node = make(args, transport)
            take_priority(args.priority, ahead)
            if getattr(args, "awake", False) and not wakes:
                give_way()
            gc.collect()
            gc.freeze()  # later collections scan only what was made since
            try:
                spin(node, transport, lambda: bool(stopped) or alone())
            finally:
                getattr(node, "close", lambda: None)()
                if args.out is not None:
                    write_json(args.out / file, node.summary())
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        print(f"{options.prog}: error: {error}", file=sys.stderr)
        return 2
    return 0


def parse_all(options: argparse.ArgumentParser, own: Sequence[str], ros: Sequence[str]) -> argparse.Namespace:
    """The node's own arguments, after ROS parameters that are named like its options."""
    legal = [option for action in options._actions for option in action.option_strings]
    parameters = ros_arguments.parse(ros).parameters
    ros_arguments.misspelt(parameters, legal)
    return options.parse_args([*ros_arguments.as_options(parameters, legal), *own])


@contextmanager
def scheduled(args: argparse.Namespace, ahead: int, wakes: bool) -> Iterator[None]:
    """Core and priority of this process, taken before the middleware starts threads that inherit them. Real-time
    priority is then given up until the node is made (:func:`load_behind`)."""
    awake = getattr(args, "awake", False)
    check_awake(awake, args.core, args.priority)
    take_core(args.core)
    waking = keep_awake() if wakes and awake else None
    try:
        take_priority(args.priority, ahead)
        if awake and os.sched_getscheduler(0) != os.SCHED_FIFO:
            raise RuntimeError(
                f"awake needs real-time priority, and with --priority {args.priority} this process has policy "
                f"{os.sched_getscheduler(0)}: the process that keeps the core busy would take half of it. Allow it "
                "(rtprio in /etc/security/limits.conf) or leave awake out")
        load_behind()
        yield
    finally:
        if waking is not None:
            waking.kill()
            with suppress(subprocess.TimeoutExpired):  # a real-time process may have the core for itself
                waking.wait(1.0)


@contextmanager
def joined(name: str, args: argparse.Namespace, ros: Sequence[str]) -> Iterator[Transport]:
    """The bus, joined as ``name``."""
    transport = open_transport(
        args.transport, name, args.namespace, domain=args.domain, loopback=args.loopback, ros_args=ros)
    try:
        if hasattr(transport, "declare"):
            transport.declare({**vars(args), "namespace": transport.namespace})  # a launch file sets it by __ns
        yield transport
    finally:
        transport.close()
