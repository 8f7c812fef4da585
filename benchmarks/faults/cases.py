"""Faults in fake time, and what each must lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal_benchmarks.faults.stand_ins import CHUNK_STEPS
from temporeal_benchmarks.faults.world import KINDS, ROLLS, STATE_S, World
from temporeal_bridge.guard.checks.competing_publishers import CHECK_S
from temporeal_bridge.guard_node import TICK_S
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal

PUSHED = 2  # joint that is pushed: half a rad to either side of its home are in its range
GOES_ON, ANY = "goes on", "any"


@dataclass(frozen=True)
class Case:
    """A fault and what must follow.

    Args:
        strike: makes it happen, at a random time of a mission.
        code: of the stop that must follow; GOES_ON: none; ANY: none, or one of some code, with commands within limits.
        within: s from the fault to the stop at most (function of the world; from ``world.behind_at`` where blocked).
        kinds: those of :data:`KINDS` that it fits.
        before: makes it happen before the mission begins.
        promise: who promises what.
    """

    strike: Callable[[World], None]
    code: str
    within: Callable[[World], float] = lambda world: 0.0
    kinds: tuple[str, ...] = tuple(KINDS)
    before: bool = False
    twin: bool = False  # commands must be those of the same mission without the fault, in every bit
    promise: str = ""
    also: tuple[str, ...] = ()


PLAIN = tuple(name for name in KINDS if name != "crazyflie-chunks")
ARMS = ("franka", "franka-forward", "franka-velocity", "franka-effort", "franka-tool")
FELT = ("franka", "franka-forward", "franka-velocity")  # an arm that takes efforts may not move for its own reasons
JOINTS = (*ARMS, "leap_hand", "allegro_hand")
MEASURED = (*FELT, "franka-tool", "leap_hand", "allegro_hand")  # compare a first command with what is measured
FROZEN = ("crazyflie", "crazyflie-chunks", *ARMS, "leap_hand")
SEEN_S = STATE_S + TICK_S  # a state comes, and the guard checks
LIES_S = 0.5  # for a velocity that is not how the joints move, which must have moved first; chosen
SERVO = "MoveIt Servo halts 100 ms after the last command"


def stale_s(world: World) -> float:
    """A state that does not come is missed after this time."""
    return world.guard.config.profile.stale_after_s + TICK_S


def silent_s(world: World) -> float:
    """A controller that says nothing is missed after this time; its last proposal is a period old at most."""
    return world.period + world.guard.config.profile.silent_after_s + TICK_S


def first_signal(world: World) -> str:
    """Of which a jump is watched."""
    return next(iter(world.guard.config.profile.jump or {"joint_pos": 0}))


def broken(how: str) -> Callable[[World], None]:
    """The policy breaks."""
    return lambda world: setattr(world.brain, "broken", how)


def state(**options: Any) -> Callable[[World], None]:
    """A fault in what the robot says; a ``signal`` "" is the one whose jumps are watched."""
    def strike(world: World) -> None:
        named = {"signal": first_signal(world)} if options.get("signal") == "" else {}
        world.start_fault(**{**options, **named})

    return strike


def clock(seconds: float, robot: bool) -> Callable[[World], None]:
    """A clock is set: the robot's, or that of everybody."""
    def strike(world: World) -> None:
        if robot:
            world.clock_off_ns += round(seconds * 1e9)
        else:
            world.bus.epoch_ns += round(seconds * 1e9)

    return strike


def flapping(world: World) -> None:
    """The operator's stop is set and let go, again and again."""
    def flip() -> None:
        world.estop = not world.estop
        world.publish("estop", world.estop)

    flip()
    world.every = flip


def estop(world: World) -> None:
    """The operator's stop is set."""
    world.estop = True
    world.publish("estop", True)


def garbage(world: World) -> None:
    """Datagrams of nonsense, and commands of a stranger, on the link."""
    junk = np.random.default_rng(1)

    def send() -> None:
        now, command = world.bus.seconds, np.full(world.spec.size, 9.9)
        world.stranger(junk.bytes(int(junk.integers(0, 200))))
        world.stranger(datagrams.pack(Proposal(datagrams.COMMAND, world.flight, 1 << 40, 0, now, now, command)))
        world.stranger(datagrams.pack(Proposal(datagrams.HELLO, text="somebody else")))

    world.every = send


