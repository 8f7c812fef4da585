"""A foreign arm's joints from logs whose truth is known: intervals, what is flagged, and MuJoCo's own sysid beside it.

The arm is an SO-101 as its makers' URDF has it (example-robot-data), brought in by ``temporeal robot new``; robots are
drawn from the prior (its file has one number or none of each parameter, so wide ones) and play an excitation of
``SECONDS`` in MuJoCo itself, with sensor noise, dead zones and Stribeck friction
(``sim/identification/joints/synthetic.py``). Every second log has efforts. ``HIDDEN`` cannot be told: servos stay below
their limit, without efforts a servo's damping is the joint's, and of a joint at rest nothing is told. ``SHOWN`` is
excited in every log, and a chosen set: the wrist's last joint is in neither, since no gravity gives its forces a scale,
nor is Coulomb friction. Truths are of the prior that fits have, and links are as in the model that fits have.

``mujoco.sysid`` is given the same logs of robots without what MuJoCo's joints do not have, with delay and tool known to
both: its defaults, the priors' middles to begin from and three of their standard deviations as bounds.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from temporeal.robots.atomic_files import write_whole
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal.sim.identification.excitation.joints import JointSettings, plan
from temporeal.sim.identification.joints.identify import Identified, identify
from temporeal.sim.identification.joints.mechanism import COMMAND, Mechanism
from temporeal.sim.identification.joints.record import JointRecord
from temporeal.sim.identification.joints.synthetic import Runs, runs
from temporeal.sim.identification.record import Numbers
from temporeal.sim.identification.settings import Settings
from temporeal.sim.identification.verdicts import IDENTIFIED, verdicts
from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.scene import Scene
from temporeal_benchmarks.code_digest import code_digest
from temporeal_benchmarks.own_robot import robots as foreign
from temporeal_benchmarks.peers.install import PeerError, installed
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.reality.synthetic import COVERED, FLAGGED, WRONGLY, Counts
from temporeal_benchmarks.rows import Row, at_least, at_most, not_measured

COUNT, QUICK, STILL, BESIDE, SECONDS, SEED = 24, 2, 2, 3, 14.0, 70
HOME = {"shoulder_pan": 0.0, "shoulder_lift": 0.4, "elbow_flex": -0.8, "wrist_flex": 0.0, "wrist_roll": 0.0,
        "gripper": 1.0}
"""Where its links leave each other the 3 cm that an excitation keeps."""
SETTINGS = JointSettings(seconds=SECONDS, sweeps=2, low_hz=0.4, settle_s=2, quiet_s=2, slow=0.2)
KINDS = ("armature", "viscous", "kp")
SHOWN = tuple(f"{kind}[{joint}]" for joint in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex")
              for kind in KINDS) + ("command_delay",)
CODE = ("sim/identification", "sim/physics/mujoco", "benchmarks/reality/joints.py", "benchmarks/peers")
"""What a log's result rests on, beside the robot."""
SAME = ("armature", "viscous", "frictionloss", "kp")
"""What both identify of each joint."""
DELAY_S = 0.012
NAMES = ("coverage", "coverage_of_the_rest", "flagged", "wrongly_flagged", "error_beside_sysid", "time_beside_sysid")


def rows(quick: bool, out: Path) -> list[Row]:
    """All of them; what is done of a log is kept in ``out``, and not done again while code and robot are the same."""
    out.mkdir(parents=True, exist_ok=True)
    if not installed(foreign.PEER):
        return [not_measured(f"reality.joints.{name}", "1", None, f"{foreign.PEER} is not installed: python -m "
                             f"temporeal_benchmarks.peers {foreign.PEER}") for name in NAMES]
    robot = arm(out)
    count = QUICK if quick else COUNT
    done = [kept(out / f"{SEED}-{count}-{k}.json", robot, lambda k=k: told(robot, k, count)) for k in range(count)]
    done += [kept(out / f"still-{k}.json", robot, lambda k=k: told_still(robot, k)) for k in range(STILL)]
    found = judged(sum((Counts(*each["counts"]) for each in done), Counts()), done)
    found += beside(robot, 1 if quick else BESIDE, out)
    return [replace(each, ok=None) for each in found] if quick else found


def arm(out: Path) -> RobotSpec:
    """The SO-101."""
    place = out / "robots"
    if not (place / "so101" / "spec.yaml").is_file():
        so101 = foreign.ROBOTS["so101"]
        foreign.build(replace(so101, answers={**so101.answers, "home": HOME}), place, out,
                      foreign.commands(place))
    return load_robot(place / "so101")


