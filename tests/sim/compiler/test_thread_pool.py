"""Threads that share chunks: every item once, whoever is there; asleep, absent and dismissed threads."""

import gc
import threading
import time

import numpy as np
import pytest
from numba import njit

from temporeal.sim.compiler import thread_pool
from temporeal.sim.compiler.thread_pool import AWAKE, JOB, LINE, OWN, SIZE, Crew


@njit(nogil=True)
def drive(box, seat, times, seats):
    """Adds the job's number to ``times`` of each item and notes who did it."""
    call = thread_pool.next_call(box, seat, 0)
    while call:
        chunk = thread_pool.claim(box, call, seat)
        while chunk >= 0:
            for item in range(chunk * box[SIZE], min(chunk * box[SIZE] + box[SIZE], box[JOB])):
                times[item] += box[JOB + 1]
                seats[item] = seat
            thread_pool.finish(box)
            chunk = thread_pool.claim(box, call, seat)
        call = thread_pool.next_call(box, seat, call)


def made(threads):
    times, seats = np.zeros(5000, np.int64), np.full(5000, -1)
    return Crew(threads, drive, (times, seats)), times, seats


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_item_is_worked_on_once_per_call(threads):
    team, times, seats = made(threads)
    expected = np.zeros_like(times)
    for call in range(300):
        items = (1, 31, 33, 500, 5000, 4999)[call % 6]
        team(items, items, call)
        expected[:items] += call
        assert (times == expected).all()
    assert seats.max() < threads


def test_threads_that_fell_asleep_are_woken():
    team, times, seats = made(2)
    team(5000, 5000, 1)
    deadline = time.monotonic() + 10
    while team.box[OWN + LINE + AWAKE]:
        assert time.monotonic() < deadline, "still watching"
        time.sleep(0.01)
    helped = False
    while not helped:
        assert time.monotonic() < deadline, "never came"
        seats[:] = -1
        team(5000, 5000, 1)
        helped = bool((seats == 1).any())
    assert (times == times[0]).all()


def test_the_caller_does_the_work_of_threads_that_are_not_there():
    team, times, seats = made(3)
    team._wake = lambda: None  # as in a forked process: nobody is there to be woken
    team(5000, 5000, 2)
    assert (times == 2).all() and (seats == 0).all()


def test_few_items_stay_with_the_caller():
    before = set(threading.enumerate())
    team, _, seats = made(4)
    team(thread_pool.SMALLEST, thread_pool.SMALLEST, 1)
    assert (seats[: thread_pool.SMALLEST] == 0).all()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("asleep", [False, True])
def test_threads_end_with_their_crew(asleep):
    team, _, _ = made(3)
    before = set(threading.enumerate())
    team(5000, 5000, 1)
    workers = set(threading.enumerate()) - before
    assert len(workers) == 2
    if asleep:
        time.sleep(0.3)
    del team
    gc.collect()
    for worker in workers:
        worker.join(10)
        assert not worker.is_alive()


def test_a_negative_number_of_threads_is_refused():
    with pytest.raises(ValueError, match="threads is -1; it must be 0"):
        made(-1)


def test_a_dismissed_crew_refuses_work_instead_of_waiting_for_ever():
    team, times, _ = made(2)
    team(500, 500, 1)
    team.close()
    with pytest.raises(RuntimeError, match="closed"):
        team(500, 500, 1)
    assert times[:500].sum() == 500 and team.close() is None
