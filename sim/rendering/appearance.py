"""Visual parameters of single worlds: poses of cameras, lights, colours, textures.

A parameter is a few numbers with a nominal value (the model's) and a range; in each world it becomes a row of a field
of ``MjModel``, which either renderer reads.

==========================  =====  =======================================================================
parameter                   count  meaning
==========================  =====  =======================================================================
``camera.<name>.pos``       3      m, in the frame of the camera's body (tracking: world axes, from the body)
``camera.<name>.turn``      3      rad, rotation vector in the camera's own frame (x right, y up, looks along -z);
                                   not for a camera that is aimed at a body
``camera.<name>.fovy``      1      vertical field of view, degrees (orthographic: height of the picture, m);
                                   not for a camera with a sensor size and focal length
``light.<name>.pos``        3      m, in the frame of the light's body (tracking: world axes, from the body)
``light.<name>.dir``        3      any length but 0; not for a light that is aimed at a body
``light.<name>.diffuse``    3      red, green, blue, each 0 or more
``color.<name>``            3      red, green, blue, each 0 to 1, of a material, or of a geom whose name no material has
``texture.<material>``      1      0 to n: the whole part is an index among the model's n flat textures
==========================  =====  =======================================================================

Only named elements have parameters, and only geoms that are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import Parameter
from temporeal.sim.rendering.viewpoints import (
    CAMERA_FIELDS,
    FIXED,
    GROUPS,
    TARGET,
    TARGETCOM,
    TRACK,
    TRACKCOM,
    Views,
    names_of,
)

# Half-widths of the ranges about the model's values: our choice, of the size of what differs between a camera that was
# mounted and calibrated by hand and its drawing. A configuration may name its own.
POS, TURN, FOVY, LIGHT_POS, LIGHT_DIR, DIFFUSE = 0.02, 0.035, 2.0, 0.5, 0.3, 0.5  # m, rad, degrees, m, 1, 1
RGB_ROLE = int(mujoco.mjtTextureRole.mjTEXROLE_RGB)
FLAT = int(mujoco.mjtTexture.mjTEXTURE_2D)
PLACES = {FIXED: "pos", TRACK: "pos0", TRACKCOM: "poscom0", TARGET: "pos", TARGETCOM: "pos"}

Encode = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Visual:
    """A parameter and where it goes: ``field[world][where] = encode(value)``, if ``legal(value)`` [K, count] holds."""

    parameter: Parameter
    field: str
    where: tuple[int | slice, ...]
    encode: Encode
    rule: str = "finite"
    legal: Encode = torch.isfinite


def visual_parameters(model: mujoco.MjModel, views: Views) -> dict[str, Visual]:
    """Every parameter of ``model`` as seen through ``views``, by name."""
    return {**_cameras(views), **_lights(model), **_colors(model), **_textures(model)}


def _around(nominal: np.ndarray, half: float | np.ndarray, unit: str, least: float = -np.inf) -> Parameter:
    nominal = np.atleast_1d(np.asarray(nominal, dtype=float))
    low, high = np.maximum(nominal - half, least), nominal + half
    return Parameter(*(tuple(float(x) for x in v) for v in (nominal, low, high)), unit=unit, source="model")


def _as_is(value: Tensor) -> Tensor:
    return value


def _one(value: Tensor) -> Tensor:
    return value[:, 0]


def _cameras(views: Views) -> dict[str, Visual]:
    out = {}
    for i, camera in enumerate(views.cameras):
        row = {name: value[i] for name, value in views.fields.items()}
        name, mode = f"camera.{camera.name}", int(row["cam_mode"])
        place = f"cam_{PLACES[mode]}"
        out[f"{name}.pos"] = Visual(_around(row[place], POS, "m"), place, (i,), _as_is)
        if mode == FIXED:
            out[f"{name}.turn"] = Visual(_around(np.zeros(3), TURN, "rad"), "cam_quat", (i,), _turned(row["cam_quat"]))
        elif mode in (TRACK, TRACKCOM):
            mat = row["cam_mat0"]
            out[f"{name}.turn"] = Visual(_around(np.zeros(3), TURN, "rad"), "cam_mat0", (i,), _turned_mat(mat))
        if row["cam_projection"] != int(mujoco.mjtProjection.mjPROJ_PERSPECTIVE):
            parameter = _around(row["cam_fovy"], 0.05 * row["cam_fovy"], "m")
            out[f"{name}.fovy"] = Visual(parameter, "cam_fovy", (i,), _one, "positive", lambda v: v > 0)
        elif row["cam_sensorsize"][1] == 0:
            half = min(FOVY, 0.5 * float(row["cam_fovy"]), 0.5 * (180 - float(row["cam_fovy"])))
            out[f"{name}.fovy"] = Visual(_around(row["cam_fovy"], half, "deg"), "cam_fovy", (i,), _one,
                                         "between 0 and 180", lambda v: (v > 0) & (v < 180))
    return out


def _lights(model: mujoco.MjModel) -> dict[str, Visual]:
    out = {}
    for i, name in enumerate(names_of(model, "light")):
        if not name:
            continue
        mode = int(model.light_mode[i])
        place = f"light_{PLACES[mode]}"
        out[f"light.{name}.pos"] = Visual(_around(getattr(model, place)[i], LIGHT_POS, "m"), place, (i,), _as_is)
        if mode not in (TARGET, TARGETCOM):
            aim = "light_dir" if mode == FIXED else "light_dir0"
            out[f"light.{name}.dir"] = Visual(_around(getattr(model, aim)[i], LIGHT_DIR, "1"), aim, (i,), _unit,
                                              "of a length above 0", _has_length)
        diffuse = model.light_diffuse[i]
        out[f"light.{name}.diffuse"] = Visual(_around(diffuse, DIFFUSE * diffuse, "1", 0.0), "light_diffuse", (i,),
                                              _as_is, "0 or more", lambda v: (v >= 0) & v.isfinite())
    return out


def _colors(model: mujoco.MjModel) -> dict[str, Visual]:
    out = {}
    materials = names_of(model, "material")
    for i, name in enumerate(names_of(model, "geom")):
        if not name or name in materials or int(model.geom_group[i]) not in GROUPS:
            continue
        own, material = model.geom_rgba[i], int(model.geom_matid[i])
        inherits = material >= 0 and np.array_equal(own, np.float32([0.5, 0.5, 0.5, 1]))
        color = model.mat_rgba[material] if inherits else own
        out[f"color.{name}"] = _color(color, "geom_rgba", i)
    return out | {f"color.{name}": _color(model.mat_rgba[i], "mat_rgba", i) for i, name in enumerate(materials) if name}


def _color(rgba: np.ndarray, field: str, index: int) -> Visual:
    parameter = Parameter(tuple(float(x) for x in rgba[:3]), (0.0,) * 3, (1.0,) * 3, "1", "model")
    return Visual(parameter, field, (index, slice(0, 3)), _not_default, "0 to 1", lambda v: (v >= 0) & (v <= 1))


def _not_default(rgb: Tensor) -> Tensor:
    """MuJoCo takes a geom of exactly (0.5, 0.5, 0.5) to have its material's colour: a grey that is meant is moved."""
    return torch.where((rgb == 0.5).all(-1, keepdim=True), rgb + 1e-6, rgb)


