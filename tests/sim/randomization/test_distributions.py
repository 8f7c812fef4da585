"""Distributions: their statistics, ends and errors; draws keyed by the episode; the quadrotor's are unchanged."""

import hashlib
from math import erf, log, pi, sqrt
from pathlib import Path

import pytest
import torch
import yaml

from temporeal.robots.spec import Parameter, load_robot
from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.physics.mujoco.parameters import check_values
from temporeal.sim.physics.quadrotor.rotor import flight_parameters
from temporeal.sim.randomization.distributions import (
    bounds,
    draw_parameters,
    parse_randomization,
    possible_inertia,
    quantile,
)
from temporeal.sim.randomization.sensor_config import SensorConfig
from temporeal.sim.randomization.sensors import Sensors
from temporeal.sim.scene import Scene, box

N = 8000
WORLDS, FIRST = torch.arange(N), torch.zeros(N, dtype=torch.int64)
CONFIGS = Path(__file__).parents[3] / "configs/randomize"


def plain(*nominal, low=None, high=None, unit="1"):
    return Parameter(nominal, low or nominal, high or nominal, unit, "the model's own value")


PARAMETERS = {
    "mass": plain(2.0, 1.0, low=(1.5, 0.9), high=(2.5, 1.3)), "inertia": plain(0.3, 0.3, 0.5),
    "com": plain(0.1, 0.2, 0.3), "kp": plain(100.0, 50.0, 20.0), "friction": plain(0.8), "damping": plain(0.0, 0.1),
    "gravity_w": plain(0.0, 0.0, -9.81), "command_delay": plain(0.0), "cube.mass": plain(0.05),
    "cube.friction": plain(1.0), "cube.force_w": plain(0.0, 0.0, 0.0), "camera.wrist.turn": plain(0.0, 0.0, 0.0),
    "color.table": plain(0.5, 0.5, 0.5, low=(0.0,) * 3, high=(1.0,) * 3)}


def draw(name, seed=3, worlds=WORLDS, episode=FIRST, **spec):
    distributions = parse_randomization({name: spec}, PARAMETERS)
    return draw_parameters(PARAMETERS, distributions, seed, worlds, episode)[name]


def uniform_on(x, low, high):
    """Mean, standard deviation and ends of a uniform distribution, to five standard errors of the mean."""
    width = high - low
    assert low <= x.min() and x.max() <= high
    assert abs(x.mean() - (low + high) / 2) < 5 * width / sqrt(12 * len(x))
    assert abs(x.std() / width - 1 / sqrt(12)) < 0.006


def test_uniform_and_published_ranges():
    uniform_on(draw("friction", kind="uniform", low=0.5, high=1.5), 0.5, 1.5)
    found = draw("mass", kind="sources", scale=0.5)
    uniform_on(found[:, 0], 1.75, 2.25)
    uniform_on(found[:, 1], 0.95, 1.15)
    assert abs(torch.corrcoef(found.T)[0, 1]) < 0.05
    found = draw("kp", kind="uniform", low=[90, 40, 10], high=[110, 60, 30])
    for i, (low, high) in enumerate(((90, 110), (40, 60), (10, 30))):
        uniform_on(found[:, i], low, high)


def test_logarithms():
    uniform_on(draw("friction", kind="log_uniform", low=0.1, high=10).log(), log(0.1) - 1e-6, log(10) + 1e-6)
    found = draw("kp", kind="scale", by="log_uniform", low=0.5, high=2.0) / torch.tensor([100.0, 50.0, 20.0])
    uniform_on(found[:, 1].log(), log(0.5) - 1e-6, log(2) + 1e-6)


def test_factors_and_sums():
    found = draw("kp", kind="scale", low=0.8, high=1.2, shared=True)
    uniform_on(found[:, 0], 80, 120)
    torch.testing.assert_close(found / found[:, :1], torch.tensor([[1.0, 0.5, 0.2]]).expand(N, 3))
    uniform_on(draw("com", kind="add", low=-0.02, high=0.02)[:, 2], 0.28, 0.32)
    found = draw("gravity_w", kind="add", by="normal", std=0.1)
    torch.testing.assert_close(found.mean(0), torch.tensor([0.0, 0.0, -9.81]), atol=0.006, rtol=0)
    assert (found[:, 2] + 9.81).abs().max() <= 0.3 + 1e-5


