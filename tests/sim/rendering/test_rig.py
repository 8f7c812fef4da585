"""Pictures against geometry that is computed by hand, and the two renderers against each other."""

import logging
import math
import sys
from concurrent.futures import ThreadPoolExecutor

import mujoco
import numpy as np
import pytest
import torch

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import load_robot
from temporeal.sim.rendering import rig as rig_module
from temporeal.sim.rendering.cameras import Camera, parse_cameras
from temporeal.sim.rendering.opengl_renderer import MissingRenderer
from temporeal.sim.rendering.rig import Rig, measure

SCENE = """
<mujoco>
  <statistic extent="1" center="0 0 0"/>
  <visual>
    <map znear="0.01" zfar="20"/>
    <headlight ambient="0.3 0.3 0.3" diffuse="0.3 0.3 0.3" specular="0 0 0"/>
  </visual>
  <asset>
    <texture name="grey" type="2d" builtin="flat" rgb1="0.5 0.5 0.5" width="8" height="8"/>
    <texture name="blue" type="2d" builtin="flat" rgb1="0.1 0.1 0.9" width="8" height="8"/>
    <material name="ground" texture="grey" specular="0"/>
    <material name="paint" rgba="0.1 0.8 0.1 1" specular="0"/>
  </asset>
  <worldbody>
    <light name="lamp" pos="0 0 3" dir="0 0 -1" diffuse="0.4 0.4 0.4" specular="0 0 0"/>
    <camera name="top" pos="0 0 2" fovy="60"/>
    <geom name="floor" type="plane" size="3 3 0.1" material="ground"/>
    <geom name="post" type="box" size="0.15 0.15 0.15" pos="-0.6 0.3 0.15" material="paint"/>
    <geom name="hidden" type="box" size="0.5 0.5 0.5" pos="0 0 1" group="3"/>
    <body name="ball" pos="0.5 -0.2 0.6">
      <freejoint/>
      <camera name="chase" mode="track" pos="0 -1.5 0" xyaxes="1 0 0 0 0 1"/>
      <geom name="shell" type="sphere" size="0.25" rgba="0.9 0.1 0.1 1"/>
    </body>
    <body name="tray" mocap="true" pos="0.2 0.8 0.2">
      <geom name="plate" type="box" size="0.2 0.1 0.02" rgba="0.9 0.9 0.1 1"/>
    </body>
  </worldbody>
</mujoco>
"""
MODEL = mujoco.MjModel.from_xml_string(SCENE)
WIDTH, HEIGHT, WORLDS = 64, 48, 3
SIDE = Camera("side", WIDTH, HEIGHT, pos=(0.0, -2.5, 0.5), quat=(math.sqrt(0.5), math.sqrt(0.5), 0, 0), fovy_deg=50.0)
EYES = (Camera("top", WIDTH, HEIGHT), SIDE, Camera("chase", 32, 32, kinds=("rgb",)))


class Rigs(dict):
    """One of each renderer, built when it is asked for: Warp's kernels take 20 s to compile on a new machine."""

    def __missing__(self, name):
        self[name] = Rig(MODEL, WORLDS, EYES, renderer=name)
        return self[name]


@pytest.fixture(scope="module")
def rigs():
    built = Rigs()
    yield built
    for rig in built.values():
        rig.close()


@pytest.fixture(params=[pytest.param("warp", marks=pytest.mark.slow), "gl"])
def rig(request, rigs):
    rigs[request.param].set_state({})
    return rigs[request.param]


def states(n=WORLDS):
    """Worlds that differ: the ball moves along x."""
    qpos = torch.tensor(MODEL.qpos0, dtype=torch.float32).repeat(n, 1)
    qpos[:, 0] -= 0.3 * torch.arange(n)
    return qpos


def rays(camera, fovy):
    """Directions through the centres of the pixels [H, W, 3] with -z component 1: x right, y up, looks along -z."""
    half = math.tan(math.radians(fovy) / 2)
    x = ((np.arange(camera.width) + 0.5) / camera.width * 2 - 1) * half * camera.width / camera.height
    y = (1 - (np.arange(camera.height) + 0.5) / camera.height * 2) * half
    return np.stack([*np.meshgrid(x, y), -np.ones((camera.height, camera.width))], -1)


