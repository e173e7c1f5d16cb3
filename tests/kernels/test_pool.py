import numpy as np
import torch

from stretto.kernels import pool
from stretto.kernels.pool import arguments, claim, floats, int32s, int64s, kernel, thread_count, unpack


@kernel(arguments("longs words reals count", "factor"))
def double_all(pointer):
    a = unpack(pointer)
    longs, words, reals = int64s(a.longs), int32s(a.words), floats(a.reals)
    unit = claim(pointer)
    while unit < a.count:
        longs[unit] += thread_count()
        words[unit] += 1
        reals[unit] *= np.float32(a.factor)
        unit = claim(pointer)


def test_every_unit_is_done_once_by_the_threads_together():
    for threads in (1, 2, 5):
        longs = torch.zeros(1000, dtype=torch.int64)
        words, reals = torch.zeros(1000, dtype=torch.int32), torch.ones(1000)
        double_all(threads, longs.data_ptr(), words.data_ptr(), reals.data_ptr(), 1000, 2.5)
        assert longs.unique().tolist() == [threads]
        assert words.unique().tolist() == [1]
        assert reals.unique().tolist() == [2.5]


def test_compiling_first_changes_nothing():
    double_all.compile()
    assert double_all.compile() is False
    reals = torch.ones(1)
    longs, words = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
    double_all(1, longs.data_ptr(), words.data_ptr(), reals.data_ptr(), 0, 2.0)
    assert reals.item() == 1.0


def test_shares_cover_the_whole_without_overlap():
    for total, threads in ((0, 3), (2, 3), (10, 3), (9, 3)):
        shares = [pool.share.py_func(total, index, threads) for index in range(threads)]
        assert [i for begin, end in shares for i in range(begin, end)] == list(range(total))


def test_little_work_takes_one_thread():
    assert pool.threads_for(9, 10) == 1
    assert pool.threads_for(10, 10) == torch.get_num_threads()