@pytest.mark.parametrize(("mean", "low", "high"), [(100, 98, 110), (100, None, 110), (100, 102, 130), (500, 498, None)])
def test_a_normal_distribution_ends_where_it_is_told(mean, low, high):
    ends = {key: value for key, value in (("low", low), ("high", high)) if value is not None}
    found = draw("kp", kind="normal", std=1.0, mean=mean, **ends)[:, 0]
    first, last = (end if end is not None else mean + side * 3 for end, side in ((low, -1), (high, 1)))
    assert first <= found.min() < first + 0.3 and found.max() <= last
    assert len(found.unique()) > 1000  # not all at an end
    one_sided = (erf((min(last, mean + 6) - mean) / sqrt(2)) - erf((max(first, mean - 6) - mean) / sqrt(2))) / 2
    below = (erf((max(first, mean) + 0.5 - mean) / sqrt(2)) - erf((first - mean) / sqrt(2))) / 2 / one_sided
    assert abs((found < max(first, mean) + 0.5).float().mean() - below) < 0.03


def test_a_normal_distribution_may_go_beyond_three_deviations_where_that_is_said():
    assert bounds(parse_randomization({"kp": {"kind": "normal", "std": 1.0, "high": 500}}, PARAMETERS)["kp"],
                  PARAMETERS["kp"]) == ((97.0, 47.0, 17.0), (500.0,) * 3)


@pytest.mark.parametrize(("spec", "told"), [
    ({"std": 1, "low": 200, "high": 300}, "200 to 300, is out of reach of a normal distribution about 100 with std 1"),
    ({"std": 1, "mean": 500, "low": 90, "high": 110}, "90 to 110, is out of reach of a normal distribution about 500"),
    ({"std": 0, "mean": 3, "low": 4}, "about 3 with std 0"),
    ({"std": 1, "low": [99, 60, 19]}, "60 to inf, is out of reach of a normal distribution about 50")])
def test_ends_that_a_normal_distribution_does_not_reach_are_told(spec, told):
    with pytest.raises(ValueError, match=told):
        parse_randomization({"kp": {"kind": "normal", **spec}}, PARAMETERS)


@pytest.mark.parametrize("weights", [1, "even", {"a": 1}, [1], [[1], [2]]])
def test_weights_are_a_number_for_each_value(weights):
    with pytest.raises(ValueError, match="weights"):
        parse_randomization({"friction": {"kind": "choice", "values": [1, 2], "weights": weights}}, PARAMETERS)


def test_a_normal_force_has_no_end_and_a_normal_mass_has():
    force = draw("cube.force_w", kind="normal", std=0.5)
    assert abs(force.std() - 0.5) < 0.01 and force.abs().max() > 1.5
    mass = draw("mass", kind="normal", std=0.2)
    assert (mass[:, 0] - 2).abs().max() <= 0.6 + 1e-6
    # of a normal distribution cut off at three standard deviations
    phi, inside = torch.exp(torch.tensor(-4.5)).item() / sqrt(2 * pi), erf(3 / sqrt(2))
    assert abs(mass[:, 0].std() / 0.2 - sqrt(1 - 6 * phi / inside)) < 0.02
    mass = draw("mass", kind="normal", std=1.0, low=1.5, high=1e9, mean=2.0)
    assert mass.min() >= 1.5
    share = (mass[:, 0] < 2).float().mean()  # of what is left above 1.5, half a standard deviation below the mean
    below, left = 0.5 * erf(0.5 / sqrt(2)), 0.5 + 0.5 * erf(0.5 / sqrt(2))
    assert abs(share - below / left) < 0.02


def test_choices_constants_and_single_components():
    found = draw("friction", kind="choice", values=[0.2, 0.5, 0.9], weights=[1, 0, 3])
    assert {round(x, 6) for x in found.unique().tolist()} == {0.2, 0.9}
    assert abs((found > 0.5).float().mean() - 0.75) < 0.02
    found = draw("kp", kind="choice", values=[[1, 2, 3], [4, 5, 6]])
    assert sorted(map(tuple, found.unique(dim=0).tolist())) == [(1, 2, 3), (4, 5, 6)]
    assert torch.equal(draw("kp", kind="constant", value=7)[5], torch.tensor([7.0, 7.0, 7.0]))
    found = draw("kp", components={"1-2": {"kind": "uniform", "low": 10, "high": 20}})
    assert torch.all(found[:, 0] == 100)
    uniform_on(found[:, 1], 10, 20)
    assert abs(torch.corrcoef(found[:, 1:].T)[0, 1]) < 0.05
    found = draw("kp", kind="scale", low=0.9, high=1.1, components={0: {"kind": "constant", "value": 5}})
    assert torch.all(found[:, 0] == 5)
    uniform_on(found[:, 2], 18, 22)