def sphere_depth(direction, origin, centre, radius):
    """Distance along the optical axis to the sphere, infinite beside it; ``direction`` has unit depth."""
    to = origin - centre
    a, b, c = (direction**2).sum(-1), (direction * to).sum(-1), (to**2).sum() - radius**2
    root = b * b - a * c
    return np.where(root > 0, (-b - np.sqrt(np.maximum(root, 0))) / a, np.inf)


def interior(mask):
    """Pixels whose eight neighbours are also in ``mask``."""
    wide = np.pad(mask, 1)
    rows, columns = mask.shape
    return np.all([wide[i : i + rows, j : j + columns] for i in range(3) for j in range(3)], 0)


# ---- geometry


def test_the_depth_of_a_plane_is_the_height_of_the_camera_in_every_pixel(rig):
    depth = rig.render(states())["top_depth"][0].numpy()
    assert depth.shape == (HEIGHT, WIDTH) and depth.dtype == np.float32
    assert (np.abs(depth - 2.0) < 1e-4).mean() > 0.7  # depth, not distance: the same in the corners as in the middle
    assert abs(depth[0, 0] - 2.0) < 1e-4 and abs(depth[-1, -1] - 2.0) < 1e-4


@pytest.mark.parametrize("world", range(WORLDS))
def test_the_depth_of_a_sphere_is_where_each_ray_meets_it(rig, world):
    qpos = states()
    seen = rig.render(qpos)["top_depth"][world].numpy()
    exact = sphere_depth(rays(EYES[0], 60), np.array([0, 0, 2.0]), qpos[world, :3].numpy(), 0.25)
    on, off = np.isfinite(exact), np.isfinite(exact)
    assert on.sum() > 60
    tolerance = 1e-5 if rig.renderer == "warp" else 6e-3  # OpenGL draws a polyhedron
    assert np.abs(seen - exact)[interior(on)].max() < tolerance
    assert (seen[interior(~off)] > 1.4).all()


def test_a_box_has_its_colour_where_it_projects(rig):
    images = rig.render(states())
    red, green, blue = images["top_rgb"][0].int().unbind(-1)
    # the top face of the post, 1.7 m below the camera; rows of the image go down, y goes up
    rows, columns = ((images["top_depth"][0] - 1.7).abs() < 1e-4).nonzero().T
    focal = HEIGHT / 2 / math.tan(math.radians(30))
    assert columns.float().mean() + 0.5 == pytest.approx(WIDTH / 2 + focal * -0.6 / 1.7, abs=0.5)
    assert rows.float().mean() + 0.5 == pytest.approx(HEIGHT / 2 - focal * 0.3 / 1.7, abs=0.5)
    assert len(rows) == pytest.approx((focal * 0.3 / 1.7) ** 2, rel=0.2)
    assert (green > 3 * red)[rows, columns].all() and (green > 3 * blue)[rows, columns].all()


def test_nothing_is_black_and_at_the_far_plane(rig):
    images = rig.render(states())
    sky = images["side_depth"][0, 0]
    assert torch.equal(sky, torch.full_like(sky, 20.0)) and rig.far["side"] == 20.0
    assert not images["side_rgb"][0, 0].any()


