"""Models of flights: the ensemble in torch is the one in numpy, flights in torch are the simulator's, and what a robot
does beyond its physics is found."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from temporeal.policies.training.flight_models import learned, lstm, residual, rollout
from temporeal.policies.training.flight_models.descent import Descent, descend
from temporeal.robots.spec import load_robot
from temporeal.sim.identification import synthetic
from temporeal.sim.identification.parameters import simulator_parameters
from temporeal.sim.identification.shooting import POSITION, QUAT, RATES, VELOCITY
from temporeal.sim.identification.validation import predictors
from temporeal.sim.identification.validation.model import Model
from temporeal.sim.identification.validation.stretches import errors, sizes, stretches
from temporeal.sim.physics.quadrotor.residual import ensemble as reference

ROBOT = load_robot("crazyflie")
QUADRATIC = 0.5
"""1/m: a drag that the physics lacks, per mass."""


class Dragged(synthetic.Gust):
    """Gusts, and quadratic drag."""

    def blow(self, backend, every) -> None:
        super().blow(backend, every)
        velocity = backend.signals()["base_vel_w"].double().numpy()
        mass, speed = self.size_f / synthetic.GUST_ACCELERATION, np.linalg.norm(velocity, axis=1, keepdims=True)
        self.force = self.force - QUADRATIC * mass * speed * velocity
        backend.set_params(every, {"force_w": torch.from_numpy(self.force).float()})


PREDICTED = np.r_[RATES, VELOCITY, QUAT, POSITION]


@cache
def flight() -> synthetic.Flights:
    return synthetic.flights(ROBOT, 1, 6.0, 3)


def known(flights: synthetic.Flights, robot: int = 0) -> Model:
    """The truth as what was identified."""
    truth = flights.truth[robot]
    under = {name: {key: [float(x) for x in value[0]] for key in ("value", "low", "high")}
             for name, value in simulator_parameters(flights.asked, truth[None]).items()}
    return Model(ROBOT.name, flights.asked, truth, 1e-12 * np.eye(len(truth)), 3.8, {"simulator": under, "logs": []})


def test_the_network_in_torch_is_the_reference() -> None:
    rng = np.random.default_rng(0)
    net = residual.Network(residual.Shape(3, 4), rng.normal(size=10), np.tril(rng.normal(size=(10, 10))), 3.0, 60.0,
                           np.arange(1.0, 7.0), seed=1)
    with torch.no_grad():
        for each in net.parameters():
            each.copy_(torch.from_numpy(rng.normal(size=each.shape)))
    x = rng.normal(size=(50, 10))
    with torch.no_grad():
        mine = net(torch.from_numpy(x).float().expand(3, -1, -1)).numpy()
    assert np.abs(mine).max() > 0.5
    np.testing.assert_allclose(mine, reference.accelerations(net.ensemble(), x), atol=1e-4)


def test_a_flight_in_torch_is_the_simulators() -> None:
    model, record = known(flight()), flight().records[0]
    where = stretches(record, 0.5)
    data = rollout.flights([where])
    spin = residual.rotors(where, model.best, 3.8)
    under = residual.physics_of(model.best, residual.along(where, spin))
    net = residual.Network(residual.Shape(1, 2), np.zeros(10), np.eye(10), 1.0, 2.0, np.ones(6), 0)
    bias = torch.from_numpy(model.best.rate_bias[0]).float()
    found = rollout.rows_of(rollout.flown(data, net.model(under, False), 1, bias), bias)
    block = rollout.block_of(record)[where.at]
    wanted = predictors.simulator(model.best, 3.8)(where)[block[:, 0] == block[:, -1]]
    assert np.abs(found[..., POSITION] - wanted[..., POSITION]).max() < 0.004
    assert np.abs(found[..., :3] - wanted[..., :3]).max() < 0.05


def test_it_ends_where_held_out_blocks_are_best(monkeypatch) -> None:
    """Training blocks pull to 1, held-out ones to 0: it ends where it began."""
    none = torch.zeros(40, dtype=torch.long)
    data = rollout.Flights(0.01, torch.zeros(40, 2, 16), torch.zeros(40, 1, 4), none, torch.arange(40) % 5 == 0,
                           torch.arange(40), 0)
    value = torch.zeros(2, 1, requires_grad=True)

    def loss(which: rollout.Flights) -> torch.Tensor:
        target = (~which.held_out).float()
        return (value - target).square()

    found = descend([value], loss, data, 2, Descent(updates=60))
    assert value.abs().max() == 0 and (found.after == 0).all()
    ends = []
    for spent in (0.0, 0.9):  # time is no part of what is learned, until it stops it
        clock = iter([0.0] + [spent] * 99)
        monkeypatch.setattr(time, "process_time", lambda clock=clock: next(clock))
        value.data.zero_()
        descend([value], lambda which: (value - 1).square() + 0 * which.block, data, 2, Descent(40, seconds=1.0))
        ends.append(value.detach().clone())
    assert torch.equal(*ends) and ends[0].min() > 0
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="0 of 60 updates"):
        assert descend([value], loss, data, 2, Descent(updates=60, seconds=1e-9)).updates == 0


def test_flights_without_motion_capture_teach_nothing() -> None:
    record = flight().records[0]
    blind = type(record)(**{**vars(record), "quat": None, "velocity": None, "position": None})
    with pytest.raises(ValueError, match="motion capture"):
        residual.trained([blind], known(flight()).best, 3.8)
    with pytest.raises(ValueError, match="motion capture"):
        lstm.trained([blind])


def test_an_lstm_is_told_of_battery_and_accelerometer_and_of_no_later_motion() -> None:
    record = synthetic.flights(ROBOT, 1, 25.0, 3).records[0]
    record = replace(record, voltage=np.linspace(4.0, 3.6, len(record.command)))
    predict = lstm.trained([record], Descent(updates=2))
    where = stretches(record, 0.2)
    first = replace(where, begin=where.begin[:1])
    start, after = first.begin[0], np.arange(len(record.command)) > first.begin[0]

    def said(**values: np.ndarray) -> np.ndarray:
        return predict(replace(first, record=replace(record, **values)))[..., PREDICTED]

    known = predict(first)[..., PREDICTED]
    for name in ("position", "velocity", "quat", "rates", "force"):
        values = getattr(record, name)
        np.testing.assert_array_equal(said(**{name: np.where(after[:, None], np.nan, values)}), known)
    for place, low in ((start, True), (start - 10, True), (start - 30, False)):  # at the start, and 0.2 s before
        force = record.force.copy()
        force[place] += 5.0
        assert np.array_equal(said(force=force), known) is not low
    assert not np.array_equal(said(voltage=np.where(after, 3.0, record.voltage)), known)
    blind = lstm.trained([replace(record, voltage=None)], Descent(updates=2))
    assert np.isfinite(blind(first)[..., POSITION]).all()


@pytest.mark.slow
def test_drag_that_the_physics_lacks_is_found_on_flights_that_were_held_out(monkeypatch) -> None:
    monkeypatch.setattr(synthetic, "Gust", Dragged)
    flights = synthetic.flights(ROBOT, 1, 60.0, 3)
    record, model = flights.records[0], known(flights)
    first = np.arange(len(record.usable)) < 2 * len(record.usable) // 3
    found = learned.learned(model, [record.only(first)], False, Descent(updates=120))
    assert found.training["held_out_after"] < 0.8 * found.training["held_out_before"]
    later = stretches(record.only(~first), 0.5)
    error = {name: np.sqrt((sizes(errors(predictors.simulator(model.best, 3.8, net)(later), later.measured()[:, 1:])[
        "velocity"])[:, -1] ** 2).mean()) for name, net in (("without", None), ("with", found.ensemble))}
    assert error["with"] ** 2 < 0.5 * error["without"] ** 2  # the rest is of gusts and of sensors
    spin = residual.rotors(later, model.best, 3.8)
    x = residual.inputs(record.only(~first), spin, model.best)
    wanted = -QUADRATIC * np.linalg.norm(x[:, :3], axis=1, keepdims=True) * x[:, :3]
    said = reference.accelerations(found.ensemble, x).mean(0)[:, :3]
    assert ((said - wanted) ** 2).sum() < 0.3 * (wanted**2).sum()
    spread = reference.accelerations(found.ensemble, x).std(0)[:, :3]
    assert spread.mean() > 0.01