def test_rotations_turn_about_any_axis():
    found = draw("camera.wrist.turn", kind="rotation", high=0.1)
    angle = found.norm(dim=-1)
    uniform_on(angle, 0, 0.1 + 1e-6)
    axis = found / angle[:, None]
    torch.testing.assert_close(axis.T @ axis / N, torch.eye(3) / 3, atol=0.015, rtol=0)  # no direction is preferred
    torch.testing.assert_close(axis.mean(0), torch.zeros(3), atol=0.025, rtol=0)


def test_published_inertias_are_cut_too():
    parameters = {"inertia": plain(1.0, 1.0, 1.9, low=(0.8, 0.8, 1.8), high=(1.0, 1.0, 2.0))}
    spec = parse_randomization({"inertia": {"kind": "sources"}}, parameters)
    found = draw_parameters(parameters, spec, 1, torch.arange(500), torch.zeros(500, dtype=torch.long))["inertia"]
    assert (found[:, 2] <= found[:, 0] + found[:, 1] + 1e-6).all()
    assert torch.isclose(found[:, 2], found[:, 0] + found[:, 1]).any() and (found[:, 2] < 1.85).any()


def test_inertias_are_those_of_a_body_of_matter():
    found = draw("inertia", kind="scale", low=0.5, high=2.0)
    assert torch.all(found.sum(-1) - 2 * found.max(-1).values >= -1e-6)
    assert (found.sum(-1) - 2 * found.max(-1).values < 1e-6).any()  # some were not
    torch.testing.assert_close(possible_inertia(torch.tensor([[1.0, 2.0, 4.0, 1.0, 1.0, 1.0]])),
                               torch.tensor([[1.0, 2.0, 3.0, 1.0, 1.0, 1.0]]))


def test_draws_depend_on_the_episode_and_on_nothing_else():
    spec = {"*": {"kind": "normal", "std": 0.01, "mean": 0.5}, "kp": {"kind": "scale", "by": "log_uniform", "low": 0.5,
            "high": 2.0}, "command_delay": {"kind": "uniform", "low": 0, "high": 0.1, "when": "start"}}
    distributions = parse_randomization(spec, PARAMETERS)
    all_ = draw_parameters(PARAMETERS, distributions, 3, WORLDS[:50], FIRST[:50] + 4)
    order = torch.tensor([7, 3, 49])
    some = draw_parameters(PARAMETERS, distributions, 3, WORLDS[order], FIRST[order] + 4)
    for name, value in some.items():
        assert torch.equal(value, all_[name][order])
    alone = draw_parameters(PARAMETERS, {"kp": distributions["kp"]}, 3, WORLDS[:50], FIRST[:50] + 4)
    assert torch.equal(alone["kp"], all_["kp"])
    later = draw_parameters(PARAMETERS, distributions, 3, WORLDS[:50], FIRST[:50] + 5)
    assert torch.equal(later["command_delay"], all_["command_delay"])  # drawn once for the whole training
    assert not (later["kp"] == all_["kp"]).any()
    other = draw_parameters(PARAMETERS, distributions, 4, WORLDS[:50], FIRST[:50] + 4)
    assert not (other["kp"] == all_["kp"]).any() and len(all_["command_delay"].unique()) == 50


@pytest.mark.parametrize("spec", [
    {"kind": "sources", "scale": 0.3}, {"kind": "uniform", "low": 0.5, "high": 3}, {"kind": "normal", "std": 0.1},
    {"kind": "log_uniform", "low": 0.1, "high": 9}, {"kind": "scale", "by": "normal", "std": 0.2},
    {"kind": "add", "by": "normal", "std": 0.2}, {"kind": "choice", "values": [1, 2, [3, 4]]},
    {"kind": "constant", "value": [1, 2]}, {"kind": "normal", "std": 2, "low": 1.0, "high": 3.5},
    {"components": {1: {"kind": "scale", "low": 0.5, "high": 1.5}}}])
