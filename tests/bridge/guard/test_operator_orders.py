"""Which order of the operator repeats another, and when a reset may follow."""

from __future__ import annotations

from temporeal_bridge.guard.operator_orders import RESET_AFTER_S, OperatorOrders
from temporeal_bridge.guard.stop_actions.level import AGAIN_S


def test_an_order_counts_as_repeated_after_a_pause():
    orders = OperatorOrders()
    assert not orders.repeated(10.0)  # the first one
    assert not orders.repeated(10.0 + 0.9 * AGAIN_S)  # `ros2 topic pub` says it every second
    assert not orders.repeated(10.0 + 1.8 * AGAIN_S)
    assert orders.repeated(10.0 + 2.9 * AGAIN_S)
    orders.begin()
    assert not orders.repeated(100.0)  # of another mission


def test_a_button_that_stays_pressed_is_one_order():
    orders = OperatorOrders()
    assert not any(orders.pressed(10.0 + 0.1 * k) for k in range(100))
    orders.release(pressed=True)
    assert not orders.pressed(30.0)
    orders.release(pressed=False)
    assert orders.pressed(31.0)


def test_a_reset_may_follow_a_stop_after_a_while():
    orders = OperatorOrders()
    assert orders.reset_refusal(0.0) == ""
    orders.stop_heard = 10.0
    assert "a stop was heard 0.30 s ago" in orders.reset_refusal(10.3)
    assert orders.reset_refusal(10.0 + RESET_AFTER_S) == ""
