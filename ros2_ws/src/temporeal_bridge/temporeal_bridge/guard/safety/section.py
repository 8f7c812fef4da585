"""The ``safety`` section of a robot's ``ros.yaml``: what the guard requires, and how it stops the robot.

    safety:
      stale_after_s: 0.1     # largest age of the state [s]
      silent_after_s: 0.1    # longest time without a proposal of the controller [s]
      stamps_within_s: 0.5   # largest difference of a state's stamp from our clock [s]; null: clocks are not compared
      geofence: {signal: base_pos_w, low: [-5, -5, -0.2], high: [5, 5, 4]}
      # values that must not stay bit-identical: all of `signals` together, or any one of `each`
      frozen: {signals: [base_pos_w, base_quat_w], each: [base_ang_vel_b], after_s: 0.2}
      jump: {base_pos_w: 1.0}     # largest change of each component from one message to the next; more after a gap (a
                                  # velocity: after a lost message). Of an attitude the angle [rad], whatever the gap.
                                  # A command's own section may add signals
      agree:                      # largest recent deviation of a place from its integrated rate, in the place's unit.
        base_pos_w: {rate: base_vel_w, within: 0.2}  # A command's own section may add places
      violated: stop              # when the monitor finds the formula violated: stop, or warn
      estop: {required: false, heartbeat_s: 0.5}
      swap: {blend_s: 0.5}        # duration of an artifact swap (temporeal_bridge.guard.artifact_swap)
      unlock_below_m: 0.1         # quadrotors: one zero setpoint below this height, whenever the state comes (back)
      level: {descend: 0.85, gain: 5.0, limit: 3.0, landed_m: 0.06, max_s: 6.0, blind_s: 0.3, sink_m_s: 0.3, ...}
      commands:
        ctbr_cmd:                 # a section for each command of the robot
          stop: {default: level, operator: silence}   # stop action by code of the reason
          motion: {margin: 0.02, speed: [...], acceleration: [...], jerk: [...]}
          tracking: {signal: joint_pos, error: 0.2, after_s: 0.2}
          effort: {position: joint_pos, velocity: joint_vel, kp: [...], kd: [...], limit: [...]}  # the servo law
          start: {signal: joint_pos, within: 0.3, ramp_s: 2.0}
          self_collision: {signal: joint_pos, margin: 0.02}  # m, where the robot would come to rest. For a speed that
                                                    is # not that of its joints also: velocity, range, brake, late_s
        joint_effort_cmd:         # further keys of a command that is a speed or an effort
          ends: {position: joint_pos, velocity: joint_vel, range: joint_pos_cmd, margin: 0.05, brake: 4.0, speed: 1.5,
                 gain: 30.0, period_s: 0.02}
          stale_after_s: 0.03     # replaces the common one, and may only be shorter, for topics with a signal that a
          stamps_within_s: 0.015  # rule or stop action of this command reads
          start: {at_rest: {signal: joint_vel, below: 0.1}, ramp_s: 0.5}

``stale_after_s``, ``silent_after_s``, ``commands`` and each command's ``stop`` are required. Any other key that is
missing or null is not checked (``swap`` has the value above). Times after which something counts as wrong (those above,
``frozen.after_s`` and ``estop.heartbeat_s``) are 5 s at most.

Stop actions
------------
``hold`` goes to where ``tracking``, or else ``start``, measures the robot, once that is known. While the state is stale
or not credible (it jumped, is frozen, has wrong stamps) the robot comes to rest as by ``ramp``.

``ramp`` ends where the robot was told to rest. If it stays elsewhere, it presses on something and is then held where it
is measured (hands excepted).

``closes`` (hands) says, by component, whether a greater command closes the hand (1), a smaller one (-1), or neither
(0). A joint whose measured place may be old is sent there only if that does not close it
(:mod:`temporeal_bridge.guard.stop_actions.hold`).

``damp`` of an effort is ``-gain`` times the velocity; 0 if that is stale, frozen, has wrong stamps, or disagrees with
the position (which also stops efforts).

``level`` (quadrotors) levels out (``gain`` 1/s times the sine of the tilt, up to ``limit`` rad/s) and sinks with
``sink_m_s``:

- Thrust: the measured velocity, as far as the height confirms it, changes the thrust by ``sink_gain`` (share of the
  thrust that carries the robot, per m/s), from ``descend`` to 1.3 of that thrust; from 0.6 while velocity and height
  both show a climb.
- A sideways speed that velocity and position both show is braked by a lean of at most 9 degrees.
- The thrust that carries is the one with which the robot hovered in this mission, less its accelerations, after enough
  flight; else its nominal weight. It is slowly corrected: up when velocity and height both show too fast a sink, down
  when neither does.
- Without a velocity, or after that jumped, 0.4 of the sink that the height shows is answered.
- After another signal jumped, or while the state is frozen, has wrong stamps or position and velocity disagree,
  ``descend`` alone is used.
- It ends below ``landed_m``, unless a live velocity shows motion or the thrust exceeds that of a standing robot; then
  the motors are off. It does not begin where nothing has lifted the robot: then silence, or zeros
  (:func:`temporeal_bridge.guard.stop_actions.level.begin`).
- Of the firmware without an autopilot: ``flies_s`` (1.5 s) is how long it flies on without commands, ``off_s`` (2.5 s)
  how long zeros are sent after landing; both may be left out.
- After ``max_s`` an autopilot takes over a robot that does not sink. Without an autopilot no robot is dropped: while
  the height shows no sink, or is not credible, the thrust is reduced by 5 % of it per second; after four times
  ``max_s`` in any case, because a state that reports a sink for so long is wrong. At a fifth of it the motors are off.
- When the state is stale it is silent after ``blind_s``, and ends 1.5 s later if the state does not return. After the
  attitude jumped or was found wrong (``agree``) the state counts as stale, because the direction of up is unknown.

Therefore the top of a ``geofence`` may be only so high that the robot comes down from it in four times ``max_s``, and
its bottom must not lie far below ``landed_m``: a robot below that has landed.

Rules
-----
``agree`` finds a place, or a rate, that is wrong: the recent change of the place minus the integrated rate
(:mod:`temporeal_bridge.guard.checks.rate_pairs`) may be ``within``. For an attitude (``wxyz``) both are rotations about
the body's axes. Correct signals deviate by at most the rate's change times the delay of the place. A bit-identical
place whose rate is not zero is frozen. An attitude that was found wrong is not used for the rest of the mission; such a
position or velocity cuts no motor and brakes no sink. The same holds, with limits of its own, for joints whose velocity
is used for efforts or collisions.

``effort`` is applied last, to every command that is sent while the state is fresh: the controller's, the guard's own
while the controller is late, and those of stop actions, as long as they last. A robot that is pushed away takes its
command along, even faster than ``motion`` allows: who pushes it is stronger than the limits of a command, and a servo
that pulls with more than its limit is what hurts. The next command begins at rest from there
(:func:`temporeal.robots.motion.rate_limiter.confined`), and limits of place still hold. Without a fresh state the
effort is unknown, and the command is sent unchanged. So it is in a stop after the state jumped, is frozen, has old
stamps, or after position and velocity disagreed (which also stops the robot): such a state would lead the command away.
The section is refused for commands that are sent as a trajectory: its points lie ahead of the current setpoint, and the
robot's state there is unknown.

``ends`` does the same for speeds and efforts, which do not set a place. Towards an end of the joints' ``range`` (the
limits of that command, or ``joint_pos``: those of the spec's motion; ``margin`` inside them) a joint may be only as
fast as braking with ``brake`` [rad/s^2] comes to rest there, and nowhere faster than ``speed``. A speed is cut to that
one period and ``late_s`` earlier. An effort may be ``gain`` [N m s/rad] times the difference of that speed and the
measured ``velocity``, so that it brakes a faster joint. An artifact that sends efforts less often than every
``period_s`` is refused: damping with older velocities shakes.

``start``: speeds and efforts begin at 0 or, with a ``signal``, at what is measured; with ``at_rest`` not before each
component of its signal is ``below`` its limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.safety import command_rules, fallback_actions, state_rules
from temporeal_bridge.guard.safety.checked_values import SafetyError, legal, of_unit, positive, seconds
from temporeal_bridge.guard.safety.profile import Estop, Profile

AGES = ("stale_after_s", "stamps_within_s")
COMMON = (*AGES, "silent_after_s", "geofence", "frozen", "jump", "agree", "violated", "estop", "swap", "unlock_below_m",
          "level", "commands")
OF_COMMAND = ("stop", *AGES, "jump", "agree", "motion", "tracking", "effort", "ends", "start", "self_collision",
              "closes")


def profile(robot: RobotSpec, content: Mapping[str, Any], spec: CommandSpec, period: float) -> Profile:
    """The profile of ``robot`` for its command ``spec``, sent every ``period`` [s]. ``content``: the YAML section."""
    legal("safety", content, COMMON, ("stale_after_s", "silent_after_s", "commands"))
    where, own = own_section(robot, content, spec)
    seconds("safety.stale_after_s", content["stale_after_s"])
    level = fallback_actions.level_parameters(content.get("level"))
    return Profile(
        limits=command_rules.motion_limits(f"{where}.motion", own.get("motion"), spec, period),
        stop=fallback_actions.stop_actions(f"{where}.stop", own, spec, robot, level),
        silent_after_s=silence(content["silent_after_s"], period),
        geofence=state_rules.fence(robot, content.get("geofence"), level),
        frozen=state_rules.frozen(robot, content.get("frozen")),
        violated=on_violation(content.get("violated", "warn")), estop=estop(content.get("estop"), period),
        blend_s=blend(content.get("swap")),
        unlock_below_m=fallback_actions.unlock_height(content.get("unlock_below_m")), level=level,
        tracking=command_rules.tracking(f"{where}.tracking", robot, own.get("tracking"), spec),
        effort=command_rules.effort(f"{where}.effort", robot, own.get("effort"), spec),
        ends=command_rules.ends(f"{where}.ends", robot, own.get("ends"), spec, period),
        start=command_rules.start(f"{where}.start", robot, own.get("start"), spec),
        self_collision=command_rules.self_collision(f"{where}.self_collision", robot, own, spec),
        fingers=fallback_actions.fingers(where, robot, own, spec, content),
        **of_both(where, robot, own, content))


def own_section(robot: RobotSpec, content: Mapping[str, Any], spec: CommandSpec) -> tuple[str, Mapping[str, Any]]:
    """Place and content of the command's section."""
    commands = content["commands"]
    legal("safety.commands", commands, list(robot.commands))
    if spec.name not in commands:
        raise SafetyError(f"safety.commands has no section for {spec.name!r}; it has: {', '.join(commands)}")
    where, own = f"safety.commands.{spec.name}", commands[spec.name]
    legal(where, own, OF_COMMAND, ("stop",))
    return where, own


