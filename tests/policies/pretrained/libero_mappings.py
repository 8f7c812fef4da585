"""The mappings of pi0, pi0.5, OpenVLA-OFT and OpenVLA to LIBERO's arm, as the documentation has them."""

from __future__ import annotations

from typing import Any

from tests.policies.pretrained import tiny_openvla, tiny_pi

STATE = [{"signal": "eef_pos", "unit": "m"},
         {"signal": "eef_quat", "unit": "wxyz", "model_unit": "1", "turns_as": "rotation_vector"},
         {"signal": "gripper_qpos", "unit": "m"}]
FRONT, WRIST = ([{"signal": name, "resize": True}] for name in ("agentview_rgb", "wrist_rgb"))
STEP = {"kind": "absolute", "action": [0, 1, 2, 3, 4, 5], "command": [0, 1, 2, 3, 4, 5], "unit": "1"}
GRIPPER = {"kind": "absolute", "action": [6], "command": [6], "unit": "1"}
CLOSED_IS_ZERO = {**GRIPPER, "gain": -2.0, "offset": 1.0}  # OpenVLA's data have 0 closed, 1 open; LIBERO -1 open
KINDS = ("pi0", "pi05", "openvla_oft", "openvla")


def mapping(kind: str) -> dict[str, Any]:
    """As a YAML file says it."""
    pi = kind.startswith("pi")
    found: dict[str, Any] = {
        "dataset": tiny_pi.SET if pi else tiny_openvla.SET, "robot": "libero_panda", "command": "osc_cmd",
        "rate_hz": 20, "instruction": {"signal": "instruction"},
        "action": {"size": 7, "parts": [STEP, GRIPPER if pi else CLOSED_IS_ZERO]}}
    if pi:
        return {**found, "execute": 5, "inputs": {"observation.state": STATE, "observation.images.front": FRONT,
                                                  "observation.images.wrist": WRIST}}
    if kind == "openvla":
        return {**found, "inputs": {"full_image": FRONT}, "openvla": {**tiny_openvla.PLAIN, "center_crop": True}}
    return {**found, "execute": 8, "inputs": {"full_image": FRONT, "wrist_image": WRIST, "state": STATE},
            "openvla": tiny_openvla.OFT}
