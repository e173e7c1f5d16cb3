"""SGLang's native endpoints: `/generate`, and `/health_generate`, which proves the whole path."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stretto.roles.gateway import http
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.faults import Refused, error_json, refusal
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.parts import Parts
from stretto.roles.gateway.reader import Reader
from stretto.roles.gateway.sglang_answers import Output
from stretto.roles.gateway.sglang_bodies import GenerateBody
from stretto.roles.gateway.sglang_intake import Wanted, is_batch, wanted
from stretto.roles.gateway.stream import HungUp, Inbox, Stream, gather
from stretto.roles.gateway.submitting import submitted
from stretto.roles.messages import Fault, SamplingParams

DONE = b"data: [DONE]\n\n"
_PROBE = Job(params=SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True), prompts=([0],))


def routes(parts: Parts) -> list[BaseRoute]:
    """Both."""
    reader = Reader(GenerateBody, parts.config.allow_unknown_fields)
    generate = Generate(parts.door, reader, parts.config.max_body_bytes)
    probe = Probe(parts.door, parts.config.heartbeat_timeout)
    return [
        Route("/generate", generate, methods=["POST"]),
        Route("/health_generate", probe.answer),
    ]


class Generate:
    """An ASGI application: `/generate`. Each prompt is a request of its own; if one fails, all do."""

    def __init__(self, door: Door, reader: Reader[GenerateBody], max_body_bytes: int) -> None:
        self._door, self._reader, self._max_body_bytes = door, reader, max_body_bytes

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        try:
            body = self._reader.read(await http.read_body(scope, receive, self._max_body_bytes))
            prompts = wanted(body)
            jobs = [prompt.job for prompt in prompts]
            async with submitted(self._door, jobs, scope, receive) as (inbox, streams):
                outputs = Outputs(prompts, streams, is_batch(body))
                await (_streamed if body.stream else _whole)(inbox, outputs, send)
        except Refused as refused:
            await http.refuse(send, receive, refused.fault)
        except HungUp:
            return


class Outputs:
    """The choices of all prompts, in order: prompt by prompt."""

    def __init__(self, prompts: list[Wanted], streams: list[Stream], batch: bool) -> None:
        self._outputs: dict[int, tuple[int, Output]] = {}
        for prompt, stream in zip(prompts, streams, strict=True):
            id = prompt.job.request_id or f"gen-{stream.uid:016x}"
            for position in stream.job.positions:
                output = Output(prompt, id, stream.arrived)
                self._outputs[stream.uid + position] = len(self._outputs), output
        self._many = batch or len(self._outputs) > 1
        self._objects: dict[int, dict[str, Any]] = {}
        self._live = set(self._outputs)
        self.fault: Fault | None = None
        """Why one failed, and all with it."""

    @property
    def ended(self) -> bool:
        """All choices are whole, or one has failed."""
        return self.fault is not None or not self._live

    def take(self, stream: Stream) -> list[dict[str, Any]]:
        """Chunks for what a stream has now."""
        chunks = []
        for event in stream.take():
            if event.fault is not None:
                self.fault = event.fault
                break
            index, output = self._outputs[event.uid]
            self._objects[index] = output.add(event, time.monotonic())
            chunks.append(self._objects[index] | ({"index": index} if self._many else {}))
            if event.finish_reason is not None:
                self._live.discard(event.uid)
        return chunks

    def whole(self) -> dict[str, Any] | list[dict[str, Any]]:
        """The answer that is not streamed. Raises `Refused`."""
        if self.fault is not None:
            raise Refused(self.fault)
        objects = [self._objects[index] for index in range(len(self._outputs))]
        return objects if self._many else objects[0]


async def _whole(inbox: Inbox, outputs: Outputs, send: http.Send) -> None:
    while not outputs.ended:
        outputs.take(await inbox.get())
    await http.answer(send, 200, orjson.dumps(outputs.whole()))


async def _streamed(inbox: Inbox, outputs: Outputs, send: http.Send) -> None:
    """The status line waits for the first event, so that a refusal gets a status of its own."""
    chunks = outputs.take(await inbox.get())
    if outputs.fault is not None and not chunks:
        raise Refused(outputs.fault)
    await http.start_stream(send)
    while not outputs.ended:
        await http.write(send, _data(chunks))
        chunks = outputs.take(await inbox.get())
    end = DONE if outputs.fault is None else b"data: " + error_json(outputs.fault) + b"\n\n"
    await http.write(send, _data(chunks) + end, more=False)


def _data(chunks: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks)


class Probe:
    """Generates one token to see whether it can be done; who asks meanwhile gets the same answer.

    It needs no API key, so it must not be a way to make work: one probe at a time.
    """

    def __init__(self, door: Door, timeout: float) -> None:
        self._door, self._timeout = door, timeout
        self._running: asyncio.Task[Fault | None] | None = None

    async def answer(self, request: Request) -> Response:
        """`/health_generate`: 200 and nothing, or why not."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._generate())
        fault = await asyncio.shield(self._running)
        if fault is None:
            return Response()
        return Response(error_json(fault), 503, media_type="application/json")

    async def _generate(self) -> Fault | None:
        try:
            stream = self._door.submit(_PROBE, Inbox())
        except Refused as refused:
            return refused.fault
        try:
            await asyncio.wait_for(gather(stream), self._timeout)
        except Refused as refused:
            return refused.fault
        except TimeoutError:
            return refusal(f"No token within {self._timeout:g} seconds.", status=503).fault
        finally:
            self._door.leave(stream)
        return None