def replaced(world: World) -> None:
    """The controller is gone, and another one is there at once: it says hello and proposes."""
    world.thinking.asleep = 1e9
    garbage(world)


def burst(world: World) -> None:
    """The guard does not run for some periods; what was proposed meanwhile waits for it."""
    world.guarding.asleep = world.bus.seconds + float(world.rng.uniform(1.0, 6.0)) * world.period


def blocked(world: World) -> None:
    """A joint does not move any more, and the policy wants it to."""
    joint, more = (ROLLS[0], 1.5) if world.drive == "velocity" else (1, 0.9)  # others would lead it too near to itself
    world.blocked = [joint]
    world.plan["wild"] = False
    world.plan["offset"] = more * np.eye(world.spec.size)[joint]


def pushed(world: World) -> None:
    """A joint is pushed away by half a rad, faster than any command may move, and kept there."""
    joint, way = PUSHED, [0.05, 0.1, 0.1, 0.1, 0.1, 0.05]
    world.blocked = [joint]

    def push() -> None:
        world.pushed = -(way.pop() if way else 0.0) * np.eye(world.place.size)[joint]

    world.every = push


def stopped_and_pushed(world: World) -> None:
    """The operator stops it, and then it is pushed."""
    world.publish("mission/stop")
    pushed(world)


def lying_when_pushed(world: World) -> None:
    """The same, of one whose velocities are in degrees from then on."""
    stopped_and_pushed(world)
    world.start_fault(name="jump", signal="joint_vel", scale=57.3)


def moved_unseen(world: World) -> None:
    """A joint is moved by half a rad, and its velocity says nothing of it."""
    pushed(world)
    world.start_fault(name="jump", signal="joint_vel", scale=0.0)


def far(world: World) -> None:
    """The policy begins far from where the robot is."""
    world.plan["offset"] = np.full(world.spec.size, 0.9)


def sleeping(world: World) -> None:
    """The controller does not run any more."""
    world.thinking.asleep = 1e9


def late_chunks(world: World) -> None:
    """The worker becomes too slow for its chunks' length."""
    world.worker.latency = 1.5 * CHUNK_STEPS * world.period


def chunks_end_s(world: World) -> float:
    """A whole chunk may be left to fly, and one more that was asked for."""
    return 2 * CHUNK_STEPS * world.period + silent_s(world)


