"""The sensor model: statistics of errors, age and rate of samples, losses; compiled and plain; attitudes."""

import hashlib
from math import exp, sqrt
from pathlib import Path

import pytest
import torch
import yaml

from temporeal.sim.compiler import vectorize as kernels
from temporeal.sim.randomization.sensor_config import SensorConfig
from temporeal.sim.randomization.sensors import Sensors, perturb

N = 4000
DT = 0.02
SHAPES = {"base_pos_w": (3,), "base_quat_w": (4,), "height": ()}
WORLDS, FIRST = torch.arange(N), torch.zeros(N, dtype=torch.int64)


def truth(value=0.0, n=N):
    quat = torch.zeros(n, 4)
    quat[:, 0] = 1.0
    return {"base_pos_w": torch.full((n, 3), float(value)), "base_quat_w": quat, "height": torch.full((n,), 1.0)}


class Worlds:
    """Sensors and the rows that a caller keeps for them, as the environment does."""

    def __init__(self, n=N, seed=5, **kw):
        self.sensors, self.n, self.seed = Sensors(SensorConfig.parse(kw, tuple(SHAPES)), SHAPES, DT), n, seed
        self.rows = self.sensors.draw_episode(seed, WORLDS[:n], FIRST[:n])
        self.noise(0)

    def noise(self, step):
        found = {name: torch.zeros(self.n, *shape) for name, shape in self.sensors.noise.items()}
        self.sensors.draw_noise(self.seed, WORLDS[: self.n], FIRST[: self.n], FIRST[: self.n] + step, found)
        self.rows |= found

    def run(self, values, signal="base_pos_w"):
        """The measurements [T, N, ...] of true samples with these values."""
        out = []
        for t, value in enumerate(values):
            self.noise(t)
            step = self.sensors.first if t == 0 else self.sensors.sample
            measured, kept = step(truth(value, self.n), self.rows)
            self.rows |= kept
            out.append(measured[signal])
        return torch.stack(out)


def test_noise_is_white_and_bias_is_constant():
    a, b = Worlds(noise={"base_pos_w": 0.1}).run([0, 0])
    assert abs(a.std() - 0.1) < 0.005 and abs((a * b).mean()) < 0.001  # sd of the mean product: 0.01/sqrt(12000)=1e-4
    a, b = Worlds(bias={"base_pos_w": 0.1}).run([0, 0])
    assert torch.equal(a, b) and abs(a.std() - 0.1) < 0.005
    assert abs(Worlds(noise={"base_pos_w": 0.3}, bias={"base_pos_w": 0.4}).run([0])[0].std() - 0.5) < 0.01


def test_each_component_may_have_its_own():
    found = Worlds(noise={"base_pos_w": [0.1, 0.0, 0.3]}).run([0])[0]
    assert torch.all(found[:, 1] == 0)
    torch.testing.assert_close(found.std(0), torch.tensor([0.1, 0.0, 0.3]), atol=0.01, rtol=0)
    with pytest.raises(ValueError, match="noise.base_pos_w has 2 numbers; legal: one, or 3"):
        Worlds(noise={"base_pos_w": [0.1, 0.2]})


def test_scale_error_is_relative_and_constant():
    a, b = Worlds(scale={"base_pos_w": 0.02}).run([1.0, 5.0])
    assert abs(a.std() - 0.02) < 0.001
    torch.testing.assert_close(b, 5 * a)


def test_drift_is_a_random_walk_or_stationary():
    steps = 51
    walk = Worlds(drift={"base_pos_w": {"std": 0.3}}).run([0] * steps)
    assert torch.all(walk[0] == 0)
    assert abs(walk[-1].std() - 0.3) < 0.01  # after 50 steps of 0.02 s: one second
    assert abs(walk[13].std() - 0.3 * sqrt(13 * DT)) < 0.01
    kept = Worlds(drift={"base_pos_w": {"std": 0.3, "time_s": 0.4}}).run([0] * steps)
    for t in (0, 10, 50):
        assert abs(kept[t].std() - 0.3) < 0.01
    assert abs((kept[10] * kept[30]).mean() / 0.09 - exp(-20 * DT / 0.4)) < 0.04


def test_readings_are_quantized_and_end():
    found = Worlds(quantum={"base_pos_w": 0.5}, range={"base_pos_w": [-1, 2]}).run([0.2, 0.3, 1.2, 9.0, -7.0])
    assert found[:, 0, 0].tolist() == [0.0, 0.5, 1.0, 2.0, -1.0]


