"""What the nodes of one mission have in common: the record of a command."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal_bridge.mission import GREATEST, CommandRecord, check_numbers, mission_status
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import Received

HEADER = "std_msgs/msg/Header"


def heard(data):
    return mission_status(Received("mission", HEADER, data, 0.0))


def test_what_is_said_of_a_mission_is_understood_and_garbage_is_not():
    stamp = 3_000_000_007
    assert heard(messages.encode(HEADER, messages.header(stamp, "active 12"))) == ("active", 12, stamp)
    for frame in ("", "active", "active one"):
        assert heard(messages.encode(HEADER, messages.header(stamp, frame))) is None
    whole = messages.encode(HEADER, messages.header(stamp, "active 12"))
    assert heard(b"") is None and heard(b"garbled") is None and heard(whole[:11]) is None


def test_a_record_holds_every_number_that_a_mission_may_have():
    for number in (0, GREATEST - 1, GREATEST):
        check_numbers("seed", number)
        record = CommandRecord(number, 1, 0.0, 1.0, 1.0, np.zeros(2), np.zeros(2), [7])
        assert CommandRecord.of(record.row()).flight == number
    assert int(float(GREATEST + 1)) != GREATEST + 1
    check_numbers("seed", GREATEST - 2, 3)
    with pytest.raises(ValueError, match=r"from 0 to 2\^53 - 2, for 3 count up from it; got 9007"):
        check_numbers("seed", GREATEST - 1, 3)


@pytest.mark.parametrize("marks", [[], [7], [7, 4_294_967_295]])
def test_a_record_says_again_what_it_was_made_of(marks):
    told = CommandRecord(3, 17, 0.004, 1.25, 1.2503, np.array([0.1, -2.0]), np.array([0.1, -2.5]), marks)
    row = told.row()
    assert row.tolist() == [3, 17, 0.004, 1.25, 1.2503, 2, 0.1, -2.0, 0.1, -2.5, *marks]
    again = CommandRecord.of(row)
    assert (again.flight, again.step, again.age, again.since, again.left) == (3, 17, 0.004, 1.25, 1.2503)
    assert again.marks == marks
    assert again.sent.tolist() == [0.1, -2.0] and again.proposed.tolist() == [0.1, -2.5]


@pytest.mark.parametrize("row", [
    [], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 2, 0.1, 0.2], [1, 2, 3, 4, 5, -1, 6],
    [1, 2, 0.004, 1.25, 3, 1.1, 0.2, 0.3, 1.1, 0.2, 0.3, 77]])  # the last: of before there was `left`, 3 components
def test_other_numbers_are_no_record(row):
    with pytest.raises(ValueError, match=f"{len(row)} numbers are no record of a command"):
        CommandRecord.of(row)
