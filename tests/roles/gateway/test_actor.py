"""The whole role on its wires: a real context, real zmq, a real client."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvloop
import zmq
import zmq.asyncio

from stretto.roles import config as configs
from stretto.roles import messages as m
from stretto.roles.actor import Context
from stretto.roles.config import Config
from stretto.roles.gateway.actor import Gateway
from stretto.shm.board import Board
from stretto.tests.roles.gateway.house import PATIENCE

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
_to_tokenizer = msgspec.msgpack.Decoder(m.ToTokenizer)


class Launch:
    """A running gateway and the ends of its wires."""

    def __init__(self, directory: Path) -> None:
        board = Board.create(["gateway.0", "tokenizer.0"])
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.http = httpx.AsyncClient(base_url=self.url, timeout=PATIENCE)
        config = configs.encode(Config(served_model_name="tiny"))
        boot = m.Boot("gateway", 0, config, str(directory), [], ["board", "listen"])
        self.control, ours = socket.socketpair()
        self.ctx = Context(boot, [board, listener.detach()], ours)
        os.close(board)
        self.zmq = zmq.asyncio.Context()
        self.tokenizer = self.zmq.socket(zmq.PULL)
        self.tokenizer.bind(self.ctx.endpoint("tokenizer", 0))
        self.back = self.zmq.socket(zmq.PUSH)
        self.role = Gateway(self.ctx)
        self.back.connect(self.ctx.endpoint("gateway", 0))

    async def start(self) -> None:
        await self.role.open()
        self.running = asyncio.create_task(self.role.run())

    def ask(self, **fields: Any) -> asyncio.Task[httpx.Response]:
        return asyncio.create_task(self.http.post("/v1/chat/completions", json={**CHAT, **fields}))

    async def heard(self) -> m.ToTokenizer:
        return _to_tokenizer.decode(await self.tokenizer.recv())

    async def send(self, *events: m.Event) -> None:
        await self.back.send(msgspec.msgpack.encode(m.Events(list(events))))

    def stop(self, grace: float) -> None:
        self.ctx.stopping, self.ctx.grace = True, grace
        self.ctx.wake()

    async def close(self) -> None:
        self.stop(0)
        await self.running
        await self.role.close()
        await self.http.aclose()
        self.zmq.destroy(linger=0)
        self.control.close()


@asynccontextmanager
async def launched(directory: Path) -> AsyncIterator[Launch]:
    launch = Launch(directory)
    await launch.start()
    try:
        yield launch
    finally:
        await launch.close()


def end(uid: int) -> m.Event:
    return m.Event(uid, 0, "Paris", finish_reason="stop", usage=m.Usage(1, 1))


def test_a_request_goes_out_and_its_answer_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with launched(tmp_path) as launch:
            asked = launch.ask()
            submit = await launch.heard()
            assert isinstance(submit, m.Submit)
            await launch.send(end(submit.uid))
            answer = await asked
            assert answer.json()["choices"][0]["message"]["content"] == "Paris"

    uvloop.run(body())


def test_what_a_lost_peer_had_is_submitted_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with launched(tmp_path) as launch:
            asked = launch.ask()
            submit = await launch.heard()
            launch.role.peer_lost("scheduler", 0)
            assert await launch.heard() == submit
            launch.role.peer_lost("scheduler", 0, submit.uid)
            launch.role.peer_lost("tokenizer", 0, submit.uid)
            assert (await asked).json()["error"]["code"] == "poison_request"

    uvloop.run(body())


def test_stopping_lets_live_requests_finish_and_takes_no_new_ones(tmp_path: Path) -> None:
    async def body() -> None:
        async with launched(tmp_path) as launch:
            await asyncio.gather(*(launch.http.get("/version") for _ in range(2)))  # two connections
            asked = launch.ask()
            submit = await launch.heard()
            launch.stop(PATIENCE)
            assert (await launch.ask()).status_code == 503
            await launch.send(end(submit.uid))
            assert (await asked).status_code == 200
            await launch.running

    uvloop.run(body())


def test_what_outlives_the_grace_gets_a_terminal_error(tmp_path: Path) -> None:
    async def body() -> None:
        async with launched(tmp_path) as launch:
            asked = launch.ask(stream=True)
            submit = await launch.heard()
            await launch.send(m.Event(submit.uid, 0, "Par", b"\1\0\0\0"))
            launch.stop(0)
            answer = await asked
            assert '"code":"shutting_down"' in answer.text
            assert "[DONE]" not in answer.text

    uvloop.run(body())
