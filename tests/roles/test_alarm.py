import asyncio
import time

from stretto.roles.alarm import Alarm


def test_it_rings_at_the_last_time_that_was_set_and_once() -> None:
    async def body() -> None:
        rung = asyncio.Event()
        alarm = Alarm(rung.set)
        alarm.set(time.monotonic() + 3600)
        soon = time.monotonic()
        alarm.set(soon)
        assert alarm.at == soon
        await rung.wait()
        assert alarm.at is None

    asyncio.run(body())


def test_none_silences_it() -> None:
    async def body() -> None:
        rung = asyncio.Event()
        alarm = Alarm(rung.set)
        alarm.set(time.monotonic())
        alarm.set(None)
        await asyncio.sleep(0.01)
        assert (alarm.at, rung.is_set()) == (None, False)

    asyncio.run(body())
