"""A real gateway, over a loopback socket and on a uvloop of its own thread, before a scripted back end."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
from array import array
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import httpx
import msgspec
import uvloop

from stretto.roles import messages as m
from stretto.roles.config import Config
from stretto.roles.gateway.app import application
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.profiler import Profiler
from stretto.roles.gateway.queue import Queue
from stretto.roles.gateway.readers import Readers
from stretto.roles.gateway.server import HttpServer
from stretto.roles.gateway.sessions import Sessions
from stretto.roles.gateway.stream import merge
from stretto.roles.metrics import Meter
from stretto.roles.origins import origins
from stretto.shm.board import Board, State
from stretto.shm.trace import Traces

MODEL = "org/tiny"
NAMES = ["scheduler.0", "tokenizer.0", "tokenizer.1", "gateway.0"]

PATIENCE = 60.0
"""Seconds after which a test is stuck rather than slow."""

Script = Callable[[m.Submit], list[m.ToGateway]]


def ids(*values: int) -> bytes:
    """Token ids as they travel."""
    return array("i", values).tobytes()


def unseeded(params: m.SamplingParams) -> m.SamplingParams:
    """As the client sent them: the gateway has drawn a seed."""
    assert params.seed is not None
    return msgspec.structs.replace(params, seed=None)


def hello(submit: m.Submit) -> list[m.ToGateway]:
    """Says "Hello, wörld" in two tokens and stops: streamed as three events, else as one."""
    usage = m.Usage(5, 2, cached_tokens=3)
    prompt = ids(1, 2, 3, 4, 5) if submit.echo_prompt_ids else b""
    if not submit.stream:
        end = m.Event(submit.uid, 0, "Hello, wörld", ids(7, 8), "stop", None, usage, prompt_ids=prompt)
        return [m.Events([end])]
    first = m.Event(submit.uid, 0, "Hello", ids(7))
    second = m.Event(submit.uid, 1, ", wörld", ids(8), offset=5)
    end = m.Event(submit.uid, 2, "", b"", "stop", None, usage, prompt_ids=prompt, offset=12)
    return [m.Events([first]), m.Events([second, end])]


LIKELIEST = [
    m.Alternative(20, "ö", "ö".encode(), -0.25),
    m.Alternative(21, "\ufffd", b"\xc3", -1.5),
    m.Alternative(22, " z", b" z", float("-inf")),
]


def token(id: int, text: str, logprob: float, top: int) -> m.TokenInfo:
    """A token of rank 2, with the first of `LIKELIEST`."""
    return m.TokenInfo(id, text, text.encode(), logprob, 2, LIKELIEST[:top])


def chorus(submit: m.Submit) -> list[m.ToGateway]:
    """Answers whatever may be asked: its prompt is "He" in two tokens, its i-th sequence says "i" and "ö"."""
    params = submit.params
    width = params.n if params.use_beam_search else max(params.n, params.best_of or 0)
    voices = [_voice(submit, i) for i in range(width)]
    if not submit.stream:
        return [m.Events([merge(events)]) for events in voices]
    return [m.Events(list(events)) for events in zip(*voices, strict=True)]


def _voice(submit: m.Submit, i: int) -> list[m.Event]:
    """The events of one sequence, as streamed; the higher ones are the likelier."""
    uid, params = submit.uid + i, submit.params
    top, prompt_top = params.logprobs, params.prompt_logprobs
    infos = [] if top is None else [token(10 + i, str(i), i - 4.0, top), token(20, "ö", -0.25, top)]
    prompt = None if prompt_top is None else [None, token(2, "e", -0.5, prompt_top)]
    first = m.Event(
        uid,
        0,
        str(i),
        ids(10 + i),
        usage=m.Usage(2, 0, 1 - i % 2),
        logprobs=infos[:1],
        prompt_logprobs=prompt,
        prompt_text="He" if submit.echo else None,
        prompt_first=None if prompt_top is None else (1, b"H"),
    )
    second = m.Event(uid, 1, "ö", ids(20), logprobs=infos[1:])
    end = m.Event(
        uid,
        2,
        "",
        b"",
        "length",
        usage=m.Usage(2, 2, 1 - i % 2),
        prompt_ids=ids(1, 2) if submit.echo_prompt_ids else b"",
        cumulative_logprob=i - 4.25,
    )
    if params.max_tokens == 0:
        return [msgspec.structs.replace(first, text="", token_ids=b"", logprobs=[], usage=m.Usage(2, 0),
                                        finish_reason="length", prompt_ids=end.prompt_ids)]  # fmt: skip
    return [first, second, end]


def silence(submit: m.Submit) -> list[m.ToGateway]:
    """Never answers."""
    return []


def spell(question: m.Tokenize | m.Detokenize | m.CacheQuery) -> m.ToGateway:
    """A tokenizer whose tokens are characters, of the plainer half of Unicode; the cache is empty."""
    if isinstance(question, m.CacheQuery):
        return m.CacheReport(question.uid, question.gateway, m.CacheSummary(0, 1, 0, 8, 0, 0, []))
    if isinstance(question, m.Detokenize):
        if max(question.token_ids, default=0) >= 0xD800:
            return m.Rejected(question.uid, m.Fault(400, "There is no such token.", param="tokens"))
        return m.Detokenized(question.uid, "".join(map(chr, question.token_ids)))
    text = question.prompt or "".join(turn["content"] for turn in question.messages or [])
    return m.Tokenized(question.uid, list(map(ord, text)), list(text), 2048)


class BackEnd:
    """Stands for the rest of the role graph: answers each `Submit` by a script, in the loop's next turns."""

    def __init__(self) -> None:
        self.script: Script = hello
        self.full = False
        self.reply: Callable[[Any], m.ToGateway] = spell
        self.submits: queue.Queue[m.Submit] = queue.Queue()
        self.questions: queue.Queue[m.Tokenize | m.Detokenize | m.CacheQuery] = queue.Queue()
        self.cancels: queue.Queue[int] = queue.Queue()
        self.told: queue.Queue[m.ToDetokenizer] = queue.Queue()
        self.door: Door

    def offer(self, tokenizer: int, message: m.ToTokenizer) -> bool:
        if self.full:
            return False
        message = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=m.ToTokenizer)  # as if by wire
        if isinstance(message, m.Tokenize | m.Detokenize | m.CacheQuery):
            self.questions.put(message)
            asyncio.get_running_loop().call_soon(self.door.on_message, self.reply(message))
            return True
        assert isinstance(message, m.Submit)
        self.submits.put(message)
        for answer in self.script(message):
            asyncio.get_running_loop().call_soon(self.door.on_message, answer)
        return True

    def tell(self, detokenizer: int, message: m.ToDetokenizer) -> None:
        self.told.put(message)

    def post(self, tokenizer: int, message: m.ToTokenizer) -> None:
        if isinstance(message, m.Cancel):
            self.cancels.put(message.uid)
        else:
            self.offer(tokenizer, message)