CASES: dict[str, Case] = {
    "state stopped": Case(state(name="stopped"), "stale", stale_s, promise=SERVO),
    "state late by 0.3 s": Case(state(name="delayed", by_s=0.3), "stale", stale_s, promise=SERVO),
    "state lost, 3 of 10": Case(
        state(name="lost", share=0.3), GOES_ON, kinds=tuple(kind for kind in KINDS if kind != "franka-effort")),
    "state repeated, old stamps": Case(state(name="repeated"), "stale", lambda w: stale_s(w) + STATE_S, promise=SERVO),
    "state frozen, fresh stamps": Case(
        state(name="frozen"), "frozen", lambda w: w.guard.config.profile.frozen.after_s + SEEN_S + STATE_S, FROZEN),
    "state frozen, no rule": Case(state(name="frozen"), ANY, kinds=("allegro_hand",), also=("speeds",)),
    "state old by 2 s": Case(state(name="stamped", by_s=-2.0), "stamps", lambda w: SEEN_S),
    "state of the future": Case(state(name="stamped", by_s=2.0), "stamps", lambda w: SEEN_S),
    "clock step of the robot": Case(clock(5.0, True), "stamps", lambda w: SEEN_S),
    "clock step of all, on": Case(clock(3600.0, False), GOES_ON),
    "clock step of all, back": Case(clock(-3600.0, False), GOES_ON),
    "joint missing": Case(state(name="missing"), "stale", stale_s, JOINTS, promise=SERVO),
    "joints permuted": Case(state(name="permuted"), GOES_ON, kinds=JOINTS, twin=True),
    "joint too many": Case(state(name="extra"), GOES_ON, kinds=JOINTS, twin=True),
    "state NaN": Case(state(name="nan", signal="", index=0), "stale", stale_s, promise=SERVO),
    "state of wrong length": Case(
        state(name="wrong_length"), "stale", stale_s, (*JOINTS, "crazyflie"), promise=SERVO),
    "unit jump of the velocity": Case(
        state(name="jump", signal="joint_vel", scale=57.3), "speeds", lambda w: LIES_S,
        ("franka", "franka-effort", "franka-tool", "allegro_hand"), also=("jump", "collision")),
    "velocity that is always 0": Case(
        moved_unseen, "speeds", lambda w: LIES_S, ("franka", "franka-effort", "franka-tool", "allegro_hand"),
        also=("jump",)),
    "unit jump of the velocity, stopped and pushed": Case(
        lying_when_pushed, "operator", lambda w: TICK_S, kinds=("allegro_hand",)),
    "unit jump": Case(state(name="jump", signal="", scale=57.3, by=1.5), "jump", lambda w: SEEN_S),
    "policy NaN": Case(broken("nan"), "policy", lambda w: w.period + SEEN_S, PLAIN),
    "policy of wrong shape": Case(broken("shape"), "policy", lambda w: w.period + SEEN_S, PLAIN),
    "policy huge": Case(broken("huge"), ANY, kinds=PLAIN),
    "policy raises": Case(broken("exception"), "policy", lambda w: w.period + SEEN_S, PLAIN),
    "policy 10 times slower": Case(
        broken("slow"), "silent", silent_s, PLAIN, promise="Crazyflie levels after 500 ms, " + SERVO),
    "policy hangs": Case(broken("hang"), "silent", silent_s, PLAIN, promise="Crazyflie levels after 500 ms, " + SERVO),
    "controller stopped": Case(sleeping, "silent", silent_s, promise="Crazyflie levels after 500 ms, " + SERVO),
    "controller replaced": Case(replaced, "silent", silent_s),
    "line: nonsense and strangers": Case(garbage, GOES_ON, twin=True),
    "guard late by some periods": Case(burst, ANY),
    "chunk late": Case(late_chunks, "silent", chunks_end_s, ("crazyflie-chunks",)),
    "chunk twice": Case(lambda w: setattr(w.worker, "broken", "duplicate"), GOES_ON, kinds=("crazyflie-chunks",)),
    "chunks reordered": Case(lambda w: setattr(w.worker, "broken", "reordered"), GOES_ON, kinds=("crazyflie-chunks",)),
    "chunks exhausted": Case(
        lambda w: setattr(w.worker, "alive", False), "silent", chunks_end_s, ("crazyflie-chunks",)),
    "second publisher": Case(World.rival, "publisher", lambda w: CHECK_S + TICK_S,
                             promise="unitree_rl_lab looks once, at the start"),
    "operator: stop": Case(lambda w: w.publish("mission/stop"), "operator", lambda w: TICK_S),
    "operator: stop set": Case(estop, "operator", lambda w: TICK_S),
    "operator: stop flaps": Case(flapping, "operator", lambda w: TICK_S),
    "operator: stop lost": Case(lambda w: setattr(w, "heart", False), "operator",
                                lambda w: w.guard.config.profile.estop.heartbeat_s + TICK_S),
    "start far from the pose": Case(far, "start", lambda w: 2 * w.period + SEEN_S, MEASURED, before=True),
    "joint blocked": Case(blocked, "tracking", lambda w: w.guard.config.profile.tracking.after_s + SEEN_S, FELT),
    "joint blocked, no rule": Case(blocked, ANY, kinds=("leap_hand", "allegro_hand", "franka-effort", "franka-tool")),
    "world pushes a finger": Case(pushed, GOES_ON, kinds=("allegro_hand",)),
    "world pushes a finger that was stopped": Case(
        stopped_and_pushed, "operator", lambda w: TICK_S, kinds=("allegro_hand",)),
}