def _textures(model: mujoco.MjModel) -> dict[str, Visual]:
    """Materials with a flat texture, and the flat textures. A cube texture fits no flat one's place."""
    flat = np.flatnonzero(model.tex_type == FLAT)
    out = {}
    for i, name in enumerate(names_of(model, "material")):
        own = int(model.mat_texid[i].reshape(-1)[RGB_ROLE])
        if name and own in flat:
            index, last = float(np.flatnonzero(flat == own)[0]), len(flat)
            parameter = Parameter((index,), (0.0,), (float(last),), "index", "model")
            out[f"texture.{name}"] = Visual(parameter, "mat_texid", (i, RGB_ROLE), _chosen(flat), f"0 to {last}",
                                          lambda v, last=last: (v >= 0) & (v <= last))
    return out


def _chosen(flat: np.ndarray) -> Encode:
    table = torch.from_numpy(flat.astype(np.int32))

    def encode(value: Tensor) -> Tensor:
        index = value[:, 0].floor().long().clamp(max=len(table) - 1)
        return table.to(value.device)[index]

    return encode


def _unit(value: Tensor) -> Tensor:
    return value / value.norm(dim=-1, keepdim=True)


def _has_length(value: Tensor) -> Tensor:
    return (value.isfinite() & (value.norm(dim=-1, keepdim=True) > 1e-9)).expand_as(value)