def kept(file: Path, robot: RobotSpec, work: Any) -> dict[str, Any]:
    """What ``work`` finds, or found with the same code, settings and robot, and was written to ``file`` whole."""
    stamp = {"code": code_digest(CODE, lambda name: name.endswith((".py", ".xml"))), "robot": repr(robot),
             "model": "" if robot.model is None else hashlib.sha256(robot.model.read_bytes()).hexdigest()}
    try:
        found = json.loads(file.read_text())
        if found["stamp"] == stamp:
            return dict(found["result"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # none, cut short, or of a time without stamps
    result = json.loads(json.dumps(work()))
    write_whole(file, json.dumps({"stamp": stamp, "result": result}, indent=1).encode())
    return dict(result)


def made(robot: RobotSpec, seed: int, effort: bool, fixed: Mapping[str, float], still: bool = False) -> Runs:
    """One robot and its log; ``still``: its setpoints do not move."""
    planned = plan(robot, SETTINGS)
    place = np.repeat(planned.place[:1], planned.steps, 0) if still else planned.place
    return runs(robot, place, 1 / planned.rate_hz, 1, seed, effort=effort, fixed=fixed)


def told(robot: RobotSpec, k: int, count: int) -> dict[str, Any]:
    """Counts of the k-th robot, and the seconds of a core that it took."""
    one = made(robot, SEED + k, bool(k % 2), {})
    began = time.process_time()
    found = identify(one.records, robot, Settings(steps=0))
    return {"counts": counted(found, one, bool(k % 2)).numbers(), "seconds": time.process_time() - began,
            "converged": found.fit.converged}


def told_still(robot: RobotSpec, k: int) -> dict[str, Any]:
    """Counts of a robot at rest: all of it is hidden."""
    one = made(robot, SEED + 500 + k, bool(k % 2), {}, still=True)
    states = [each.status for each in verdicts(identify(one.records, robot, Settings(steps=0)))]
    return {"counts": Counts(flagged=sum(each != IDENTIFIED for each in states), hidden=len(states)).numbers()}


def counted(found: Identified, one: Runs, effort: bool) -> Counts:
    """Of one robot."""
    said = {each.quantity.name: each for each in verdicts(found)}
    true = {each.name: float(each.value(one.truth[0, k])) for k, each in enumerate(found.asked)}
    held, left = ([each.low <= true[name] <= each.high for name, each in said.items()
                   if (each.status == IDENTIFIED) is identified] for identified in (True, False))
    kinds = ("strength",) if effort else ("strength", "kd_share")
    hidden = [name for name in said if name.startswith(kinds)]
    return Counts(sum(held), len(held), sum(said[name].status != IDENTIFIED for name in hidden), len(hidden),
                  sum(said[name].status != IDENTIFIED for name in SHOWN), len(SHOWN), sum(left), len(left))


def judged(total: Counts, done: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows on intervals and flags."""
    moved = [each["seconds"] for each in done if "seconds" in each]
    of = f"SO-101, {len(moved)} robots of the fit's own prior, links exact, {SECONDS:g} s each, seed {SEED}; "
    of += f"{np.median(moved):.1f} s of a core a log"
    share = total.covered / max(total.asked, 1)
    return [
        Row("reality.joints.coverage", share, "1", f"{COVERED[0]} to {COVERED[1]}",
            f"{total.covered} of {total.asked} 90 % intervals of what is identified; {of}",
            bool(COVERED[0] <= share <= COVERED[1])),
        Row("reality.joints.coverage_of_the_rest", total.left_covered / max(total.left, 1), "1",
            peer=f"{total.left_covered} of {total.left} 90 % intervals of what is not identified"),
        at_least("reality.joints.flagged", total.flagged / max(total.hidden, 1), "1", FLAGGED,
                 f"{total.flagged} of {total.hidden} that cannot be told, {STILL} logs at rest among them"),
        at_most("reality.joints.wrongly_flagged", total.wrongly / max(total.shown, 1), "1", WRONGLY,
                f"{total.wrongly} of {total.shown} that are taken to be told: {', '.join(KINDS)} of four joints and "
                "the delay, no Coulomb friction")]


# ---------------------------------------------------------------- beside mujoco.sysid


@dataclass(frozen=True)
class Both:
    """Of one log, [J, 4] of :data:`SAME` each: the truth, and by whom values, 90 % ends, and s of a core."""

    truth: Numbers
    ours: tuple[Numbers, Numbers, Numbers, float]
    theirs: tuple[Numbers, Numbers, Numbers, float]


def beside(robot: RobotSpec, count: int, out: Path) -> list[Row]:
    """Errors and times of both, on the same logs."""
    try:
        done = [kept(out / f"beside-{SEED}-{k}.json", robot, lambda k=k: compared(robot, k, out)) for k in range(count)]
    except PeerError as error:
        return [not_measured(f"reality.joints.{name}", "of mujoco.sysid's", None, str(error)) for name in NAMES[4:]]
    ours, theirs = (float(np.median([each[who]["off"] for each in done])) for who in ("ours", "theirs"))
    held = {who: sum(each[who]["held"] for each in done) for who in ("ours", "theirs")}
    took = {who: float(np.median([each[who]["seconds"] for each in done])) for who in ("ours", "theirs")}
    asked = sum(each["asked"] for each in done)
    return [
        at_most("reality.joints.error_beside_sysid", ours / theirs, "of mujoco.sysid's", 1.0,
                f"median error of {', '.join(SAME)}: {100 * ours:.2f} %, mujoco.sysid {100 * theirs:.2f} %; 90 % "
                f"intervals hold {held['ours']} and {held['theirs']} of {asked}; {count} logs; of the priors that "
                "truths are drawn of it is given middles and bounds alone"),
        Row("reality.joints.time_beside_sysid", took["ours"] / took["theirs"], "of mujoco.sysid's",
            peer=f"{took['ours']:.1f} s of a core for 43 parameters, mujoco.sysid {took['theirs']:.1f} s for 20")]


def compared(robot: RobotSpec, k: int, out: Path) -> dict[str, Any]:
    """Both on one log."""
    one = simple(robot, SEED + 1000 + k)
    m, record, names = one.mechanism, one.records[0], [each.name for each in one.asked]
    true = np.array([[float(one.asked[names.index(f"{kind}[{joint}]")].value(
        one.truth[0, names.index(f"{kind}[{joint}]")])) for kind in SAME] for joint in m.names])
    known = (("command_delay", DELAY_S, 1e-5), ("tool_mass", float(m.mj.body_mass[m.tool]), 1e-5))
    began = time.process_time()
    found = {each.quantity.name: each for each in verdicts(identify([record], robot, Settings(steps=0, known=known)))}
    took = time.process_time() - began
    values, low, high = (np.array([[getattr(found[f"{kind}[{joint}]"], end) for kind in SAME] for joint in m.names])
                         for end in ("value", "low", "high"))
    answer = sysid(one, m, record, out)
    at, wide = np.array(answer["values"]), np.array(answer["wide"])
    return {"asked": true.size, "ours": scored(true, values, low, high, took),
            "theirs": scored(true, at, at - wide, at + wide, answer["seconds"])}


def simple(robot: RobotSpec, seed: int) -> Runs:
    """A robot that has nothing that MuJoCo's joints do not have, with a known delay and tool."""
    first = made(robot, seed, False, {})
    mass = float(first.mechanism.mj.body_mass[first.mechanism.tool])
    return made(robot, seed, False, {"backlash": 0.0, "stribeck": 0.0, "tool_mass": mass, "command_delay": DELAY_S})


def scored(true: Numbers, values: Numbers, low: Numbers, high: Numbers, seconds: float) -> dict[str, Any]:
    """Errors as shares of the truth, and how many intervals hold it."""
    return {"off": np.abs(values / true - 1).ravel().tolist(), "held": int(((low <= true) & (true <= high)).sum()),
            "seconds": seconds}


def sysid(one: Runs, m: Mechanism, record: JointRecord, out: Path) -> dict[str, Any]:
    """What mujoco.sysid finds."""
    names = [each.name for each in one.asked]
    prior = [[one.asked[names.index(f"{kind}[{joint}]")] for kind in SAME] for joint in m.names]
    nominal, low, high = (np.array([[float(each.value(each.mean + side * each.sd)) for each in row] for row in prior])
                          for side in (0.0, -3.0, 3.0))
    times = np.arange(len(record.command)) * record.dt
    control = np.tile(m.model.home_ctrl, (len(times), 1))
    at = np.maximum(np.arange(len(times)) - int(round(DELAY_S / record.dt)), 0)
    control[:, m.servos] = record.command[at]
    assert record.speed is not None
    qpos = m.model.home_qpos.copy()
    qpos[m.places] = record.place[0]
    data, xml = out / "log.npz", out / "model.xml"
    xml.write_text(bare(m))
    # its simulation labels what sensors say before a step with the time after it: so are these
    np.savez(data, control=control, control_times=times, qpos=qpos,
             times=np.arange(len(record.place)) * record.step + record.dt,
             sensors=np.concatenate([record.place, record.speed], 1), nominal=nominal, low=low, high=high)
    with Peer("mujoco_sysid") as peer:
        answer: dict[str, Any] = peer.ask("fit", xml=str(xml.absolute()), data=str(data.absolute()),
                                          joints=list(m.names))
    return answer


def bare(m: Mechanism) -> str:
    """The arm's model as XML without shapes, which take time to compile and touch nothing here, with its sensors."""
    spec = mjcf.assemble(Scene(m.robot))
    mjcf.drive(spec, m.robot, COMMAND)
    spec.option.timestep = m.dt
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    for geom in list(spec.geoms):
        spec.delete(geom)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    for kind in (mujoco.mjtSensor.mjSENS_JOINTPOS, mujoco.mjtSensor.mjSENS_JOINTVEL):
        for joint in m.names:
            spec.add_sensor(name=f"{joint}_{int(kind)}", type=kind, objtype=mujoco.mjtObj.mjOBJ_JOINT, objname=joint)
    for servo in m.servos:
        spec.actuators[int(servo)].ctrllimited = False
    spec.compile()
    return str(spec.to_xml())
