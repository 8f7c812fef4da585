"""What differs between Isaac Lab 2.3 and 3.0: order of quaternions, type of data, names of writers. One table."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class IsaacLabError(RuntimeError):
    """Isaac Lab is missing, or does not do what is asked."""


class NoIsaacLab(IsaacLabError, ValueError):
    """It was asked for and is not there: the user's to correct."""


@dataclass(frozen=True)
class Version:
    """What differs between versions of Isaac Lab.

    Args:
        xyzw: whether quaternions are scalar last.
        tensor: what ``asset.data`` gives, as a torch tensor.
        write: ``write(asset, what, value, env_ids, joint_ids)``; what: pose, velocity, joints, or a drive value's name.
        target: ``target(asset, position, effort, joint_ids)``.
        wrench: ``wrench(asset, force, torque, body)``: world frame, [N, 1, 3], until it is set again.
        mass: ``mass(asset, rows, mass, com, inertia)`` of all worlds [N, B, ...].
        friction: ``friction(asset, values)``: [N, S] of all shapes.
    """

    name: str
    xyzw: bool
    tensor: Callable[[Any], Tensor]
    write: Callable[..., None]
    target: Callable[..., None]
    wrench: Callable[..., None]
    mass: Callable[..., None]
    friction: Callable[..., None]


WRITERS_23 = {
    "stiffness": "write_joint_stiffness_to_sim", "damping": "write_joint_damping_to_sim",
    "effort": "write_joint_effort_limit_to_sim", "velocity": "write_joint_velocity_limit_to_sim",
    "armature": "write_joint_armature_to_sim"}
WRITERS_30 = {
    "stiffness": ("write_joint_stiffness_to_sim_index", "stiffness"),
    "damping": ("write_joint_damping_to_sim_index", "damping"),
    "effort": ("write_joint_effort_limit_to_sim_index", "limits"),
    "velocity": ("write_joint_velocity_limit_to_sim_index", "limits"),
    "armature": ("write_joint_armature_to_sim_index", "armature")}


def _write_23(asset: Any, what: str, value: Any, env_ids: Tensor, joint_ids: list[int] | None = None) -> None:
    if what == "pose":
        asset.write_root_link_pose_to_sim(value, env_ids=env_ids)
    elif what == "velocity_of_root":
        asset.write_root_link_velocity_to_sim(value, env_ids=env_ids)
    elif what == "joints":
        asset.write_joint_state_to_sim(*value, joint_ids=joint_ids, env_ids=env_ids)
    elif what == "friction":  # static and dynamic, N m
        asset.write_joint_friction_coefficient_to_sim(
            value, joint_dynamic_friction_coeff=value, joint_ids=joint_ids, env_ids=env_ids)
    else:
        getattr(asset, WRITERS_23[what])(value, joint_ids=joint_ids, env_ids=env_ids)


def _write_30(asset: Any, what: str, value: Any, env_ids: Tensor, joint_ids: list[int] | None = None) -> None:
    env_ids = env_ids.to(torch.int32)
    if what == "pose":
        asset.write_root_link_pose_to_sim_index(root_pose=value, env_ids=env_ids)
    elif what == "velocity_of_root":
        asset.write_root_link_velocity_to_sim_index(root_velocity=value, env_ids=env_ids)
    elif what == "joints":
        asset.write_joint_position_to_sim_index(position=value[0], joint_ids=joint_ids, env_ids=env_ids)
        asset.write_joint_velocity_to_sim_index(velocity=value[1], joint_ids=joint_ids, env_ids=env_ids)
    elif what == "friction":
        asset.write_joint_friction_coefficient_to_sim_index(
            joint_friction_coeff=value, joint_ids=joint_ids, env_ids=env_ids)
        asset.write_joint_dynamic_friction_coefficient_to_sim_index(
            joint_dynamic_friction_coeff=value, joint_ids=joint_ids, env_ids=env_ids)
    else:
        method, keyword = WRITERS_30[what]
        getattr(asset, method)(**{keyword: value}, joint_ids=joint_ids, env_ids=env_ids)


def _target_23(asset: Any, position: Tensor, effort: Tensor, joint_ids: list[int]) -> None:
    asset.set_joint_position_target(position, joint_ids=joint_ids)
    asset.set_joint_effort_target(effort, joint_ids=joint_ids)


