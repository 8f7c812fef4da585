"""Each operation does what its name says, and the same keys give the same picture."""

import sys

import numpy as np
import pytest
import torch

from temporeal.robots.registry import UnknownName, resolve
from temporeal.sim.rendering import augmentation as augment
from temporeal.sim.rendering.augmentation import (
    PRESETS,
    RULES,
    DepthNoise,
    Key,
    Op,
    augment_rgb,
    corrupt_depth,
    parse_augment,
)
from temporeal.sim.rendering.backend_pictures import Pictures
from temporeal.sim.rendering.cameras import Camera
from temporeal.sim.task import load_task

N, H, W = 6, 24, 32
WORLDS, EPISODE = torch.arange(N), torch.arange(N) % 2


def pictures(n=N, value=None):
    """Smooth pictures of several colours; or of one value."""
    if value is not None:
        return torch.full((n, H, W, 3), value, dtype=torch.uint8)
    y, x = torch.meshgrid(torch.linspace(0, 1, H), torch.linspace(0, 1, W), indexing="ij")
    colour = torch.stack((x, y, 1 - x), -1) * 160 + 40
    return colour.to(torch.uint8).repeat(n, 1, 1, 1)


def keys(step=0, worlds=WORLDS, episode=EPISODE, seed=1):
    return Key(seed, worlds, episode, torch.full_like(worlds, step))


def only(name, low, high=None, **kwargs):
    return {name: Op(low, low if high is None else high, **kwargs)}


EVERYTHING = {"wrist_rgb": {
    "shift": {"high": 4}, "rotate": {"high": 5}, "brightness": {"low": 0.8, "high": 1.2},
    "contrast": {"low": 0.8, "high": 1.2}, "saturation": {"low": 0.5, "high": 1.5}, "hue": {"high": 20},
    "grey": {"low": 1, "high": 1, "probability": 0.2}, "blur": {"high": 1.5}, "noise": {"high": 10},
    "cutout": {"low": 0.1, "high": 0.3, "count": 2}, "jpeg": {"low": 40, "high": 95, "per": "episode"}},
    "wrist_depth": {"preset": "kinect", "holes": 2}}  # fmt: skip


def everything(worlds, episode, step):
    index = worlds.numpy()
    images = {"wrist_rgb": pictures()[index], "wrist_depth": torch.linspace(0.4, 4, H * W).reshape(1, H, W).repeat(
        len(index), 1, 1), "other_rgb": pictures()[index]}
    return parse_augment(EVERYTHING)(images, 5, worlds, episode, step)


def test_the_same_keys_give_the_same_pictures_whatever_the_batch():
    whole = everything(WORLDS, EPISODE, 3)
    order = torch.tensor([4, 1])
    some = everything(order, EPISODE[order], 3)
    for name in ("wrist_rgb", "wrist_depth"):
        assert torch.equal(some[name], whole[name][order])
        assert not torch.equal(whole[name][0], whole[name][2])
    later = everything(WORLDS, EPISODE, 4)
    assert not torch.equal(later["wrist_rgb"][0], whole["wrist_rgb"][0])
    assert whole["wrist_rgb"].shape == (N, H, W, 3) and whole["wrist_rgb"].dtype == torch.uint8


def test_a_picture_without_a_plan_passes_and_the_given_ones_stay():
    images = {"wrist_rgb": pictures(), "wrist_depth": torch.ones(N, H, W)}
    out = parse_augment({"wrist_rgb": {"brightness": {"low": 0.5, "high": 0.5}}})(images, 0, WORLDS, EPISODE, 0)
    assert out["wrist_depth"] is images["wrist_depth"] and torch.equal(images["wrist_rgb"], pictures())
    assert not torch.equal(out["wrist_rgb"], images["wrist_rgb"])


def test_per_episode_draws_once_for_all_its_steps():
    op = only("hue", -90.0, 90.0, per="episode")
    first, later = (augment_rgb(pictures(), op, keys(step), "a_rgb") for step in (0, 7))
    assert torch.equal(first, later)
    other = augment_rgb(pictures(), op, keys(0, episode=EPISODE + 1), "a_rgb")
    assert not torch.equal(first, other)
    assert not torch.equal(first, augment_rgb(pictures(), op, keys(0), "b_rgb"))  # cameras draw apart


