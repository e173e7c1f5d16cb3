import asyncio
import threading

import pytest

from stretto.roles.messages import Fault, SamplingParams, Submit
from stretto.roles.tokenizer.lane import Lane, Prepared


def submit(uid):
    return Submit(uid, 0, 0.0, SamplingParams())


class Bench:
    """A lane whose work waits for `gate`; `next` waits for what it has done."""

    def __init__(self):
        self.gate, self._woken = threading.Semaphore(0), asyncio.Event()
        self.lane = Lane(self._prepare, self._woken.set)

    def _prepare(self, message):
        self.gate.acquire()
        if message.uid < 0:
            raise ZeroDivisionError
        return Fault(400, str(message.uid))

    async def next(self):
        while (done := self.lane.take()) is None:
            await self._woken.wait()
            self._woken.clear()
        return done


def test_requests_are_prepared_one_after_the_other():
    async def play():
        bench = Bench()
        assert bench.lane.take() is None
        bench.lane.add(submit(1))
        assert not bench.lane.full
        bench.lane.add(submit(2))
        assert bench.lane.full
        bench.gate.release()
        assert await bench.next() == Prepared(submit(1), Fault(400, "1"), False)
        assert not bench.lane.full
        assert bench.lane.take() is None
        bench.gate.release()
        assert (await bench.next()).message.uid == 2

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
        assert [(await bench.next()).cancelled, (await bench.next()).cancelled] == [True, False]

    asyncio.run(play())


def test_a_bug_on_the_thread_comes_out_on_the_loop():
    async def play():
        bench = Bench()
        bench.lane.add(submit(-1))
        bench.gate.release()
        with pytest.raises(ZeroDivisionError):
            await bench.next()

    asyncio.run(play())