def test_delay_gives_each_world_one_age_and_the_start_is_its_own_past():
    s = Worlds(delay_steps=2)
    found = s.run(range(6))
    for t in range(6):
        assert torch.equal(found[t, :, 0], (t - s.rows["delay"]).clamp(min=0))
    assert sorted(s.rows["delay"].unique().tolist()) == [0, 1, 2]


def test_a_group_has_a_latency_of_its_own():
    s = Worlds(delay_steps=1, groups={"camera": {"signals": ["base_pos_w"], "delay_steps": [2, 4]}})
    assert not [name for name in s.sensors.past if name.startswith("past.2") and "pos" not in name]
    found = s.run(range(8))
    assert sorted(s.rows["delay.camera"].unique().tolist()) == [2, 3, 4]
    for t in range(8):
        assert torch.equal(found[t, :, 0], (t - s.rows["delay.camera"]).clamp(min=0))


def test_jitter_never_goes_back_in_time_and_repeats_what_was_delivered():
    s = Worlds(groups={"camera": {"signals": ["base_pos_w"], "delay_steps": [1, 1], "jitter_steps": 2}},
               noise={"base_pos_w": 1e-3})
    found = s.run([float(t) for t in range(40)])[..., 0]
    sample, age = found.round(), torch.arange(40.0)[:, None] - found.round()
    assert torch.all(sample[1:] >= sample[:-1])
    assert sorted(age[5:].unique().tolist()) == [1, 2, 3]
    later = found[5:]  # what was before the start is like the first sample, and measured anew
    again = sample[6:] == sample[5:-1]
    assert torch.equal(later[1:][again], later[:-1][again])  # with the noise it had
    # wanted ages are 1, 2, 3 with equal chances, cut to one more than before: a Markov chain
    shares = [(age[10:] == a).float().mean().item() for a in (1, 2, 3)]
    p = torch.tensor([[1 / 3, 2 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]])
    stationary = torch.linalg.matrix_power(p, 50)[0]
    torch.testing.assert_close(torch.tensor(shares), stationary, atol=0.01, rtol=0)


@pytest.mark.parametrize("rate", [25.0, 50 / 3, 20.0, 50.0])
def test_a_slow_sensor_is_held_between_its_samples(rate):
    found = Worlds(groups={"camera": {"signals": ["base_pos_w"], "rate_hz": rate}}).run(
        [float(t) for t in range(101)])[..., 0]
    new = (found[1:] != found[:-1])
    now = torch.arange(1.0, 101)[:, None].expand(-1, N)
    assert torch.equal(found[1:][new], now[new])
    assert torch.all((new.sum(0) - 100 * rate * DT).abs() <= 1)
    gaps = (torch.arange(101.0)[:, None] - found)[10:]
    assert gaps.max() < 1 / (rate * DT)
    if rate == 25.0:  # half of the worlds at even, half at odd steps
        assert abs(new[0].float().mean() - 0.5) < 0.03


@pytest.mark.parametrize("burst", [None, 4.0])
def test_lost_messages_leave_the_last_one(burst):
    group = {"signals": ["base_pos_w"], "dropout": 0.2, "burst": burst}
    found = Worlds(groups={"camera": group}).run([float(t) for t in range(60)])[..., 0]
    lost = found[20:] != torch.arange(20.0, 60)[:, None]
    assert abs(lost.float().mean() - 0.2) < 0.01
    begins = (lost[1:] & ~lost[:-1]).float().sum() / lost[1:].float().sum()
    assert abs(begins - (0.8 if burst is None else 0.25)) < 0.02  # one over the mean length of a run
    assert torch.all((found[1:] == found[:-1]) == (found[1:] != torch.arange(1.0, 60)[:, None]))


def test_a_sensor_freezes_for_good_or_for_a_while():
    found = Worlds(stuck={"base_pos_w": 0.02}).run([float(t) for t in range(51)])[..., 0]
    assert abs((found[-1] == 50).float().mean() - 0.98**50) < 0.03
    frozen = found[1:] == found[:-1]
    assert torch.all(frozen[1:] >= frozen[:-1])
    found = Worlds(stuck={"base_pos_w": {"chance": 0.1, "steps": 5}}).run([float(t) for t in range(100)])[..., 0]
    share = (found[40:] != torch.arange(40.0, 100)[:, None]).float().mean()
    assert abs(share - 0.1 / (0.1 + 0.2)) < 0.01  # begins with 0.1, ends with 1/5