def test_probability_is_the_share_of_pictures():
    n = 400
    many = Key(0, torch.arange(n), torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.int64))
    out = augment_rgb(pictures(n), only("brightness", 0.0, probability=0.3), many, "a_rgb")
    assert (out.flatten(1) == 0).all(1).float().mean() == pytest.approx(0.3, abs=0.07)


def test_shift_moves_whole_pixels_up_to_its_range_and_repeats_the_border():
    image = pictures(400)
    many = Key(0, torch.arange(400), torch.zeros(400, dtype=torch.int64), torch.zeros(400, dtype=torch.int64))
    out = augment_rgb(image, only("shift", -2.0, 2.0), many, "a_rgb")
    padded = np.pad(image[0].numpy(), ((2, 2), (2, 2), (0, 0)), mode="edge")
    crops = {padded[r : r + H, c : c + W].tobytes() for r in range(5) for c in range(5)}
    found = {picture.numpy().tobytes() for picture in out}
    assert found == crops  # each is one of DrQ's 25 crops, and all of them come


def test_every_whole_shift_is_as_likely_as_any_other():
    n, high = 1400, 3
    image = torch.zeros(n, H, W, 3, dtype=torch.uint8)
    image[:, H // 2, W // 2] = 255
    many = Key(0, torch.arange(n), torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.int64))
    op = parse_augment({"a_rgb": {"shift": {"high": high}}}).rgb["a_rgb"]
    _, rows, columns, _ = (augment_rgb(image, op, many, "a_rgb") == 255).nonzero().T
    for place, middle in ((rows[::3], H // 2), (columns[::3], W // 2)):
        counts = torch.bincount(place - middle + high, minlength=2 * high + 1)
        assert len(counts) == 2 * high + 1 and counts.sum() == n
        assert ((counts - n / 7) ** 2 / (n / 7)).sum() < 22.5  # chi squared of 6 degrees of freedom, 0.999


def test_rotate_turns_counter_clockwise_about_the_centre():
    image = torch.zeros(1, 21, 21, 3, dtype=torch.uint8)
    image[0, 10, 18] = 255  # right of the centre
    out = augment_rgb(image, only("rotate", 90.0), keys(worlds=WORLDS[:1], episode=EPISODE[:1]), "a_rgb")
    assert (out[0, 2, 10] == 255).all() and out.sum() == image.sum()


@pytest.mark.parametrize(("name", "strength", "expected"), [
    ("brightness", 0.5, (100, 50, 10)),
    ("brightness", 2.0, (255, 200, 40)),
    ("contrast", 0.0, (120, 120, 120)),
    ("saturation", 0.0, (120, 120, 120)),
    ("saturation", 1.0, (200, 100, 20)),
    ("grey", 1.0, (120, 120, 120)),
    ("hue", 120.0, (20, 200, 100)),  # red to green, green to blue
    ("blur", 2.0, (200, 100, 20)),
    ("cutout", 0.0, (200, 100, 20)),
    ("noise", 0.0, (200, 100, 20)),
])  # fmt: skip
def test_an_operation_on_one_colour_by_hand(name, strength, expected):
    """Grey is 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601): here 120.8."""
    image = torch.tensor([200, 100, 20], dtype=torch.uint8).expand(1, H, W, 3)
    out = augment_rgb(image, only(name, strength), keys(worlds=WORLDS[:1], episode=EPISODE[:1]), "a_rgb")
    assert (out.int() - torch.tensor(expected)).abs().max() <= 1


def test_blur_spreads_a_point_by_its_standard_deviation():
    image = torch.zeros(1, 41, 41, 3, dtype=torch.uint8)
    image[0, 18:23, 18:23] = 255
    out = augment_rgb(image, only("blur", 3.0), keys(worlds=WORLDS[:1], episode=EPISODE[:1]), "a_rgb")
    weight = out[0, ..., 0].double()
    offset = torch.arange(41.0, dtype=torch.float64) - 20
    variance = (weight.sum(0) * offset**2).sum() / weight.sum()
    assert variance == pytest.approx(3.0**2 + 2.0, rel=0.12)  # its own and the square's: (25 - 1) / 12


def test_noise_has_its_standard_deviation():
    out = augment_rgb(pictures(value=128), only("noise", 10.0), keys(), "a_rgb").float()
    assert out.std() == pytest.approx(10.0, rel=0.03) and out.mean() == pytest.approx(128.0, abs=0.3)


def test_cutout_blackens_squares():
    out = augment_rgb(pictures(value=200), only("cutout", 0.25, count=1), keys(), "a_rgb")
    black = (out == 0).all(-1)
    assert ((out == 0) | (out == 200)).all()
    for mask in black:
        rows, columns = mask.nonzero().T
        high, wide = (int(x.max() - x.min()) + 1 for x in (rows, columns))
        assert len(rows) == high * wide and high <= 6 and wide <= 6
    assert black.sum() > 0.5 * N * 36
    more = augment_rgb(pictures(value=200), only("cutout", 0.25, count=4), keys(), "a_rgb")
    assert (more == 0).sum() > 2 * (out == 0).sum()


def test_jpeg_keeps_colours_and_loses_detail():
    textured = torch.randint(0, 256, (N, H, W, 1), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    textured = textured.expand(N, H, W, 3)  # grey: what is halved in colour is not what is tested
    poor, fine = (augment_rgb(textured, only("jpeg", q), keys(), "a_rgb").float() for q in (10.0, 95.0))
    assert (poor - textured.float()).abs().mean() > 1.5 * (fine - textured.float()).abs().mean()
    smooth = augment_rgb(pictures(), only("jpeg", 90.0), keys(), "a_rgb").float()
    assert (smooth - pictures().float()).abs().mean() < 4  # red and blue did not change places


# ---- depth


def test_axial_noise_grows_as_the_model_says():
    config = DepthNoise(noise=PRESETS["kinect"].noise)
    for z in (0.4, 1.0, 3.0):
        seen = corrupt_depth(torch.full((N, 64, 64), z), config, keys(), "a_depth")
        assert seen.std() == pytest.approx(0.0012 + 0.0019 * (z - 0.4) ** 2, rel=0.03)
        assert seen.mean() == pytest.approx(z, abs=3e-4)


def test_the_d435_s_noise_is_subpixel_over_focal_length_and_baseline():
    z = 2.0
    seen = corrupt_depth(torch.full((N, 64, 64), z), DepthNoise(noise=PRESETS["d435"].noise), keys(), "a_depth")
    assert seen.std() == pytest.approx(z * z * 0.08 / (424 * 0.05), rel=0.03)


def test_quantized_depths_are_whole_steps_of_inverse_depth():
    depth = torch.linspace(0.5, 4, H * W).reshape(1, H, W).repeat(N, 1, 1)
    seen = corrupt_depth(depth, DepthNoise(quantum=0.01), keys(), "a_depth")
    steps = 1 / seen / 0.01
    assert (steps - steps.round()).abs().max() < 1e-3 and len(seen.unique()) < 180
    assert ((seen - depth).abs() <= 0.5 * 0.01 * torch.maximum(seen, depth) ** 2 * 1.05).all()


def test_drop_outs_and_ranges_have_no_answer():
    seen = corrupt_depth(torch.full((N, 64, 64), 1.0), DepthNoise(drop=0.1), keys(), "a_depth")
    assert (seen == 0).float().mean() == pytest.approx(0.1, abs=0.01) and set(seen.unique().tolist()) == {0.0, 1.0}
    depth = torch.tensor([0.1, 1.0, 9.0, torch.inf]).reshape(1, 2, 2).repeat(N, 1, 1)
    seen = corrupt_depth(depth, DepthNoise(min_range=0.2, max_range=5.0), keys(), "a_depth")
    assert seen[0].tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_edges_lose_answers_and_flat_parts_do_not():
    depth = torch.ones(N, H, W)
    depth[:, :, W // 2 :] = 2.0
    seen = corrupt_depth(depth, DepthNoise(edge_drop=1.0, edge_jump=0.1), keys(), "a_depth")
    assert (seen[:, :, W // 2 - 1 : W // 2 + 1] == 0).all()
    assert (seen[:, :, : W // 2 - 1] == 1).all() and (seen[:, :, W // 2 + 1 :] == 2).all()


def test_jitter_makes_edges_ragged_and_invents_no_depth():
    depth = torch.ones(N, H, W)
    depth[:, :, W // 2 :] = 2.0
    seen = corrupt_depth(depth, DepthNoise(jitter=1.0), keys(), "a_depth")
    assert set(seen.unique().tolist()) == {1.0, 2.0}
    wrong = (seen != depth).float().mean((0, 1))
    assert wrong[W // 2 - 1] > 0.2 and wrong[: W // 2 - 6].sum() == 0


def test_holes_are_squares_up_to_their_size():
    seen = corrupt_depth(torch.ones(N, H, W), DepthNoise(holes=1, hole_size=0.5), keys(), "a_depth")
    holes = (seen == 0).flatten(1).sum(1)
    assert (holes <= 12 * 12).all() and holes.max() > 9


# ---- of the pictures of an environment

PLAN = {"chase_rgb": {"shift": {"high": 2}, "brightness": {"low": 0.5, "high": 1.5}}, "chase_depth": {"drop": 0.2}}


def of_worlds(augment=None):
    backend = resolve("temporeal.sim.backends", "quadrotor").make(
        load_task("hover").scene, 3, "motor_cmd", dt=0.01, device="cpu", seed=0, threads=1)
    return Pictures(backend, (Camera("chase", 24, 24),), renderer="gl", augment=augment)


def test_pictures_of_worlds_are_augmented_by_their_keys():
    plain, pictures = of_worlds(), of_worlds(PLAN)
    raw = plain.take()
    episode, step = torch.tensor([0, 4, 2]), torch.tensor([7, 0, 5])
    seen = pictures.take(seed=3, episode=episode, step=step)
    wanted = parse_augment(PLAN)(raw, 3, torch.arange(3), episode, step)
    assert all(torch.equal(seen[name], wanted[name]) and not torch.equal(seen[name], raw[name]) for name in raw)
    ids = torch.tensor([2, 0])
    some = pictures.take(ids, seed=3, episode=episode, step=step)
    assert all(torch.equal(some[name], image[ids]) for name, image in seen.items())
    assert all(torch.equal(image, raw[name]) for name, image in plain.take(seed=3, episode=episode, step=step).items())


def test_an_augmentation_of_worlds_needs_its_keys_and_pictures_that_are_there():
    with pytest.raises(ValueError, match="draws by seed, episode and step"):
        of_worlds(PLAN).take()
    with pytest.raises(UnknownName, match="no picture 'wrist_rgb'; known: chase_rgb, chase_depth"):
        of_worlds({"wrist_rgb": {}})
    with pytest.raises(ValueError, match="augment is a mapping"):
        of_worlds([1])


# ---- refusing


@pytest.mark.parametrize(("raw", "words"), [
    ({"a_rgb": {"sharpen": {"high": 1}}}, "augment.a_rgb.sharpen: no such operation; known: shift, rotate"),
    ({"a_rgb": {"shift": 4}}, "augment.a_rgb.shift is a mapping with high"),
    ({"a_rgb": {"shift": {"high": 4, "mode": "wrap"}}}, r"keys \['mode'\]; legal: low, high, probability, per$"),
    ({"a_rgb": {"brightness": {"high": 1.2}}}, "brightness needs low"),
    ({"a_rgb": {"jpeg": {"low": 0, "high": 50}}}, "1 <= low <= high <= 100, got low 0.0 and high 50.0"),
    ({"a_rgb": {"hue": {"low": 20, "high": 10}}}, "-180 <= low <= high <= 180"),
    ({"a_rgb": {"hue": {"high": 10, "probability": 1.5}}}, "probability is 0 to 1"),
    ({"a_rgb": {"hue": {"high": 10, "per": "run"}}}, "per is one of step, episode; got 'run'"),
    ({"a_rgb": {"hue": {"high": float("nan")}}}, "a finite number"),
    ({"a_rgb": {"cutout": {"low": 0.1, "high": 0.2, "count": 0}}}, "count is a whole number"),
    ({"a_depth": {"drop": 2}}, "augment.a_depth: drop is a share"),
    ({"a_depth": {"noise": [0, 1]}}, "noise is three numbers"),
    ({"a_depth": {"holes": 1.5}}, "holes is a whole number"),
    ({"a_depth": {"min_range": 5, "max_range": 1}}, "min_range is below max_range"),
    ({"a_depth": {"preset": "d455"}}, "no 'd455'; known: kinect, d435"),
    ({"a_depth": {"speckle": 1}}, r"unknown keys \['speckle'\]; legal: preset, noise"),
    ({"a": {"hue": {"high": 10}}}, "ends in _rgb or _depth"),
    ({"a_rgb": 3}, "augment.a_rgb is a mapping"),
    ({3: {}}, "a picture's name is a word such as wrist_rgb, got 3"),
    ("kinect", "augment is a mapping from pictures"),
    ({"a_rgb": {"shift": {"high": 2.5}}}, "shift: low and high are whole numbers, got -2.5 and 2.5"),
    ({"a_rgb": {"hue": {"high": 1, 3: 4, "x": 1}}}, r"unknown keys \['3', 'x'\]"),
    ({"a_depth": {"preset": [1]}}, r"no \[1\]; known: kinect, d435"),
    ({"a_depth": {"drop": "much"}}, "augment.a_depth: drop is a finite number, got 'much'"),
    ({"a_depth": {"noise": [0, 0, -1]}}, "c because it is a depth, that of the least noise; got"),
])  # fmt: skip
def test_wrong_configuration_is_named(raw, words):
    with pytest.raises((ValueError, UnknownName), match=words):
        parse_augment(raw)


def test_a_plan_for_a_picture_that_is_not_there_is_an_error():
    plan = {"front_rgb": {"hue": {"high": 10}}}
    with pytest.raises(UnknownName, match="no picture 'front_rgb'; known: wrist_rgb"):
        parse_augment(plan, ("wrist_rgb",))
    with pytest.raises(UnknownName, match="no picture 'front_rgb'; known: wrist_rgb"):
        parse_augment(plan)({"wrist_rgb": pictures()}, 0, WORLDS, EPISODE, 0)


def test_wrong_pictures_and_keys_are_refused():
    with pytest.raises(ValueError, match=r"a_rgb is uint8 \[6, H, W, 3\], got torch.float32"):
        augment_rgb(pictures().float(), only("hue", 10.0), keys(), "a_rgb")
    with pytest.raises(ValueError, match=r"a_depth is float \[6, H, W\]"):
        corrupt_depth(torch.ones(2, H, W), DepthNoise(), keys(), "a_depth")
    with pytest.raises(ValueError, match="one shape"):
        Key(0, WORLDS, EPISODE[:2], WORLDS)
    with pytest.raises(ValueError, match=r"episode is int64 \[K\], got torch.float32"):
        Key(0, WORLDS, EPISODE.float(), WORLDS)
    for step, told in ((0.5, "step is a whole number, got 0.5"), (torch.full((N,), 0.5), "step is int64")):
        with pytest.raises(ValueError, match=told):
            parse_augment({"a_rgb": {}})({"a_rgb": pictures()}, 0, WORLDS, EPISODE, step)


def test_every_operation_has_a_rule_and_presets_are_legal():
    assert set(RULES) == set(augment.APPLY)
    assert all(0 < preset.max_range < 20 for preset in PRESETS.values())


def test_without_opencv_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    monkeypatch.delitem(sys.modules, "temporeal.sim.rendering.augmentation")
    with pytest.raises(ModuleNotFoundError, match="pip install opencv-python-headless"):
        import temporeal.sim.rendering.augmentation  # noqa: F401
