"""The step log: what a successor reads is what was written, and a full disk harms nobody."""

from __future__ import annotations

import numpy as np

from temporeal_bridge.controller.step_log import StepLog, StepLogReader


def test_a_step_log_gives_back_what_was_put_in(tmp_path):
    path = tmp_path / "own" / "t"
    log, rng = StepLog(path), np.random.default_rng(0)
    signals = [{"a": rng.normal(size=(2, 3)).astype(np.float32), "b": np.float32(k), "image": np.zeros(9, np.uint8)}
               for k in range(5)]
    reader = StepLogReader(path, 3, 7)
    assert not reader.ready()
    log.begin(3, 7, 1.5, 2, signals[0])
    assert reader.ready() and list(reader.steps()) == [] and not StepLogReader(path, 3, 8).ready()
    for step, row in zip((0, 1, 4), signals):  # two steps were missed before the last
        log.add(step, 0.1 * step, None if step == 1 else np.array([step, 2.5]), row)
    found = list(reader.steps())
    assert [(s.step, s.missed, s.due) for s in found] == [(0, 0, 0.0), (1, 0, 0.1), (4, 2, 0.4)]
    assert [s.command.tolist() for s in found[::2]] == [[0.0, 2.5], [4.0, 2.5]] and np.isnan(found[1].command).all()
    for step, row in zip(found, signals):
        assert set(step.signals) == {"a", "b"} and np.array_equal(step.signals["a"], row["a"])
        assert step.signals["b"] == row["b"] and step.signals["a"].dtype == np.float32
    log.add(4, 9.0, np.zeros(2), signals[3])  # somebody else's word on the same step
    log.add(5, 0.5, np.zeros(2), signals[4])
    assert [s.step for s in reader.steps()] == [5]
    reader.close()
    log.close()
    assert not path.exists()


def test_a_new_mission_has_a_new_step_log_and_the_old_one_can_be_read_to_its_end(tmp_path):
    path = tmp_path / "own" / "t"
    log, reader = StepLog(path), StepLogReader(path, 1, 0)
    log.begin(1, 0, 0.0, 1, {"a": np.zeros(1, np.float32)})
    log.add(0, 0.0, np.zeros(1), {"a": np.ones(1, np.float32)})
    assert reader.ready()
    log.begin(2, 5, 0.0, 1, {"a": np.zeros(1, np.float32)})
    log.add(0, 0.0, np.zeros(1), {"a": np.zeros(1, np.float32)})
    assert [float(s.signals["a"][0]) for s in reader.steps()] == [1.0] and StepLogReader(path, 2, 5).ready()
    assert path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0
    log.close()


def test_a_step_log_that_cannot_be_written_harms_nobody(tmp_path):
    path = tmp_path / "own" / "t"
    log = StepLog(path)
    log.begin(1, 0, 0.0, 1, {"a": np.zeros(1, np.float32)})

    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    log.file.close()
    log.file = Full()
    log.add(0, 0.0, np.zeros(1), {"a": np.zeros(1, np.float32)})
    log.add(1, 0.0, np.zeros(1), {"a": np.zeros(1, np.float32)})
    assert "No space left" in log.fault and not path.exists()
    log.begin(2, 0, 0.0, 1, {"a": np.zeros(1, np.float32)})
    assert log.fault == "" and path.exists()  # the next mission has one again
    log.close()
