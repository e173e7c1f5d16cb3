"""A loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from stretto.roles.client.background import BackgroundLoop
from stretto.roles.client.errors import StrettoError


async def thread_name() -> str:
    return threading.current_thread().name


async def forever() -> None:
    await asyncio.Event().wait()


def test_coroutines_run_on_the_thread(background: BackgroundLoop) -> None:
    assert background.call(thread_name()) == "stretto-client"


def test_what_a_coroutine_raises_reaches_the_caller(background: BackgroundLoop) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        background.call(fail())


def test_closing_cancels_what_runs_and_refuses_what_comes(background: BackgroundLoop) -> None:
    future = background.start(forever())
    background.close()
    with pytest.raises(StrettoError, match="closed"):
        background.wait(future)
    with pytest.raises(StrettoError, match="closed"):
        background.call(thread_name())
    background.post(print)
    background.close()


def test_closing_from_its_own_thread_does_not_wait_for_itself(background: BackgroundLoop) -> None:
    async def close() -> None:
        background.close()

    background.call(close())
    background._thread.join()