def test_draws_lie_within_their_bounds_and_reach_them(spec):
    dist = parse_randomization({"mass": spec}, PARAMETERS)["mass"]
    low, high = (torch.tensor(x) for x in bounds(dist, PARAMETERS["mass"], "mass"))
    found = draw("mass", **spec)
    assert torch.all(found >= low - 1e-6) and torch.all(found <= high + 1e-6)
    width = (high - low).clamp(min=1e-6)
    reach = 0.25 if "normal" in (spec.get("kind"), spec.get("by")) else 0.02
    assert torch.all((found.min(0).values - low) / width < reach)
    assert torch.all((high - found.max(0).values) / width < reach)


def test_quantiles_are_monotonic_from_end_to_end():
    u = torch.linspace(0, 1 - 2**-24, 101)[:, None].expand(-1, 2)
    for spec in ({"kind": "sources"}, {"kind": "normal", "std": 0.2}, {"kind": "scale", "by": "log_uniform", "low": 0.5,
                                                                       "high": 2}):
        dist = parse_randomization({"mass": spec}, PARAMETERS)["mass"]
        found = quantile(dist, PARAMETERS["mass"], u)
        low, high = bounds(dist, PARAMETERS["mass"], "mass")
        assert torch.all(found[1:] > found[:-1])
        torch.testing.assert_close(found[[0, -1]], torch.tensor([low, high]), rtol=1e-3, atol=0)


def test_patterns():
    found = parse_randomization({"cube.*": {"kind": "scale", "low": 0.5, "high": 2}, "cube.mass": None}, PARAMETERS)
    assert set(found) == {"cube.friction", "cube.force_w"}
    found = parse_randomization({"kp": {"kind": "constant", "value": 3}, "k*": {"kind": "constant", "value": 4}},
                                PARAMETERS)
    assert found["kp"].value == 3
    found = parse_randomization({"drawer.*": {"kind": "constant", "value": 1, "optional": True}}, PARAMETERS)
    assert not found


@pytest.mark.parametrize("name, spec, told", [
    ("masss", {"kind": "sources"}, "no parameter 'masss'; legal: mass, inertia"),
    ("door.*", {"kind": "sources"}, r"no parameter 'door\.\*'; legal"),
    ("mass", 3, "is a distribution such as"), ("mass", {"kind": "gauss"}, "'gauss'; legal: sources, uniform"),
    ("mass", {"kind": "uniform", "lo": 1}, "unknown keys.*'lo'.*legal with kind uniform: kind, shared"),
    ("mass", {"kind": "uniform", "low": 1}, "needs high"),
    ("mass", {"kind": "uniform", "low": -1, "high": 1}, "not negative, and uniform reaches -1"),
    ("mass", {"kind": "uniform", "low": 0, "high": 1}, "mass is greater than 0"),
    ("mass", {"kind": "normal", "std": 0.5}, "reaches -0.5"),
    ("mass", {"kind": "uniform", "low": 2, "high": 1}, "low <= high"),
    ("mass", {"kind": "sources", "scale": 1.5}, "0 <= scale <= 1"),
    ("kp", {"kind": "sources"}, "'sources' needs a parameter with a published range"),
    ("kp", {"kind": "uniform", "low": [1, 2], "high": 3}, "has 2 numbers; legal: one, or 3"),
    ("kp", {"kind": "scale", "low": -0.5, "high": 1}, "not negative, and scale reaches -50"),
    ("kp", {"kind": "scale", "by": "gauss"}, "'gauss'; legal: uniform, log_uniform, normal"),
    ("kp", {"kind": "add", "by": "log_uniform", "low": 1, "high": 2}, "legal with add: uniform, normal"),
    ("friction", {"kind": "log_uniform", "low": 0, "high": 1}, "needs low > 0"),
    ("friction", {"kind": "constant", "value": True}, "finite number, got True"),
    ("friction", {"kind": "constant", "value": float("nan")}, "finite number, got nan"),
    ("friction", {"kind": "choice", "values": []}, "at least one value"),
    ("friction", {"kind": "choice", "values": [1, 2], "weights": [1]}, "has 1 numbers; legal: one, or 2"),
    ("friction", {"kind": "choice", "values": [1, 2], "weights": [0, 0]}, "not all 0"),
    ("friction", {"kind": "rotation", "high": 1}, "a rotation has 3 components"),
    ("camera.wrist.turn", {"kind": "rotation", "high": 4}, "angles lie from 0 to pi"),
    ("color.table", {"kind": "uniform", "low": 0, "high": 2}, "a colour is 0 to 1"),
    ("kp", {"components": {3: {"kind": "constant", "value": 1}}}, "3 is not a place; legal: 0 to 2"),
    ("kp", {"components": {0: {"kind": "constant", "value": 1, "when": "start"}}}, "stand one level up"),
    ("mass", {"kind": "sources", "when": {"every_s": [1, 2]}}, "only disturbances change in mid-episode"),
    ("cube.force_w", {"kind": "normal", "std": 1, "when": {"every_s": [2, 1]}}, "0 < least <= most"),
    ("cube.force_w", {"kind": "normal", "std": 1, "when": "always"}, "legal: episode, start"),
])
def test_wrong_settings_are_told(name, spec, told):
    with pytest.raises(ValueError, match=told):
        parse_randomization({name: spec}, PARAMETERS)


