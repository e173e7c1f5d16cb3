"""A TCP proxy on a thread that can cut every connection through it, without a word, as networks do."""

import asyncio
import contextlib
import threading
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on to a server; `url` is where it listens. To be closed."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._writers: set[asyncio.StreamWriter] = set()
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(started)))
        self._thread.start()
        started.wait()

    async def _live(self, started: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await self._over.wait()
        server.close()
        self._cut()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, onward = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._writers |= {writer, onward}
        await asyncio.gather(_pump(reader, onward), _pump(upstream, writer))
        self._writers -= {writer, onward}

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def cut(self) -> None:
        """Lose every connection."""
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