def of_both(where: str, robot: RobotSpec, own: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """What the common section and the command's ``own`` say together: ages, jumps, places that agree with rates."""
    stale, stamps = (state_rules.shorter(where, name, own, content) for name in AGES)
    common = state_rules.jump("safety.jump", robot, content.get("jump"))
    extra = state_rules.jump(f"{where}.jump", robot, own.get("jump"))
    jumps = common if extra is None else {**(common or {}), **extra}
    pairs = {**state_rules.agree("safety.agree", robot, content.get("agree")),
             **state_rules.agree(f"{where}.agree", robot, own.get("agree"))}
    return {"stale_after_s": stale, "stamps_within_s": stamps, "jump": jumps, "agree": tuple(pairs.values()),
            "attitudes": of_unit(robot, jumps or (), "wxyz"), "velocities": of_unit(robot, jumps or (), "rad/s", "m/s")}


def silence(value: Any, period: float) -> float:
    """The longest time [s] without a proposal, which come every ``period`` [s]."""
    silent = seconds("safety.silent_after_s", value)
    if silent < 2 * period:
        raise SafetyError(f"safety.silent_after_s is {silent:g} s, but this artifact's commands come every {period:g} "
                          "s: at least two periods are needed, or every late step would stop the robot")
    return silent


def on_violation(value: Any) -> str:
    """What to do when the formula is violated."""
    if value not in ("stop", "warn"):
        raise SafetyError(f"safety.violated is {value!r}; legal: stop, warn")
    return str(value)


def estop(row: Mapping[str, Any] | None, period: float) -> Estop:
    """The operator's stop, for a guard that checks it every ``period`` [s]."""
    row = {} if row is None else row
    legal("safety.estop", row, ("required", "heartbeat_s"))
    required = row.get("required", False)
    if not isinstance(required, bool):
        raise SafetyError(f"safety.estop.required is {required!r}; legal: true, false")
    heartbeat = row.get("heartbeat_s", Estop.heartbeat_s)
    heartbeat = None if heartbeat is None else seconds("safety.estop.heartbeat_s", heartbeat)
    if required and heartbeat is None:
        raise SafetyError("safety.estop: a required stop needs a heartbeat_s, or its loss would not be noticed")
    if heartbeat is not None and heartbeat < 2 * period:
        raise SafetyError(f"safety.estop.heartbeat_s is {heartbeat:g} s, but the guard looks every {period:g} s: at "
                          "least two periods are needed, or a working button would count as silent")
    return Estop(required, heartbeat)


def blend(row: Mapping[str, Any] | None) -> float:
    """Duration [s] of an artifact swap."""
    row = {} if row is None else row
    legal("safety.swap", row, ("blend_s",))
    return positive("safety.swap.blend_s", row.get("blend_s", Profile.blend_s))