# recorded before there was anything but sources, uniform and normal: trained policies depend on them; inertia since
# those that no body of matter has are cut
GOLDEN = {
    "mass": "2bb591b72d48e598", "inertia": "7dc33b4da5946049", "arm": "53022d2d005e2b7f",
    "torque_per_thrust": "1b6a617a49fd6fd1", "tau_up": "fa285458df23b1ae", "tau_down": "f74565d54e91e537",
    "drag": "bfac7bdd32280f59", "motor_gain": "66439399e59e017d", "rate_gain": "d8d84b85fd830c5b",
    "command_delay": "d97e5ee0b67b3a61", "force_w": "d4f542cc7f56d13e", "torque_b": "1ba09f3cafff2ea0"}
GOLDEN_OTHERS = {"wind_w": "1e89b0f444d1b010", "force_w": "2908c6231f728049"}


def digests(raw, seed):
    parameters = flight_parameters(load_robot("crazyflie"))
    worlds, episode = torch.tensor([0, 1, 7, 1000, 16383]), torch.tensor([0, 3, 5, 70000, 2])
    found = draw_parameters(parameters, parse_randomization(raw, parameters), seed, worlds, episode)
    return {k: hashlib.sha256(v.contiguous().numpy().tobytes()).hexdigest()[:16] for k, v in found.items()}


def test_draws_of_the_quadrotor_are_what_they_were():
    raw = yaml.safe_load((CONFIGS / "default.yaml").read_text())["parameters"]
    assert digests(raw, 5) == GOLDEN
    assert digests({"wind_w": {"kind": "uniform", "low": -1, "high": 2},
                    "force_w": {"kind": "normal", "std": 0.1, "shared": True}}, 2**40 + 3) == GOLDEN_OTHERS


@pytest.mark.parametrize("config, robot", [("arm", "franka"), ("hand", "leap_hand"), ("hand", "allegro_hand")])
@pytest.mark.parametrize("objects", [(), (box("cube", (0.03,) * 3, mass=0.1),)])
def test_shipped_sets_fit_their_robots_with_and_without_an_object(config, robot, objects):
    raw = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text())
    scene = Scene(load_robot(robot), objects)
    model = mjcf.build(scene, "joint_pos_cmd", 0.002)
    distributions = parse_randomization(raw["parameters"], model.parameters)
    found = draw_parameters(model.parameters, distributions, 1, WORLDS[:500], FIRST[:500])
    for name, value in found.items():
        check_values(model, name, value.numpy(), 500)
        assert len(value.reshape(500, -1).unique(dim=0)) == 500
    assert ("cube.mass" in found) == bool(objects)
    shapes = {name: spec.shape for name, spec in scene.signals.items()}
    sensors = Sensors(SensorConfig.parse(raw["sensors"], tuple(shapes)), shapes, 0.04)
    assert "noise.joint_pos" in sensors.noise and ("noise.cube_pos_w" in sensors.noise) == bool(objects)
