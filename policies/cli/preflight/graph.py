"""Checks of the robot's bus: publishers, subscribers, types, QoS, nodes, and who commands the robot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from temporeal.policies.cli.preflight.findings import Check
from temporeal.policies.cli.preflight.listening import CommandHeard, Heard, StateHeard
from temporeal.policies.cli.preflight.plan import Plan
from temporeal.policies.cli.preflight.wording import names_of, shown
from temporeal_bridge.guard.checks.stop_button import BOOL, buttons
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Peer, QoS, mismatch, qos_named


def present(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Every state topic has one publisher, of the stated type, with a QoS that connects."""
    for state in heard.states:
        row, peers = state.topic, state.publishers
        if not peers:
            yield Check(f"{row.topic} there", "fail", f"nobody publishes {state.name}",
                        "is the driver running, on this DDS domain, in this namespace (deploy.domain=, "
                        "deploy.namespace=)? `ros2 topic list` shows what is there")
            continue
        yield one_publisher(state)
        yield from types(row.topic, row.type, peers)
        unexplained = state.unconnected if all(peer.type == row.type for peer in peers) else ""
        why = "; ".join(refusals(peers, row.type, qos_named(row.qos), publishes=False)) or unexplained
        if why:
            yield Check(f"{row.topic} QoS", "fail", why,
                        f"let the driver offer what ros.yaml asks for (qos: {row.qos}), or change it there")
        elif not len(state.arrivals):
            yield Check(f"{row.topic} silent", "fail", f"{names_of(peers)} publishes {state.name}, and nothing came",
                        "a driver that waits for its robot; a firewall that lets discovery through and data not")


def one_publisher(state: StateHeard) -> Check:
    """With two publishers of one state, the controller would see a robot that jumps."""
    name, peers = f"{state.topic.topic} there", state.publishers
    if len(peers) == 1:
        return Check(name, "ok", f"{state.name} from {names_of(peers)}")
    return Check(name, "fail", f"{len(peers)} publishers on {state.name}: {names_of(peers)}",
                 "end all but one: two states of one robot take turns, and the policy sees it jump")


def types(name: str, type: str, peers: Sequence[Peer]) -> Iterator[Check]:
    """The type by name and, if it is announced, by hash."""
    others = [peer for peer in peers if peer.type != type]
    ours = messages.type_hash(type)
    hashed = [peer for peer in peers if peer.type == type and peer.hash and peer.hash != ours]
    if others:
        found = ", ".join(sorted({peer.type for peer in others}))
        yield Check(f"{name} type", "fail", f"{names_of(others)}: {found}, not {type}",
                    "another interface of the robot (deploy.interface=), or another program on this topic")
    elif hashed:
        yield Check(f"{name} type", "fail",
                    f"{names_of(hashed)} has another definition of {type}: {hashed[0].hash[:15]}, here {ours[:15]}",
                    "the same version of the message package on both sides; ROS_DISTRO names the one used here")
    else:
        known = "same definition" if all(peer.hash for peer in peers) else "no hash announced"
        yield Check(f"{name} type", "ok", f"{type}, {known}")


def refusals(peers: Sequence[Peer], type: str, own: QoS, *, publishes: bool) -> list[str]:
    """Which of ``peers`` do not connect with our QoS ``own``, and for which policy."""
    found = []
    for peer in peers:
        why = mismatch(own, peer.qos) if publishes else mismatch(peer.qos, own)
        if peer.type == type and why:
            found.append(f"{names_of([peer])}: {why}")
    return found


