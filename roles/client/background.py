"""An event loop on a thread of its own, for callers that have none, or one that is busy (a notebook's)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from stretto.roles.client.errors import ConnectionFailed

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines for other threads. `close` cancels those still running and ends the thread."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="stretto-client", daemon=True)
        self._thread.start()
        self._started.wait()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine; cancelling the future cancels it. Raises `ConnectionFailed` when closed."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:
            coroutine.close()
            raise _closed() from error

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. An interrupt (Ctrl-C) of the caller cancels it."""
        return self.wait(self.start(coroutine))

    def wait(self, future: Future[T]) -> T:
        """Wait for what `start` returned, as `call` does."""
        try:
            return future.result()
        except CancelledError as error:
            raise _closed() from error
        finally:
            future.cancel()

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Call a function on the loop's thread, later; nothing when closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """End the thread; may be called twice, and from the garbage collector on any thread."""
        self.post(self._stopped.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _main(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._started.set()
        await self._stopped.wait()


def _closed() -> ConnectionFailed:
    return ConnectionFailed("the client was closed", "client_closed")
