"""The kernels around MuJoCo Warp's step: take the command, guard the state, gather the signals. One thread per world
or number; nothing here waits for the host."""

from __future__ import annotations

import warp as wp

LIMIT = wp.constant(1e10)  # beyond this MuJoCo itself calls a state bad (mjMAXVAL)

FROM_QPOS, FROM_QVEL, FROM_SENSORS, FROM_NORM = 0, 1, 2, 3
"""Where a component of a signal comes from; the last: the length of three sensor numbers."""


@wp.kernel(enable_backward=False)
def take_command(
    given: wp.array2d[float], columns: wp.array[int], bad: wp.array[bool], ctrl: wp.array2d[float]
):  # fmt: skip
    """``given`` [N, U] to the columns of ``ctrl``; a world whose command is not finite turns bad and keeps its own."""
    world = wp.tid()
    for i in range(given.shape[1]):
        if not wp.isfinite(given[world, i]):
            bad[world] = True
    if bad[world]:
        return
    for i in range(given.shape[1]):
        ctrl[world, columns[i]] = given[world, i]


@wp.kernel(enable_backward=False)
def guard(
    qpos: wp.array2d[float], qvel: wp.array2d[float], found: wp.array[int],
    bad: wp.array[bool], flags: wp.array[int], counts: wp.array[int],
):  # fmt: skip
    """Turn worlds bad that left the numbers MuJoCo can work with; keep and count what overflowed in this step."""
    world = wp.tid()
    for i in range(qpos.shape[1]):
        if not (wp.abs(qpos[world, i]) < LIMIT):  # false for NaN, too
            bad[world] = True
    for i in range(qvel.shape[1]):
        if not (wp.abs(qvel[world, i]) < LIMIT):
            bad[world] = True
    new = found[world]
    if new == 0 or bad[world]:
        return
    flags[world] = flags[world] | new
    for kind in range(counts.shape[0]):  # one for each bit of mujoco_warp's OverflowType
        if (new >> kind) & 1 == 1:
            wp.atomic_add(counts, kind, 1)


@wp.kernel(enable_backward=False)
def put_back(bad: wp.array[bool], before: wp.array2d[float], now: wp.array2d[float]):
    """The rows of bad worlds as they were before the step."""
    world, i = wp.tid()
    if bad[world]:
        now[world, i] = before[world, i]


@wp.kernel(enable_backward=False)
def gather(
    qpos: wp.array2d[float], qvel: wp.array2d[float], sensors: wp.array2d[float], table: wp.array2d[int],
    flags: wp.array[bool], wanted: bool, out: wp.array[float],
):  # fmt: skip
    """Signals of the worlds whose flag is ``wanted``; a row of ``table``: source, column, start, width, component."""
    world, row = wp.tid()
    if flags[world] != wanted:
        return
    source, column = table[row, 0], table[row, 1]
    value = 0.0
    if source == 0:
        value = qpos[world, column]
    elif source == 1:
        value = qvel[world, column]
    elif source == 2:
        value = sensors[world, column]
    else:
        force = wp.vec3(sensors[world, column], sensors[world, column + 1], sensors[world, column + 2])
        value = wp.length(force)
    out[table[row, 2] + world * table[row, 3] + table[row, 4]] = value