class House:
    """The gateway and what a test needs of it."""

    def __init__(self, uds: str = "", **options: Any) -> None:
        self.config = Config(served_model_name=MODEL, max_model_len=2048, tokenizers=2, **options)
        self.back = BackEnd()
        self.orders: queue.Queue[m.ToSupervisor] = queue.Queue()
        self.board = Board(Board.create(NAMES))
        for name in NAMES:
            self.board.set_state(name, State.STARTING)
        self.meter = Meter("gateway", self.board.row("gateway.0"))
        self.traces = Traces.create(NAMES, capacity=8)
        self.listener = socket.socket(socket.AF_UNIX if uds else socket.AF_INET)
        self.listener.bind(uds or ("127.0.0.1", 0))
        self.listener.listen()
        self.url = "http://house" if uds else f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.ws_url = self.url.replace("http", "ws") + "/v1/stream"
        key = {"authorization": f"Bearer {self.config.api_key}"} if self.config.api_key else {}
        transport = httpx.HTTPTransport(uds=uds) if uds else None
        self.http = httpx.Client(base_url=self.url, headers=key, timeout=PATIENCE, transport=transport)
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._live()))
        self._thread.start()
        self.loop = self._started.result()

    async def _live(self) -> None:
        self._stop = asyncio.Event()
        config = self.config
        waiting = Queue(self.meter, (), 0, config.max_queued_requests, config.max_queued_tokens)
        readers = Readers(self.meter, config.slow_reader_seconds, config.max_pending_bytes)
        limits: dict[str, Any] = {"queue": waiting, "readers": readers}
        limits["max_seconds"] = config.max_request_seconds
        self.door = self.back.door = Door(0, 2, 1, self.back, self.meter, **limits)
        self.profiler = Profiler(self.board, self._switch_profile, lambda: Traces(self.traces))
        self.sessions = Sessions(self.config.resume_seconds)
        app = application(
            self.config, self.door, self.meter, self.board, self.profiler, self.sessions, self.orders.put
        )
        self.server = HttpServer(
            app, self.listener, config.max_body_bytes, config.max_connections, config.idle_seconds,
            origins(config.allowed_origins),
        )  # fmt: skip
        await self.server.start()
        self._started.set_result(asyncio.get_running_loop())
        await self._stop.wait()
        await self.server.close(0)

    def _switch_profile(self, message: m.Profile) -> None:
        """Do as the supervisor does."""
        asyncio.get_running_loop().call_soon(self.profiler.traced, message.since)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call on the gateway's loop, and wait for the result."""
        result: Future[Any] = Future()
        self.loop.call_soon_threadsafe(lambda: result.set_result(function(*args)))
        return result.result()

    def send(self, *events: m.Event) -> None:
        """Have the back end send these events, as one message."""
        self.call(self.door.on_message, m.Events(list(events)))

    def submitted(self) -> m.Submit:
        """Wait for the next request that reaches the back end."""
        return self.back.submits.get(timeout=PATIENCE)

    def cancelled(self) -> int:
        """Wait for the next request that is cancelled."""
        return self.back.cancels.get(timeout=PATIENCE)

    @property
    def live(self) -> int:
        """Requests that the gateway thinks alive."""
        return self.call(lambda: self.door.live)

    def chat(self, **fields: Any) -> httpx.Response:
        """POST a chat completion of one short message."""
        body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def reset(self) -> None:
        """As new, for the next test."""
        self.back.script, self.back.full, self.back.reply = hello, False, spell
        self.back.submits, self.back.cancels = queue.Queue(), queue.Queue()
        self.back.questions, self.back.told = queue.Queue(), queue.Queue()

    def close(self) -> None:
        """Stop; once more does nothing."""
        if self._thread.is_alive():
            self.call(self._stop.set)
            self._thread.join()
            self.http.close()