def _target_30(asset: Any, position: Tensor, effort: Tensor, joint_ids: list[int]) -> None:
    asset.set_joint_position_target_index(target=position, joint_ids=joint_ids)
    asset.set_joint_effort_target_index(target=effort, joint_ids=joint_ids)


def _wrench_23(asset: Any, force: Tensor, torque: Tensor, body: int) -> None:
    asset.set_external_force_and_torque(force, torque, body_ids=[body], is_global=True)


def _wrench_30(asset: Any, force: Tensor, torque: Tensor, body: int) -> None:
    asset.permanent_wrench_composer.set_forces_and_torques_index(
        forces=force, torques=torque, body_ids=[body], is_global=True)


def _mass_23(asset: Any, rows: list[int], mass: Tensor, com: Tensor, inertia: Tensor) -> None:
    """PhysX views take CPU tensors of all bodies; a centre's pose is xyz, xyzw in them."""
    view, every = asset.root_physx_view, torch.arange(len(mass))
    masses, inertias, centres = view.get_masses().clone(), view.get_inertias().clone(), view.get_coms().clone()
    count = len(mass)
    masses.view(count, -1)[:, rows] = mass
    inertias.view(count, -1, 9)[:, rows] = inertia.reshape(count, -1, 9)
    centres.view(count, -1, 7)[:, rows] = _centre(com)
    view.set_masses(masses, every)
    view.set_coms(centres, every)
    view.set_inertias(inertias, every)


def _mass_30(asset: Any, rows: list[int], mass: Tensor, com: Tensor, inertia: Tensor) -> None:
    device, every = asset.device, torch.arange(len(mass), dtype=torch.int32, device=asset.device)
    asset.set_masses_index(masses=mass.to(device), body_ids=rows, env_ids=every)
    asset.set_coms_index(coms=_centre(com).to(device), body_ids=rows, env_ids=every)
    asset.set_inertias_index(inertias=inertia.flatten(2).to(device), body_ids=rows, env_ids=every)


def _centre(com: Tensor) -> Tensor:
    """Centres of mass [N, B, 3] as poses with the link's axes, xyzw."""
    return torch.cat((com, com.new_tensor([0.0, 0, 0, 1]).expand(*com.shape[:-1], 4)), -1)


def _friction_23(asset: Any, values: Tensor) -> None:
    view = asset.root_physx_view
    view.set_material_properties(_materials(view.get_material_properties(), values), torch.arange(len(values)))


def _friction_30(asset: Any, values: Tensor) -> None:
    warp, view = importlib.import_module("warp"), asset.root_view
    materials = _materials(warp.to_torch(view.get_material_properties()), values)
    view.set_material_properties(
        warp.from_torch(materials, dtype=warp.float32),
        warp.from_torch(torch.arange(len(values), dtype=torch.int32), dtype=warp.int32))


def _materials(materials: Tensor, values: Tensor) -> Tensor:
    """Materials [N, S, 3] (static, dynamic, restitution) with friction [N, S]."""
    if materials.shape[:2] != values.shape:
        raise IsaacLabError(f"an asset has shapes {tuple(materials.shape[:2])}, its URDF {tuple(values.shape)}")
    out = materials.clone()
    out[..., 0] = out[..., 1] = values.to(out)
    return out.contiguous()


VERSIONS = {
    "2.3": Version("2.3", False, lambda value: value, _write_23, _target_23, _wrench_23, _mass_23, _friction_23),
    "3.0": Version("3.0", True, lambda value: value.torch, _write_30, _target_30, _wrench_30, _mass_30, _friction_30)}


def version_of(assets: Any) -> Version:
    """The version of the imported ``isaaclab.assets``, by what its Articulation can do: package numbers differ."""
    if hasattr(assets.Articulation, "write_joint_position_to_sim_index"):
        return VERSIONS["3.0"]
    if hasattr(assets.Articulation, "write_root_link_pose_to_sim"):
        return VERSIONS["2.3"]
    raise IsaacLabError(f"this Isaac Lab is older than 2.3; known versions: {', '.join(VERSIONS)}")