def _quaternion(turn: Tensor) -> Tensor:
    """The rotation by the vector ``turn`` [K, 3], wxyz [K, 4]."""
    angle = turn.norm(dim=-1, keepdim=True)
    # sin(a / 2) / a, 1 / 2 where a is 0
    return torch.cat((torch.cos(angle / 2), 0.5 * torch.sinc(angle / (2 * torch.pi)) * turn), -1)


def _turned(quat: np.ndarray) -> Encode:
    w, x, y, z = (float(v) for v in quat)
    matrix = torch.tensor([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])
    return lambda turn: _quaternion(turn) @ matrix.T.to(turn)


def _turned_mat(mat: np.ndarray) -> Encode:
    nominal = torch.tensor(np.asarray(mat, dtype=np.float32).reshape(3, 3))

    def encode(turn: Tensor) -> Tensor:
        w, x, y, z = _quaternion(turn).unbind(-1)
        rows = (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
                2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y))  # fmt: skip
        return (nominal.to(turn) @ torch.stack(rows, -1).reshape(-1, 3, 3)).flatten(1)

    return encode


class Appearance:
    """The parameters' values in N worlds, and the model fields they make. Nominal until set."""

    def __init__(self, model: mujoco.MjModel, views: Views, num_worlds: int, device: torch.device) -> None:
        self.num_worlds, self.device = num_worlds, device
        self.visual = visual_parameters(model, views)
        self.parameters = {name: visual.parameter for name, visual in self.visual.items()}
        self.values: dict[str, Tensor] = {}
        self.fields: dict[str, Tensor] = {}
        """Model field -> [N, ...]; only those of which a parameter was ever set."""
        self._nominal = {name: views.fields[name] if name in CAMERA_FIELDS else getattr(model, name).copy()
                         for name in self.all_fields()}

    def all_fields(self) -> frozenset[str]:
        """The model fields that parameters can change."""
        return frozenset(visual.field for visual in self.visual.values())

    def find(self, name: str) -> Visual:
        """The parameter ``name``; an unknown name lists the known ones."""
        if name not in self.visual:
            raise UnknownName(f"there is no visual parameter {name!r} here; known: {', '.join(self.visual) or 'none'}")
        return self.visual[name]

    def nominal(self, name: str) -> Tensor:
        """The nominal value in every world, [N, count]."""
        value = torch.tensor(self.find(name).parameter.nominal, dtype=torch.float32, device=self.device)
        return value.repeat(self.num_worlds, 1)

    def set(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Values [K, count] (or [K] where count is 1) of the worlds ``ids`` [K]; all are checked before one is set."""
        checked = {name: self._checked(name, value, len(ids)) for name, value in params.items()}
        for name, value in checked.items():
            self.values.setdefault(name, self.nominal(name))[ids] = value
            self._write(name, ids, value)

    def _checked(self, name: str, value: Tensor, k: int) -> Tensor:
        visual = self.find(name)
        count = len(visual.parameter.nominal)
        value = torch.as_tensor(value, dtype=torch.float32, device=self.device)
        if value.shape not in ((k, count), (k,) if count == 1 else (k, count)):
            raise ValueError(f"{name}: shape is [{k}, {count}] for {k} worlds, got {list(value.shape)}")
        value = value.reshape(k, count)
        legal = visual.legal(value) & value.isfinite()
        if not bool(legal.all()):
            bad = value[~legal.all(-1)][0].tolist()
            raise ValueError(f"{name} is {visual.rule} ({visual.parameter.unit}), got {bad}")
        return value

    def _write(self, name: str, ids: Tensor, value: Tensor) -> None:
        visual = self.visual[name]
        if visual.field not in self.fields:
            self.fields[visual.field] = self._nominal_rows(visual.field)
        field = self.fields[visual.field]
        field[(ids, *visual.where)] = visual.encode(value).to(field.dtype)

    def _nominal_rows(self, field: str) -> Tensor:
        nominal = torch.as_tensor(self._nominal[field], device=self.device)
        nominal = nominal.float() if nominal.is_floating_point() else nominal.int()
        return nominal.repeat(self.num_worlds, *[1] * nominal.dim())

    def state(self) -> dict[str, Tensor]:
        """A copy of the values that were set, by parameter, [N, count]."""
        return {name: value.clone() for name, value in self.values.items()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""
        everyone = torch.arange(self.num_worlds, device=self.device)
        for name, value in state.items():
            self._checked(name, value, self.num_worlds)
        self.values = {}
        # a field stays among those that a renderer gets: it keeps the last values it got
        self.fields = {name: self._nominal_rows(name) for name in self.fields}
        self.set(everyone, state)
