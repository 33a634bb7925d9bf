"""Pools, which lend to threads, and things made once for a key."""

import gc
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

from wfstdec.jit.records import Pool, WeakCache


class Key:
    """A key that can be forgotten."""


def of_size(size):
    return [size]


def has_room(item, size):
    return item[0] >= size


def test_what_is_given_back_is_lent_again_where_it_fits():
    pool = Pool(of_size, fits=has_room)
    first = pool.take(2)
    assert pool.take(2) is not first
    pool.give(first)
    assert len(pool) == 1
    assert pool.take(1) is first
    pool.give(first)
    assert pool.take(3) == [3]
    assert len(pool) == 0  # what does not fit is dropped


def test_a_pool_keeps_no_more_than_the_one_beside_it():
    scratches = Pool(of_size)
    states = Pool(of_size, beside=scratches)
    lent = [states.take(1) for _ in range(4)]
    for state in lent[:2]:
        states.give(state)
    assert len(states) == 1
    for _ in range(3):
        scratches.give([1])
    for state in lent[1:]:
        states.give(state)
    assert len(states) == 3


def test_a_copy_of_a_pool_is_empty():
    pool = Pool(of_size, fits=has_room)
    pool.give([7])
    copy = pickle.loads(pickle.dumps(pool))
    assert len(copy) == 0 and copy.take(2) == [2]


def test_a_value_is_made_once_however_many_threads_ask():
    made, start, key = [], threading.Barrier(8), Key()

    def make(key):
        made.append(key)
        return object()

    values = WeakCache(make)

    def ask():
        start.wait()
        return values.of(key)

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask) for _ in range(8)]
    assert len({id(one.result()) for one in asked}) == len(made) == 1


def test_a_value_goes_with_its_key():
    values, key = WeakCache(lambda key: Key()), Key()
    value = values.of(key)
    del key
    gc.collect()
    assert len(values._made) == 0 and value is not None