def alone(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Nobody but this robot's guard, if it is up, commands the robot, and somebody subscribes to commands."""
    for command in heard.commands:
        row = command.topic
        strangers = [peer for peer in command.publishers if not own_guard(heard, peer)]
        if command.publishers and not strangers:
            yield Check(f"{row.topic} alone", "ok",
                        f"this robot's guard is up, and nobody else commands {command.name}")
        elif strangers:
            yield Check(f"{row.topic} alone", "fail", f"{names_of(strangers)} publishes on {command.name}",
                        "end it: two who command one robot fight; is another `temporeal deploy`, a teleoperation or a "
                        "demo running?")
        else:
            yield Check(f"{row.topic} alone", "ok", f"nobody commands {command.name}")
        yield listener(command)
    for name, peers in heard.rivals.items():
        if peers:
            yield Check(f"{name} alone", "fail", f"{names_of(peers)} publishes on {name}, which commands the robot",
                        "end it, even if it is silent: the guard does not fly beside it")
    if heard.rivals and not any(heard.rivals.values()):
        yield Check("other commands", "ok", f"nobody publishes on {shown(list(heard.rivals))}")


def own_guard(heard: Heard, peer: Peer) -> bool:
    """Whether a publisher of commands is this robot's only guard: a node of its name and namespace, which also
    publishes ``guard/command`` from the same process."""
    name = f"{heard.namespace.rstrip('/')}/guard_node"
    return peer.node == name and [(one.node, one.participant) for one in heard.guards] == [(name, peer.participant)]


def listener(command: CommandHeard) -> Check:
    """Whether anybody receives a command."""
    row, name = command.topic, f"{command.topic.topic} heard"
    right = [peer for peer in command.subscribers if peer.type == row.type]
    refused = refusals(right, row.type, qos_named(row.qos), publishes=True)
    other = [peer for peer in right if peer.hash and peer.hash != messages.type_hash(row.type)]
    if not right:
        wrong = sorted({peer.type for peer in command.subscribers})
        found = f"subscribed as {', '.join(wrong)}, not {row.type}" if wrong else f"nobody subscribes to {command.name}"
        return Check(name, "fail", found, "is the driver running, with the controller that takes this command? "
                                          "another interface: deploy.interface=")
    if len(refused) == len(right):
        return Check(name, "fail", "; ".join(refused), f"ros.yaml publishes commands with qos: {row.qos}")
    if other:
        return Check(name, "fail", f"{names_of(other)} has another definition of {row.type}",
                     "the same version of the message package on both sides")
    if refused:
        return Check(name, "warn", "; ".join(refused), "it does not hear commands: is that the robot?")
    return Check(name, "ok", f"{names_of(right)} listens to {command.name}")


def button(heard: Heard, plan: Plan) -> Iterator[Check]:
    """The operator's stop: present if required, one, of the right type, received, and not set."""
    rule, peers, able = plan.profile.estop, heard.buttons, buttons(heard.buttons)
    who = f"{shown(able)} publishes on estop"
    others = [peer for peer in peers if peer.type != BOOL]
    if not peers and rule.required:
        yield Check("estop", "fail", "nobody publishes on estop, and safety.estop.required is true",
                    f"start the node of the operator's stop ({BOOL})")
    elif len(able) > 1:
        yield Check("estop", "fail", f"{shown(able)} publish on estop", "one that falls silent, or is pressed while "
                    "another says no, would not be seen: let one of them say what all do")
    elif others:
        yield Check("estop", "fail", f"{names_of(others)} publishes on estop: {others[0].type}",
                    f"it must be {BOOL}: the guard does not hear another type")
    elif heard.pressed:
        yield Check("estop", "fail", f"{who}: it is set, or cannot be read", "release it")
    elif peers and heard.pressed is None:
        often = "" if rule.heartbeat_s is None else f" every {rule.heartbeat_s:g} s"
        yield Check("estop", "fail" if rule.required else "warn", f"{who}, and nothing came: whether it is set is not "
                    "known", f"let it say its state{often}, or latch it")
    elif peers:
        yield Check("estop", "ok", f"{who}: it is not set")


def names(heard: Heard, plan: Plan) -> Iterator[Check]:
    """Node names are unique, and nobody but the robot is in its namespace."""
    visible = [name for name in heard.nodes if not name.rpartition("/")[2].startswith("_")]
    twice = sorted(name for name, count in Counter(visible).items() if count > 1)
    if twice:
        yield Check("node names", "fail", f"two nodes are called {', '.join(twice)}",
                    "is a program running twice? ROS cannot tell them apart; end one or rename it (-r __node:=...)")
    else:
        yield Check("node names", "ok", f"{len(set(visible) - {heard.node})} other nodes, each with a name of its own")
    robot = {peer.node for state in heard.states for peer in state.publishers}
    robot |= {peer.node for command in heard.commands for peer in command.subscribers}
    below = heard.namespace.rstrip("/") + "/"
    others = sorted({name for name in visible if name.startswith(below)} - robot - {heard.node})
    where = f"namespace {heard.namespace}"
    if others and heard.namespace != "/":
        yield Check("namespace", "warn", f"in {where}, beside the robot: {shown(others)}",
                    "if these are of an earlier deployment, end them first")
    elif heard.namespace == "/":
        yield Check("namespace", "ok", "topics are in the namespace /, where every robot is")
    else:
        yield Check("namespace", "ok", f"nobody but the robot in {where}")