EVERYTHING = {
    "noise": {"base_pos_w": [0.01, 0.02, 0.03], "height": 0.01}, "bias": {"height": 0.05},
    "scale": {"base_pos_w": 0.01}, "drift": {"base_pos_w": {"std": 0.1, "time_s": 1.0}, "height": {"std": 0.1}},
    "quantum": {"height": 0.004}, "range": {"height": [-0.5, 1.5]}, "stuck": {"height": {"chance": 0.05, "steps": 3}},
    "delay_steps": 2,
    "groups": {"camera": {"signals": ["base_pos_w"], "delay_steps": [1, 2], "jitter_steps": 1, "rate_hz": 30,
                          "dropout": 0.1, "burst": 2}}}


def stepped(kind, n, settings, steps=25, signals=("base_pos_w", "height")):
    """Measurements [T, n, 4] by a compiled or a plain function of rows, as the environment runs them."""
    shapes = {name: SHAPES[name] for name in signals}
    s = Sensors(SensorConfig.parse(settings, tuple(shapes)), shapes, DT)
    columns = {**s.drawn, **s.noise, **s.past}
    given = {f"truth.{k}": v for k, v in shapes.items()}
    places = {**given, **{f"out.{k}": v for k, v in shapes.items()}}

    def function(of):
        def call(x):
            found, kept = of({k: x[f"truth.{k}"] for k in shapes}, x)
            return {**kept, **{f"out.{k}": v for k, v in found.items()}}
        return call

    step = {0: kind(function(s.first), columns, places, (*columns, *given)),
            1: kind(function(s.sample), columns, places, (*columns, *given))}
    table = kernels.table(columns, n)
    column = kernels.views(table, columns, n)
    for name, value in s.draw_episode(5, WORLDS[:n], FIRST[:n]).items():
        column[name].copy_(value)
    out, generator = [], torch.Generator().manual_seed(1)
    for t in range(steps):
        s.draw_noise(5, WORLDS[:n], FIRST[:n], FIRST[:n] + t, column)
        values = {f"truth.{k}": torch.randn(40, *v, generator=generator)[:n].contiguous() for k, v in shapes.items()}
        places = {**values, **{f"out.{k}": torch.zeros(n, *v) for k, v in shapes.items()}}
        step[min(t, 1)](table, places)
        out.append(torch.cat([places[f"out.{k}"].reshape(n, -1) for k in shapes], -1))
    return torch.stack(out)


def test_compiled_and_plain_agree_exactly_and_worlds_do_not_know_of_each_other():
    plain = stepped(kernels.Plain, 37, EVERYTHING)
    assert torch.equal(stepped(kernels.Kernel, 37, EVERYTHING), plain)
    assert torch.equal(stepped(kernels.Kernel, 20, EVERYTHING), plain[:, :20])
    assert len(plain.unique()) > 200


def test_attitudes_compiled_and_plain():
    settings = {"noise": {"base_quat_w": 0.02}, "bias": {"base_quat_w": 0.01}, "drift": {"base_quat_w": {"std": 0.05}},
                "stuck": {"base_quat_w": 0.01}, "groups": {"imu": {"signals": "base_quat_w", "dropout": 0.1}}}
    signals = ("base_quat_w",)
    plain = stepped(kernels.Plain, 33, settings, signals=signals)
    torch.testing.assert_close(stepped(kernels.Kernel, 33, settings, signals=signals), plain, atol=1e-6, rtol=1e-5)


def test_nothing_is_kept_for_what_is_off():
    s = Sensors(SensorConfig(), SHAPES)
    assert not s.drawn and not s.noise and not s.past
    s = Sensors(SensorConfig.parse({"stuck": {"height": 0.1}}, tuple(SHAPES)), SHAPES)
    assert set(s.past) == {"frozen.height", "hold.height"} and not s.drawn and set(s.noise) == {"stuck.height"}