def test_a_geom_of_a_hidden_group_is_not_seen(rig):
    assert rig.render(states())["top_depth"][0, HEIGHT // 2, 4] > 1.5  # the hidden box would be at 0.5 m
    assert "color.hidden" not in rig.parameters


def test_a_tracking_camera_moves_with_its_body_and_keeps_its_attitude(rig):
    qpos = states()
    qpos[1, 3:7] = torch.tensor([0.0, 1.0, 0.0, 0.0])  # the ball rolls; the camera must not
    images = rig.render(qpos)["chase_rgb"].int()
    middle = images[:, 16, 16]
    assert (middle[:, 0] > 3 * middle[:, 1]).all() and (middle[0] - middle[1]).abs().max() <= 2


def test_a_placed_camera_sees_what_the_model_s_own_sees_from_there(rig):
    twin = Camera("twin", WIDTH, HEIGHT, pos=(0.0, 0.0, 2.0), fovy_deg=60.0)
    with Rig(MODEL, WORLDS, (twin, EYES[0]), renderer=rig.renderer) as both:
        images = both.render(states())
    assert torch.equal(images["twin_rgb"], images["top_rgb"])
    assert torch.equal(images["twin_depth"], images["top_depth"])


def test_a_placed_camera_moves_and_turns_with_its_body(rig):
    qpos = states(1)
    qpos[0, :7] = torch.tensor([0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0])  # half a turn about x: the body's -z is up
    eye = Camera("eye", 16, 16, ("depth",), body="ball", pos=(0.0, 0.0, 0.5), quat=(0.0, 1.0, 0.0, 0.0))
    with Rig(MODEL, 1, (eye,), renderer=rig.renderer) as one:
        # now at 0.5 m above the floor, below the ball, looking along the body's +z: down
        centre = one.render(qpos)["eye_depth"][0, 8, 8]
        assert centre == pytest.approx(0.5, abs=1e-4)


def test_mocap_poses_move_bodies_and_are_the_model_s_if_left_out(rig):
    qpos = states()
    at_home = rig.render(qpos)["top_depth"]
    pos = torch.tensor([0.2, 0.8, 0.2]).repeat(WORLDS, 1, 1)
    quat = torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(WORLDS, 1, 1)
    assert torch.equal(rig.render(qpos, pos, quat)["top_depth"], at_home)
    pos[1, 0, 2] = 0.5
    moved = rig.render(qpos, pos, quat)["top_depth"]
    assert torch.equal(moved[0], at_home[0]) and torch.equal(moved[2], at_home[2])
    changed = moved[1] != at_home[1]
    assert changed.any() and moved[1][changed].min() == pytest.approx(2 - 0.52, abs=1e-4)


@pytest.mark.slow
def test_the_renderers_agree_on_depth_and_silhouettes(rigs):
    for rig in (rigs["warp"], rigs["gl"]):
        rig.set_state({})
    warp, gl = (rigs[name].render(states()) for name in ("warp", "gl"))
    for name in ("top_depth", "side_depth"):
        a, b = warp[name], gl[name]
        assert ((a < 20) == (b < 20)).float().mean() > 0.99
        both = (a < 20) & (b < 20)
        error = (a - b)[both].abs()
        assert error.median() < 1e-5 and (error < 6e-3).float().mean() > 0.97
    for name in ("top_rgb", "side_rgb", "chase_rgb"):
        assert (warp[name].float() - gl[name].float()).abs().mean() < 25


TILES = """
<mujoco>
  <statistic extent="1" center="0 0 0"/>
  <visual>
    <map znear="0.01" zfar="20"/>
    <headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/>
  </visual>
  <asset>
    <texture name="squares" type="2d" builtin="checker" rgb1="0.9 0.1 0.1" rgb2="0.1 0.1 0.9" width="64" height="64"/>
    <material name="tiles" texture="squares" texrepeat="{repeat}" texuniform="{uniform}" specular="0"/>
  </asset>
  <worldbody>
    <camera name="top" pos="0.1 0.2 2" fovy="60"/>
    <geom name="floor" type="plane" size="1 0.7 0.1" material="tiles"/>
    <geom name="thing" type="{geom}" size="0.4 0.3 0.3" pos="0.2 0.3 0.3" material="tiles"/>
  </worldbody>
</mujoco>
"""


@pytest.mark.slow
@pytest.mark.parametrize("geom", ["box", "sphere", "cylinder"])
@pytest.mark.parametrize(("repeat", "uniform"), [("2 1", "false"), ("2 2", "true")])
def test_the_renderers_agree_on_textures_but_for_the_borders_of_squares(geom, repeat, uniform):
    model = mujoco.MjModel.from_xml_string(TILES.format(geom=geom, repeat=repeat, uniform=uniform))
    red = {}
    for name in ("warp", "gl"):
        with Rig(model, 1, (Camera("top", 96, 72),), renderer=name) as rig:
            images = rig.render(torch.zeros(1, 0))
        rgb = images["top_rgb"][0].numpy().astype(int)
        red[name] = rgb[..., 0] > rgb[..., 2]
    depth = images["top_depth"][0].numpy()
    for part in (depth < 1.75, (depth > 1.9) & (depth < 2.1)):
        inside = part & (interior(red["warp"]) | interior(~red["warp"])) & interior(part)
        assert inside.sum() > 80 and 0.1 < red["warp"][inside].mean() < 0.9
        assert (red["warp"] == red["gl"])[inside].mean() > 0.98


# ---- worlds


def test_a_picture_does_not_depend_on_the_other_worlds(rig):
    qpos = states()
    rig.set_params(torch.tensor([2]), {"color.shell": torch.tensor([[0.0, 0.0, 1.0]])})
    together = rig.render(qpos)
    ids = torch.tensor([2, 0])
    some = rig.render(qpos[ids], ids=ids)
    again = rig.render(qpos)
    for name, image in together.items():
        assert torch.equal(some[name], image[ids]) and torch.equal(again[name], image)
    with Rig(MODEL, 1, EYES, renderer=rig.renderer) as alone:
        for name, image in alone.render(qpos[1:2]).items():
            assert torch.equal(image[0], together[name][1])


@pytest.mark.slow
def test_warp_s_seventh_world_is_what_it_is_alone():
    qpos = states(7)
    with Rig(MODEL, 7, EYES, renderer="warp") as rig:
        rig.set_params(torch.tensor([6]), {"color.shell": torch.tensor([[0.0, 0.0, 1.0]])})
        seven = rig.render(qpos)
    with Rig(MODEL, 1, EYES, renderer="warp") as alone:
        for world in (0, 3, 6):
            if world == 6:
                alone.set_params(torch.tensor([0]), {"color.shell": torch.tensor([[0.0, 0.0, 1.0]])})
            for name, image in alone.render(qpos[world : world + 1]).items():
                assert torch.equal(image[0], seven[name][world])


def test_a_gl_rig_draws_in_any_thread_and_closes_in_any():
    with ThreadPoolExecutor(1) as worker, ThreadPoolExecutor(1) as other:
        rig = Rig(MODEL, 1, EYES, renderer="gl")
        here = rig.render(states(1))
        there = worker.submit(rig.render, states(1)).result()
        again = other.submit(rig.render, states(1)).result()
        made_there = worker.submit(Rig, MODEL, 1, EYES, renderer="gl").result()
        for images in (there, again, rig.render(states(1)), made_there.render(states(1))):
            assert all(torch.equal(image, here[name]) for name, image in images.items())
        both = [pool.submit(rig.render, states(1)) for pool in (worker, other)]  # at once
        assert all(torch.equal(images.result()["top_rgb"], here["top_rgb"]) for images in both)
        other.submit(rig.close).result()
        made_there.close()
    with pytest.raises(ValueError, match="closed"):
        rig.render(states(1))


def test_what_was_current_in_opengl_is_so_again():
    with Rig(MODEL, 1, EYES[:1], renderer="gl") as own, Rig(MODEL, 1, EYES[:1], renderer="gl") as rig:
        def drawn_last():
            rgb = np.empty((HEIGHT, WIDTH, 3), dtype=np.uint8)
            mujoco.mjr_readPixels(rgb, None, mujoco.MjrRect(0, 0, WIDTH, HEIGHT), own._renderer.buffers)
            return rgb

        with own._renderer.context.as_current():
            own.render(states(1))
            before = drawn_last()
            rig.render(states(2)[1:])
            assert np.array_equal(drawn_last(), before) and before.any()


def test_an_error_of_the_driver_goes_to_the_log_when_a_rig_is_closed(caplog, monkeypatch):
    rig = Rig(MODEL, 1, EYES, renderer="gl")

    def fails():
        raise RuntimeError("EGL_BAD_ACCESS")

    context = rig._renderer.context
    with monkeypatch.context() as patch:
        patch.setattr(context, "free", fails)
        rig.close()
    assert "could not be given back: EGL_BAD_ACCESS" in caplog.text
    context.free()
    rig.close()


def test_no_world_gives_pictures_of_no_world(rig):
    images = rig.render(states()[:0], ids=torch.zeros(0, dtype=torch.int64))
    assert images["top_rgb"].shape == (0, HEIGHT, WIDTH, 3) and images["top_depth"].shape == (0, HEIGHT, WIDTH)


def test_pictures_are_memory_of_their_own(rig):
    first = rig.render(states())
    kept = {name: image.clone() for name, image in first.items()}
    rig.render(states() + 0.1)
    assert all(torch.equal(first[name], kept[name]) for name in kept)


@pytest.mark.parametrize("what", ["qpos", "mocap"])
def test_a_world_that_blew_up_is_black_and_far_and_the_others_do_not_notice(rig, what):
    qpos = states()
    fine = rig.render(qpos)
    pos = torch.tensor([0.2, 0.8, 0.2]).repeat(WORLDS, 1, 1)
    if what == "qpos":
        qpos[1, 2] = math.nan
    else:
        pos[1, 0, 1] = math.inf
    images = rig.render(qpos, pos)
    assert not images["top_rgb"][1].any() and (images["top_depth"][1] == rig.far["top"]).all()
    for name, image in images.items():
        assert torch.equal(image[0], fine[name][0]) and torch.equal(image[2], fine[name][2])


# ---- what worlds look like

CHANGES = {
    "camera.top.pos": [0.0, 0.1, 2.1],
    "camera.top.turn": [0.0, 0.0, 0.3],
    "camera.top.fovy": [70.0],
    "camera.side.pos": [0.0, -2.0, 0.5],
    "camera.side.turn": [0.1, 0.0, 0.0],
    "camera.chase.pos": [0.0, -1.0, 0.2],
    "camera.chase.turn": [0.0, 0.2, 0.0],
    "light.lamp.pos": [1.0, 0.0, 2.0],
    "light.lamp.dir": [0.5, 0.0, -1.0],
    "light.lamp.diffuse": [0.0, 0.0, 0.0],
    "color.shell": [0.0, 0.2, 0.9],
    "color.paint": [0.9, 0.1, 0.9],
    "color.post": [0.5, 0.5, 0.5],
    "texture.ground": [1.0],
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_parameter_changes_its_world_and_no_other(rig, name):
    qpos = states(1).repeat(WORLDS, 1)
    before = rig.render(qpos)
    rig.set_params(torch.tensor([1]), {name: torch.tensor([CHANGES[name]])})
    after = rig.render(qpos)
    assert any(not torch.equal(after[key][1], before[key][1]) for key in before)
    for key, image in before.items():
        assert torch.equal(after[key][0], image[0]) and torch.equal(after[key][2], image[2])
    assert rig.params()[name][1].tolist() == pytest.approx(CHANGES[name])
    rig.set_params(torch.tensor([1]), {name: torch.tensor([rig.parameters[name].nominal])})
    assert all(torch.equal(image[1], before[key][1]) for key, image in rig.render(qpos).items())


def test_parameters_mean_what_they_say(rig):
    qpos = states(1).repeat(WORLDS, 1)
    ids = torch.arange(WORLDS)
    plain = rig.render(qpos)

    def one(name, value):
        rig.set_state({})
        rig.set_params(ids[:1], {name: torch.tensor([value])})
        return {key: image[0] for key, image in rig.render(qpos).items()}

    raised = one("camera.top.pos", [0.0, 0.0, 2.5])["top_depth"]
    assert raised[0, 0] == pytest.approx(2.5, abs=1e-4)
    rolled = one("camera.top.turn", [0.0, 0.0, math.pi])["top_depth"]  # half a turn about the optical axis
    assert ((rolled.flip(0, 1) - plain["top_depth"][0]).abs() < 1e-3).float().mean() > 0.98
    with Rig(MODEL, 1, (Camera("top", WIDTH, HEIGHT, fovy_deg=70.0),), renderer=rig.renderer) as wide:
        same = wide.render(qpos[:1])["top_depth"][0]
    assert (one("camera.top.fovy", [70.0])["top_depth"] - same).abs().median() < 1e-6
    dark = one("light.lamp.diffuse", [0.0, 0.0, 0.0])["top_rgb"]
    assert dark.float().mean() < 0.9 * plain["top_rgb"][0].float().mean()
    floor = one("texture.ground", [1.0])["top_rgb"][2, 2].int()
    assert floor[2] > 3 * floor[0]
    assert torch.equal(one("texture.ground", [2.0])["top_rgb"][2, 2].int(), floor)  # the end counts to the last
    purple = one("color.paint", [0.9, 0.1, 0.9])["top_rgb"].int()
    assert ((purple[..., 0] > 3 * purple[..., 1]) & (purple[..., 2] > 3 * purple[..., 1])).sum() > 20


def test_a_grey_geom_does_not_fall_back_to_its_material(rig):
    rig.set_params(torch.tensor([0]), {"color.post": torch.tensor([[0.5, 0.5, 0.5]])})
    rgb = rig.render(states())["top_rgb"][0].int()
    assert not ((rgb[..., 1] > 3 * rgb[..., 0]) & (rgb[..., 1] > 3 * rgb[..., 2])).any()


def test_state_restores_what_worlds_look_like(rig):
    qpos = states()
    ids = torch.tensor([0, 2])
    rig.set_params(ids, {"color.shell": torch.rand(2, 3), "camera.top.turn": 0.1 * torch.rand(2, 3)})
    state, images = rig.state(), rig.render(qpos)
    rig.set_params(torch.arange(3), {"color.shell": torch.zeros(3, 3), "light.lamp.diffuse": torch.zeros(3, 3)})
    rig.set_state(state)
    assert all(torch.equal(image, images[key]) for key, image in rig.render(qpos).items())


def test_the_parameters_are_the_model_s_with_ranges_about_them(rig):
    p = rig.parameters
    assert p["camera.top.pos"].nominal == (0.0, 0.0, 2.0) and p["camera.top.pos"].unit == "m"
    assert p["camera.top.fovy"].nominal == (60.0,) and p["camera.side.fovy"].nominal == (50.0,)
    assert p["camera.chase.pos"].nominal == pytest.approx((0.0, -1.5, 0.0))
    assert p["color.shell"].nominal == pytest.approx((0.9, 0.1, 0.1))
    assert p["color.post"].nominal == pytest.approx((0.1, 0.8, 0.1))  # its material's
    assert p["texture.ground"].high == (2.0,)
    assert all(rig.params()[name].tolist() == [list(torch.tensor(p[name].nominal))] * WORLDS for name in p)


@pytest.mark.parametrize("end", ["low", "high"])
def test_both_ends_of_every_range_are_legal(rig, end):
    ends = {name: torch.tensor([getattr(p, end)]) for name, p in rig.parameters.items()}
    rig.set_params(torch.tensor([1]), ends)
    assert all(torch.equal(rig.params()[name][1:2], value) for name, value in ends.items())
    assert rig.render(states())["top_depth"].isfinite().all()


@pytest.mark.slow
def test_the_crazyflie_s_chase_camera_sees_the_crazyflie():
    model = mujoco.MjModel.from_xml_path(str(load_robot("crazyflie").model))
    qpos = torch.tensor(model.qpos0, dtype=torch.float32).repeat(2, 1)
    qpos[1, :3] += torch.tensor([3.0, -2.0, 1.0])
    with Rig(model, 2, (Camera("chase", 64, 64),), renderer="warp") as rig:
        images = rig.render(qpos)
    nearest = images["chase_depth"].flatten(1).min(1).values
    assert torch.allclose(nearest, torch.full((2,), 0.5), atol=0.08)  # it is 0.56 m from the body's origin
    assert (nearest[0] - nearest[1]).abs() < 1e-4


# ---- choosing and refusing


@pytest.mark.slow
def test_auto_takes_warp_and_says_so(caplog):
    rig_module._logged.clear()
    with caplog.at_level(logging.INFO):
        assert Rig(MODEL, 1, EYES[:1]).renderer == "warp"
        Rig(MODEL, 1, EYES[:1])
    assert [r.message[:19] for r in caplog.records if "renderer" in r.message] == ["renderer auto: warp"]


def without_warp(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    monkeypatch.delitem(sys.modules, "temporeal.sim.rendering.warp_renderer", raising=False)


def test_auto_takes_opengl_where_warp_is_missing_and_says_why(monkeypatch, caplog):
    rig_module._logged.clear()
    without_warp(monkeypatch)
    with Rig(MODEL, 1, EYES[:1]) as rig:
        assert rig.renderer == "gl"
    assert "pip install mujoco-warp" in caplog.text and caplog.records[0].levelno == logging.WARNING


def test_a_missing_renderer_says_what_to_install(monkeypatch):
    without_warp(monkeypatch)
    with pytest.raises(ModuleNotFoundError, match="pip install mujoco-warp"):
        Rig(MODEL, 1, EYES, renderer="warp")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setitem(sys.modules, "mujoco.egl", None)
    with pytest.raises(MissingRenderer, match="libegl1.*libosmesa6"):
        Rig(MODEL, 1, EYES, renderer="gl")


@pytest.mark.parametrize(("kwargs", "error", "words"), [
    ({"cameras": (Camera("front", 8, 8),)}, UnknownName, "no camera 'front'; known: top, chase"),
    ({"cameras": (Camera("e", 8, 8, pos=(0, 0, 0), body="arm"),)}, UnknownName, "no body 'arm'; known: world, ball"),
    ({"cameras": (Camera("top", 8, 8, pos=(0, 0, 0)),)}, ValueError, "the model's own"),
    ({"cameras": ()}, ValueError, "needs a camera"),
    ({"cameras": (EYES[0], EYES[0])}, ValueError, "share a name"),
    ({"num_worlds": 0}, ValueError, "num_worlds is a whole number from 1, got 0"),
    ({"renderer": "vulkan"}, UnknownName, "no renderer 'vulkan'; known: warp, gl, auto"),
    ({"device": "cuda:99"}, ValueError, "device='cuda:99': torch .* sees .* NVIDIA GPU here; use device='cpu'"),
    ({"device": "mps"}, ValueError, "device='mps': cpu, cuda or cuda:<index>"),
    ({"device": "gpu"}, ValueError, "device='gpu': cpu, cuda or cuda:<index>"),
    ({"needs": ("color.sky",)}, UnknownName, "no visual parameter 'color.sky'.*known: camera.top.pos"),
])  # fmt: skip
def test_a_rig_refuses_what_it_cannot_do(kwargs, error, words):
    with pytest.raises(error, match=words):
        Rig(**{"model": MODEL, "num_worlds": 1, "cameras": EYES, "renderer": "warp", **kwargs})


@pytest.mark.parametrize(("kwargs", "words"), [
    ({"width": 0}, "width is a whole number of pixels"), ({"height": 8.0}, "height is a whole number"),
    ({"kinds": ("rgb", "thermal")}, "rgb, depth"), ({"kinds": ()}, "rgb, depth"), ({"fovy_deg": 180.0}, "0 and 180"),
    ({"max_depth": 0.0}, "is a positive number"), ({"body": "ball"}, "need pos"), ({"pos": (0.0, 0.0)}, "3 finite"),
    ({"pos": (0, 0, 0), "quat": (1, 1, 0, 0)}, "length 1"), ({"name": "a b"}, "letters"),
    ({"fovy_deg": "45"}, "a number between 0 and 180, got '45'"), ({"max_depth": "5"}, "positive number.*got '5'"),
    ({"name": 3}, "letters.*got 3"), ({"kinds": 3}, "rgb, depth"),
    ({"quat": 1}, "quat is 4 finite numbers"), ({"body": 3}, "name of a body, got 3"),
])  # fmt: skip
def test_a_camera_refuses_wrong_values(kwargs, words):
    with pytest.raises(ValueError, match=words):
        Camera(**{"name": "top", "width": 8, "height": 8, **kwargs})


@pytest.mark.slow
def test_a_shorter_range_cuts_depth_off():
    with Rig(MODEL, 1, (Camera("top", 16, 16, ("depth",), max_depth=1.0),), renderer="warp") as rig:
        assert (rig.render(states(1))["top_depth"] <= 1.0).all() and rig.far["top"] == 1.0
        assert rig.signals == {"top_depth": (16, 16)}


def test_wrong_states_and_parameters_are_refused_and_change_nothing(rig):
    qpos, ids = states(), torch.tensor([0])
    for call, words in (
        (lambda: rig.render(qpos[:2]), r"qpos has shape \[3, 7\]"),
        (lambda: rig.render(None), r"qpos is a tensor \[3, 7\] .worlds first., got None"),
        (lambda: rig.set_params(torch.tensor([0, 0]), {"color.shell": torch.zeros(2, 3)}), "named once, got ids .0, 0"),
        (lambda: rig.render(qpos, ids=torch.tensor([0])), r"qpos has shape \[1, 7\]"),
        (lambda: rig.render(qpos[:1], ids=torch.tensor([3])), r"ids lie in 0\.\.2"),
        (lambda: rig.render(qpos[:1], ids=torch.tensor([0.0])), "int64"),
        (lambda: rig.render(qpos, mocap_pos=torch.zeros(3, 2, 3)), r"mocap_pos has shape \[3, 1, 3\]"),
        (lambda: rig.set_params(ids, {"color.shell": torch.tensor([[0.1, 0.1, 1.5]])}), "0 to 1"),
        (lambda: rig.set_params(ids, {"color.shell": torch.zeros(1, 2)}), r"shape is \[1, 3\]"),
        (lambda: rig.set_params(ids, {"camera.top.fovy": torch.tensor([0.0])}), "between 0 and 180"),
        (lambda: rig.set_params(ids, {"light.lamp.dir": torch.zeros(1, 3)}), "length above 0"),
        (lambda: rig.set_params(ids, {"texture.ground": torch.tensor([2.5])}), "0 to 2"),
        (lambda: rig.set_params(ids, {"camera.top.pos": torch.tensor([[math.nan, 0, 0]])}), "finite"),
        (lambda: rig.set_params(ids, {"color.paint": torch.zeros(1, 3), "color.x": torch.zeros(1, 3)}), "known"),
    ):
        with pytest.raises((ValueError, UnknownName), match=words):
            call()
    assert rig.state() == {}


def test_cameras_from_configuration():
    found = parse_cameras({"top": {"width": 8, "height": 6, "kinds": ["rgb"]}, "eye": {
        "width": 8, "height": 8, "body": "ball", "pos": [0, 0, 1], "quat": [1, 0, 0, 0], "kinds": "depth"}})
    assert found == (Camera("top", 8, 6, ("rgb",)), Camera("eye", 8, 8, ("depth",), body="ball", pos=(0, 0, 1)))
    assert parse_cameras(None) == ()
    with pytest.raises(ValueError, match=r"cameras.top: unknown keys \['fov'\]; legal: width"):
        parse_cameras({"top": {"width": 8, "height": 8, "fov": 60}})
    with pytest.raises(ValueError, match="cameras.top is a mapping with width and height"):
        parse_cameras({"top": {"width": 8}})
    with pytest.raises(ValueError, match="cameras is a mapping from names"):
        parse_cameras(["top"])
    with pytest.raises(ValueError, match="pos is 3 finite numbers, got 3"):
        parse_cameras({"top": {"width": 8, "height": 8, "pos": 3}})


@pytest.mark.slow
def test_measure_counts_frames():
    with Rig(MODEL, 2, EYES, renderer="warp") as rig:
        found = measure(rig, states(2), seconds=0.05)
    assert set(found) == {"cpu_ms", "wall_ms"} and all(0 < value < 1e3 for value in found.values())
