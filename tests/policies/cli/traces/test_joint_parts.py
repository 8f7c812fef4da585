"""Joint states that come in several messages: a recording gives them the time that the nodes give them."""

import numpy as np
import pytest

from temporeal.policies.cli.traces.bags import of_state
from temporeal.policies.cli.traces.messages import read_topic, tables
from temporeal.robots.spec import load_robot

bridge = pytest.importorskip("temporeal_bridge.interface.loading")
MS = 1_000_000


def parts(stamps: list[int], names: list[str]) -> list[tuple[int, object]]:
    """(receipt [ns], message): the first joints at each of the ``stamps`` [ns], the others 1 ms after; 9 ms later here.
    """
    from temporeal_bridge.transports import messages

    half, out = len(names) // 2, []
    for stamp in stamps:
        for late, some in ((0, names[:half]), (MS, names[half:])):
            message = messages.record("sensor_msgs/msg/JointState")(
                header=messages.header(stamp + late if stamps[-1] else 0), name=some, position=np.zeros(len(some)),
                velocity=np.zeros(len(some)), effort=np.zeros(0))
            out.append((10**9 + stamp + late + 9 * MS, message))
    return out


@pytest.mark.parametrize(("stamped", "expected"), [(True, [0.0, 0.02, 0.04]), (False, [0.01, 0.03, 0.05])])
def test_a_state_has_the_oldest_stamp_of_its_parts_else_the_receipt_of_the_last(
    stamped: bool, expected: list[float]
) -> None:
    robot = load_robot("franka")
    state = next(each for each in bridge.load_interface(robot).states if each.codec == "joint_state")
    topic = of_state("/joint_states", state, {}, "")
    rows = parts([20 * MS, 40 * MS, 60 * MS], list(state.options["joints"]))
    if not stamped:
        for _, message in rows:
            message.header.stamp.sec = message.header.stamp.nanosec = 0  # type: ignore[attr-defined]
    clock, samples = read_topic(topic, iter(rows))
    start = 20 * MS + (0 if stamped else 10**9)
    found = [table for table in tables(topic, clock, samples, start, "bag") if "joint_pos" in table.schema]
    assert found[0].times == pytest.approx(expected)