def test_attitude_noise_is_a_small_rotation():
    quat = torch.nn.functional.normalize(torch.randn(N, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    delta = torch.zeros(N, 3)
    delta[:, 1] = 0.01
    turned = perturb("base_quat_w", quat, delta)
    torch.testing.assert_close(turned.norm(dim=-1), torch.ones(N))
    dot = (turned * quat).sum(-1).clamp(max=1.0)
    torch.testing.assert_close(2 * torch.acos(dot.double()), torch.full((N,), 0.01).double(), atol=2e-4, rtol=0)


GOLDEN = {  # recorded before there was anything but noise, bias and one delay: trained policies depend on them
    "bias.base_quat_w": "a83a4e787987609a", "delay": "87b8f3af19ab95f0", "noise.base_pos_w": "bef8e2bc73e4c1b5",
    "noise.base_quat_w": "73b5b3b0bd867522", "noise.base_vel_w": "36d6d1d083002a5c",
    "noise.base_ang_vel_b": "338c64aa8b767428", "noise.height": "82d383f2b8efb5c9"}


def test_draws_of_the_quadrotor_are_what_they_were():
    settings = yaml.safe_load((Path(__file__).parents[3] / "configs/randomize/default.yaml").read_text())["sensors"]
    shapes = {"base_pos_w": (3,), "base_quat_w": (4,), "base_vel_w": (3,), "base_ang_vel_b": (3,), "height": ()}
    s = Sensors(SensorConfig.parse(settings, tuple(shapes)), shapes)
    worlds, episode = torch.tensor([0, 1, 7, 1000, 16383]), torch.tensor([0, 3, 5, 70000, 2])
    found = s.draw_episode(5, worlds, episode) | {k: torch.zeros(5, *v) for k, v in s.noise.items()}
    s.draw_noise(5, worlds, episode, torch.tensor([0, 1, 2, 3, 499]), found)
    assert {k: hashlib.sha256(v.contiguous().numpy().tobytes()).hexdigest()[:16] for k, v in found.items()} == GOLDEN


@pytest.mark.parametrize("raw, told", [
    ({"noize": {}}, "unknown keys .*noize.*legal: noise, bias, scale"),
    ({"noise": {"base_pos": 0.1}}, "unknown signal 'base_pos'; legal: base_pos_w"),
    ({"noise": {"base_pos_w": -1}}, ">= 0, got -1"),
    ({"noise": {"base_pos_w": float("nan")}}, ">= 0, got nan"),
    ({"scale": {"base_quat_w": 0.1}}, "is an attitude; legal for it: noise, bias, drift, stuck"),
    ({"range": {"height": [2, 1]}}, "at least the least, 2"),
    ({"drift": {"height": 0.1}}, "a mapping with std; legal keys: std, time_s"),
    ({"delay_steps": 1.5}, "whole number of control steps"),
    ({"delay_steps": -1}, ">= 0, got -1"),
    ({"groups": {"a": {"delay_steps": 1}}}, "a mapping with signals"),
    ({"groups": {"a": {"signals": ["cam"]}}}, "unknown signal 'cam'"),
    ({"groups": {"a": {"signals": ["height"], "delay_steps": [3, 1]}}}, r"\[least, greatest\], got \[3, 1\]"),
    ({"groups": {"a": {"signals": ["height"]}, "b": {"signals": ["*"]}}}, "'height' is in 'a' and in 'b'"),
    ({"groups": {"a": {"signals": ["height"], "dropout": 0.9, "burst": 2}}}, "at most 0.666"),
    ({"groups": {"a": {"signals": ["height"], "rate_hz": 51}}}, "at most the control rate, 50 Hz"),
    ({"stuck": {"height": {"chance": 2}}}, "a probability is 0 to 1, got 2"),
])
def test_wrong_settings_are_told(raw, told):
    with pytest.raises(ValueError, match=told):
        Sensors(SensorConfig.parse(raw, tuple(SHAPES)), SHAPES, DT)


def test_patterns_name_signals_and_null_takes_one_out():
    config = SensorConfig.parse({"noise": {"base_*": 0.1, "base_quat_w": None}}, tuple(SHAPES))
    assert config.noise == {"base_pos_w": 0.1}
    config = SensorConfig.parse({"bias": {"cube_*": {"std": 0.1, "optional": True}, "height": {"std": 0.2}},
                                 "groups": {"a": {"signals": ["cube_*"], "optional": True}}}, tuple(SHAPES))
    assert config.bias == {"height": 0.2} and config.groups["a"].signals == ()


@pytest.mark.parametrize(("raw", "told"), [
    ({"delay_steps": 51}, r"sensors.delay_steps: a sample is at most 50 control steps old, got 51"),
    ({"delay_steps": 10_000}, "rate_hz"),
    ({"groups": {"a": {"signals": ["height"], "delay_steps": [0, 51]}}}, "groups.a: delay_steps and jitter_steps"),
    ({"groups": {"a": {"signals": ["height"], "delay_steps": 30, "jitter_steps": 30}}}, "got 60")])
def test_delays_that_cost_too_much_are_refused(raw, told):
    with pytest.raises(ValueError, match=told):
        SensorConfig.parse(raw, ("height",))


def test_the_longest_delay_is_taken():
    config = SensorConfig.parse({"delay_steps": 50}, ("height",))
    assert len(Sensors(config, {"height": ()}).past) == 50
