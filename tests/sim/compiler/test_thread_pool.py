"""Threads that share chunks: every item once, whoever is there; asleep, absent and stopped threads."""

import gc
import threading
import time

import numpy as np
import pytest
from numba import njit

from temporeal.sim.compiler import thread_pool
from temporeal.sim.compiler.thread_pool import AWAKE, JOB, LINE, OWN, SIZE, ThreadPool


@njit(nogil=True)
def work_loop(queue, worker, times, workers):
    """Adds the job's number to ``times`` of each item and notes who did it."""
    call = thread_pool.next_call(queue, worker, 0)
    while call:
        chunk = thread_pool.claim(queue, call, worker)
        while chunk >= 0:
            for item in range(chunk * queue[SIZE], min(chunk * queue[SIZE] + queue[SIZE], queue[JOB])):
                times[item] += queue[JOB + 1]
                workers[item] = worker
            thread_pool.finish(queue)
            chunk = thread_pool.claim(queue, call, worker)
        call = thread_pool.next_call(queue, worker, call)


def made(threads):
    times, workers = np.zeros(5000, np.int64), np.full(5000, -1)
    return ThreadPool(threads, work_loop, (times, workers)), times, workers


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_item_is_worked_on_once_per_call(threads):
    pool, times, workers = made(threads)
    expected = np.zeros_like(times)
    for call in range(300):
        items = (1, 31, 33, 500, 5000, 4999)[call % 6]
        pool(items, items, call)
        expected[:items] += call
        assert (times == expected).all()
    assert workers.max() < threads


def test_threads_that_fell_asleep_are_woken():
    pool, times, workers = made(2)
    pool(5000, 5000, 1)
    deadline = time.monotonic() + 10
    while pool.queue[OWN + LINE + AWAKE]:
        assert time.monotonic() < deadline, "still watching"
        time.sleep(0.01)
    helped = False
    while not helped:
        assert time.monotonic() < deadline, "never came"
        workers[:] = -1
        pool(5000, 5000, 1)
        helped = bool((workers == 1).any())
    assert (times == times[0]).all()


def test_the_caller_does_the_work_of_threads_that_are_not_there():
    pool, times, workers = made(3)
    pool._wake = lambda: None  # as in a forked process: nobody is there to be woken
    pool(5000, 5000, 2)
    assert (times == 2).all() and (workers == 0).all()


def test_few_items_stay_with_the_caller():
    before = set(threading.enumerate())
    pool, _, workers = made(4)
    pool(thread_pool.SMALLEST, thread_pool.SMALLEST, 1)
    assert (workers[: thread_pool.SMALLEST] == 0).all()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("asleep", [False, True])
def test_threads_end_with_their_pool(asleep):
    pool, _, _ = made(3)
    before = set(threading.enumerate())
    pool(5000, 5000, 1)
    started = set(threading.enumerate()) - before
    assert len(started) == 2
    if asleep:
        time.sleep(0.3)
    del pool
    gc.collect()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


def test_a_negative_number_of_threads_is_refused():
    with pytest.raises(ValueError, match="threads is -1; it must be 0"):
        made(-1)


def test_a_closed_pool_refuses_work_instead_of_waiting_for_ever():
    pool, times, _ = made(2)
    pool(500, 500, 1)
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool(500, 500, 1)
    assert times[:500].sum() == 500 and pool.close() is None
