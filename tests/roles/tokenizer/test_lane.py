import asyncio
import threading

import pytest

from stretto.roles.messages import Detokenize, Detokenized, SamplingParams, Submit
from stretto.roles.tokenizer.lane import Done, Lane


def submit(uid, **params):
    return Submit(uid, 0, 0.0, SamplingParams(**params))


class Bench:
    """A lane whose work waits for `gate`; `next` waits for what it has done."""

    def __init__(self):
        self.gate, self._woken = threading.Semaphore(0), asyncio.Event()
        self.lane = Lane(self._work, self._woken.set)

    def _work(self, task):
        self.gate.acquire()
        if task.uid < 0:
            raise ZeroDivisionError
        return Detokenized(task.uid, "done")

    async def next(self):
        while (done := self.lane.take()) is None:
            await self._woken.wait()
            self._woken.clear()
        return done


def test_tasks_are_done_one_after_the_other():
    async def play():
        bench = Bench()
        assert bench.lane.take() is None
        bench.lane.add(submit(1))
        assert not bench.lane.full
        bench.lane.add(submit(2))
        assert bench.lane.full
        bench.gate.release()
        assert await bench.next() == Done(submit(1), Detokenized(1, "done"), [])
        assert not bench.lane.full
        assert bench.lane.take() is None
        bench.gate.release()
        assert (await bench.next()).task.uid == 2

    asyncio.run(play())


def test_a_cancel_is_kept_for_its_request_only():
    async def play():
        bench = Bench()
        assert not bench.lane.cancel(1)
        bench.lane.add(submit(1))
        bench.lane.add(submit(2))
        assert bench.lane.cancel(1)
        assert not bench.lane.cancel(2)
        bench.gate.release(2)
        assert [(await bench.next()).cancelled, (await bench.next()).cancelled] == [[1], []]

    asyncio.run(play())


def test_a_cancel_is_kept_for_each_choice_of_a_request():
    async def play():
        bench = Bench()
        bench.lane.add(submit(1, n=2, best_of=3))
        assert [bench.lane.cancel(uid) for uid in (0, 3, 2, 4)] == [False, True, True, False]
        bench.gate.release()
        assert (await bench.next()).cancelled == [3, 2]

    asyncio.run(play())


def test_only_requests_are_cancelled():
    async def play():
        bench = Bench()
        bench.lane.add(Detokenize(1, 0, []))
        assert not bench.lane.cancel(1)
        bench.gate.release()
        assert (await bench.next()).cancelled == []

    asyncio.run(play())


def test_a_bug_on_the_thread_comes_out_on_the_loop():
    async def play():
        bench = Bench()
        bench.lane.add(submit(-1))
        bench.gate.release()
        with pytest.raises(ZeroDivisionError):
            await bench.next()

    asyncio.run(play())
