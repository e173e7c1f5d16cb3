"""A server that speaks `/v1/stream` and does what the prompt says; run as a script, it is a supervisor.

"say a b"   one delta per word, in turn with the other requests, then done
"hang a"    one delta per word, then nothing until the request is cancelled
"cut a b"   accepted, one delta per word, but the connection closes after the first; a resume brings the rest
"lose a b"  likewise, but the stream is not found again; asked for once more, it is said
"refuse"    an error
"drop"      the connection closes
"huge"      the connection closes, as it does over a frame that is too large
"garble"    a frame that is not one
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
from contextlib import suppress
from typing import Any

from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response


class FakeServer:
    """Keeps what it hears, frame by frame, and counts the most requests that were alive at once."""

    def __init__(self, api_key: str = "") -> None:
        self.heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.most_live = 0
        self.connections = 0
        self._api_key = api_key
        self._cancelled: dict[str, asyncio.Event] = {}
        self._lost: list[str] = []

    async def open(self, path: str) -> None:
        """Listen on a Unix socket for as long as the loop runs."""
        await unix_serve(self._talk, path, process_request=self._admit)

    def hear(self, kind: str) -> dict[str, Any]:
        """Wait for a frame of this type."""
        while (frame := self.heard.get(timeout=60))["type"] != kind:
            pass
        return frame

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        assert request.path == "/v1/stream"
        if request.headers.get("Authorization", "") == (self._api_key and f"Bearer {self._api_key}"):
            return None
        return connection.respond(401, '{"error": {"message": "wrong key", "type": "authentication_error"}}')

    async def _talk(self, connection: ServerConnection) -> None:
        self.connections += 1
        async with asyncio.TaskGroup() as group:
            while (frame := await _receive(connection)) is not None:
                self.heard.put(frame)
                if frame["type"] == "generate":
                    self._cancelled[frame["id"]] = asyncio.Event()
                    self.most_live = max(self.most_live, len(self._cancelled))
                    group.create_task(self._answer(connection, frame["id"], frame["request"]))
                elif frame["type"] == "resume":
                    group.create_task(self._go_on(connection, frame))
                elif frame["id"] in self._cancelled:
                    self._cancelled[frame["id"]].set()
            for event in self._cancelled.values():
                event.set()

    async def _cut(
        self, connection: ServerConnection, id: str, request: dict[str, Any], words: list[str]
    ) -> None:
        await _say(connection, id, type="accepted", stream="handle", resume_seconds=60)
        if request.get("stream", True):
            await _say(connection, id, type="delta", index=0, text=words[0], tokens=1)
        await connection.close(1012)

    async def _go_on(self, connection: ServerConnection, frame: dict[str, Any]) -> None:
        verb, *words = frame["request"]["prompt"].split()
        if verb == "lose":
            error = {"message": "gone", "code": "stream_not_found"}
            await _say(connection, frame["id"], type="error", status=404, error=error)
            return
        for index in range(sum(frame["tokens"]), len(words)):
            if frame["request"].get("stream", True):
                await _say(connection, frame["id"], type="delta", index=index, text=words[index], tokens=1)
        await _say(connection, frame["id"], **_done(frame["request"], words, "stop"))

    async def _answer(self, connection: ServerConnection, id: str, request: dict[str, Any]) -> None:
        prompt = request["prompt"] if "prompt" in request else request["messages"][-1]["content"]
        verb, *words = prompt.split() if isinstance(prompt, str) else ["say", *map(str, prompt)]
        if verb == "cut" or (verb == "lose" and prompt not in self._lost):
            await self._cut(connection, id, request, words)
            self._lost.append(prompt)
        if verb == "drop":
            await connection.close(1011, "gone")
        if verb == "huge":
            await connection.close(1009)
        if verb == "garble":
            await connection.send("{}")
        for frame in _deltas(request, words):
            await connection.send(json.dumps({"id": id, **frame}))
            await asyncio.sleep(0)
        if verb == "hang":
            await self._cancelled[id].wait()
        frame = (
            _refusal() if verb == "refuse" else _done(request, words, "abort" if verb == "hang" else "stop")
        )
        del self._cancelled[id]
        with suppress(ConnectionClosed):
            await connection.send(json.dumps({"id": id, **frame}))


async def _say(connection: ServerConnection, id: str, **frame: Any) -> None:
    with suppress(ConnectionClosed):
        await connection.send(json.dumps({"id": id, **frame}))


async def _receive(connection: ServerConnection) -> dict[str, Any] | None:
    try:
        frame: dict[str, Any] = json.loads(await connection.recv())
        return frame
    except ConnectionClosed:
        return None


def _deltas(request: dict[str, Any], words: list[str]) -> list[dict[str, Any]]:
    if not request.get("stream", True):
        return []
    frames: list[dict[str, Any]] = [{"type": "delta", "index": 0, "text": word} for word in words]
    if request.get("return_token_ids"):
        frames = [{**frame, "token_ids": [place]} for place, frame in enumerate(frames)]
    return frames


def _refusal() -> dict[str, Any]:
    error = {"message": "not that", "type": "invalid_request_error", "param": "prompt", "code": None}
    return {"type": "error", "error": error}


def _done(request: dict[str, Any], words: list[str], reason: str) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": 2,
        "completion_tokens": len(words),
        "total_tokens": 2 + len(words),
    }
    usage["prompt_tokens_details"] = {"cached_tokens": 1}
    done: dict[str, Any] = {"type": "done", "finish_reason": reason, "stop_reason": None, "usage": usage}
    if not request.get("stream", True):
        done["text"] = "".join(words)
    if request.get("return_token_ids"):
        done |= {"token_ids": list(range(len(words))), "prompt_token_ids": [7, 8]}
    return done


async def supervise(uds: str, ready_fd: int, parent_fd: int) -> None:
    """Serve until the parent's end of the pipe closes."""
    await FakeServer().open(uds)
    os.write(ready_fd, b"ready\n")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(parent_fd, ended.set)
    await ended.wait()


def main() -> None:
    """Take the options that tie a supervisor to its parent; the model's name says how to behave."""
    options = dict(arg[2:].split("=") for arg in sys.argv[1:] if "=" in arg)
    print("loading weights", file=sys.stderr, flush=True)
    if sys.argv[-1] == "broken":
        sys.exit("executor.0 did not start: no such model")
    asyncio.run(supervise(options["uds"], int(options["ready-fd"]), int(options["parent-fd"])))


if __name__ == "__main__":
    main()
