"""Ask for cases in every way, and say what is right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from e2e.scripted.asking import FORM, Answer, Asker, Choice
from e2e.scripted.scripts import Case, Shelf, logprobs_of
from e2e.serving import Server

FLOOR = -9999.0
"""How JSON says minus infinity."""


WAYS = {
    "ahead-16": ["--page-size", "16"],
    "ahead-1": ["--page-size", "1"],
    "in step-16": ["--page-size", "16", "--no-overlap"],
    "in step-1": ["--page-size", "1", "--no-overlap"],
}
"""Options of the servers that every case meets."""


@contextmanager
def launched(shelf: Shelf, path: Path, *args: str) -> Iterator[Bench]:
    """A server on the shelf's model, which is written into `path`."""
    patient = ["--heartbeat-timeout", "600"]  # a role that is held up is not to be replaced
    server = Server(str(shelf.write(path)), "--kv-memory", "16384tokens", *patient, *args).wait_ready()
    try:
        yield Bench(server, shelf)
    finally:
        server.stop()
        print(server.stderr)  # with -s: what the roles had to say


class Bench:
    """A server on the model of a shelf, and means to hold its roles up."""

    def __init__(self, server: Server, shelf: Shelf) -> None:
        self.server, self.shelf, self._raw = server, shelf, shelf.raw
        self.asker = Asker(server.url)
        self._family = server.family()

    def ask(self, case: Case, **ways: Any) -> Answer:
        """The answer to a case; `ways` are further fields of the request."""
        return self.asker.ask(self.shelf.prompt(case), **{**case.fields, **ways})

    def ask_together(self, cases: Sequence[Case], **ways: Any) -> list[Future[Answer]]:
        """The answers to cases that are all in the scheduler before the device begins with one of them."""
        return self.at_once([lambda case=case: self.ask(case, **ways) for case in cases])  # type: ignore[misc]

    def at_once(self, calls: Sequence[Callable[[], Answer]], sequences: int = 1) -> list[Future[Answer]]:
        """Results of calls, each of one request, that are all queued before the device begins with one.

        `sequences` says how many each request makes.
        """
        with ThreadPoolExecutor(len(calls)) as pool, self.held("executor"):
            futures = [pool.submit(call) for call in calls]
            self.wait(lambda metrics: live(metrics) >= sequences * len(calls), futures)
        return futures

    def ask_behind(self, role: str, cases: Sequence[Case], **ways: Any) -> list[Future[Answer]]:
        """Answers to cases that the device is through with before the role has looked at one of them."""
        before = self.metrics()["prompt_tokens_total"]
        prompts = sum(len(self.shelf.prompt(case)) for case in cases)
        with ThreadPoolExecutor(len(cases)) as pool, self.held(role):
            futures = [pool.submit(self.ask, case, **ways) for case in cases]
            self.wait(lambda metrics: metrics["prompt_tokens_total"] - before == prompts, futures)
            self.wait(lambda metrics: not live(metrics), futures)
        return futures

    @contextmanager
    def held(self, role: str) -> Iterator[None]:
        """The role stands still."""
        process = self._family[role]
        process.suspend()
        try:
            yield
        finally:
            process.resume()

    def metrics(self) -> dict[str, float]:
        """As the server has them, without its name before each."""
        text = self.asker.http.get("/metrics").text
        lines = (line for line in text.splitlines() if not line.startswith("#"))
        pairs = (line.rsplit(" ", 1) for line in lines)
        return {name.split("{")[0].removeprefix("stretto_"): float(value) for name, value in pairs}

    def wait(
        self, condition: Callable[[dict[str, float]], bool], until: Sequence[Future[Any]] = ()
    ) -> dict[str, float]:
        """The metrics once the condition holds, or one of the futures is done already."""
        give_up = time.monotonic() + 60
        while not condition(metrics := self.metrics()):
            if any(future.done() for future in until):
                break
            assert time.monotonic() < give_up, metrics
            time.sleep(0.002)
        return metrics

    def rest(self) -> dict[str, float]:
        """Wait until no request lives in any role; asserts that all pages came back."""
        names = ("requests_live", "requests_running", "requests_waiting", "streams_live")
        metrics = self.wait(lambda metrics: not any(metrics[name] for name in names))
        assert metrics["kv_pages_owned"] == 0
        assert metrics["kv_pages_free"] + metrics["kv_pages_cached"] == metrics["kv_pages"]
        return metrics

    def right(self, case: Case, logprobs: int | None = None) -> Answer:
        """The answer to a case, for a request of so many log-probabilities."""
        prompt = self.shelf.prompt(case)
        choice = Choice(
            text=(self.text(prompt) if case.fields.get("echo") else "") + case.text,
            ids=list(case.ids),
            finish=case.finish,
            stop=case.stop,
            logprobs=None if logprobs is None else self._form(case, logprobs),
            prompt_ids=prompt,
        )
        return Answer([choice], len(prompt), len(case.ids))

    def text(self, ids: Sequence[int]) -> str:
        """Of their whole characters."""
        return b"".join(self._raw[token] for token in ids).decode(errors="ignore")

    def _form(self, case: Case, top: int) -> dict[str, list[Any]] | None:
        """The log-probabilities; None where there are no tokens to have some."""
        prompt = self.shelf.prompt(case)
        sequence = [*prompt, *case.ids]
        first = 0 if case.fields.get("echo") else len(prompt)
        if first == len(sequence):
            return None
        told = [self._told(case, sequence, position, top) for position in range(first, len(sequence))]
        columns = [list(column) for column in zip(*told, strict=True)]
        return dict(zip(FORM, [*columns, self._offsets(sequence[first:])], strict=True))

    def _told(
        self, case: Case, sequence: Sequence[int], position: int, top: int
    ) -> tuple[str, Any, dict[str, Any] | None]:
        """Name, log-probability and alternatives of the token at a position of prompt and answer."""
        token = sequence[position]
        if position == 0:
            return self._name(token), None, None
        logprobs = logprobs_of(case.step(position - 1), len(self._raw)).clip(FLOOR)
        best = sorted(range(len(logprobs)), key=lambda i: (-logprobs[i], i))[:top]
        named = {self._name(i): about(logprobs[i]) for i in [*best, token]}
        return self._name(token), about(logprobs[token]), named

    def _name(self, token: int) -> str:
        raw = self._raw[token]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def _offsets(self, ids: Sequence[int]) -> list[int]:
        """For each token the place, in the text of all, of the character that its first byte belongs to."""
        offsets, text = [], b""
        for token in ids:
            begun = text + self._raw[token][:1]
            offsets.append(max(0, sum(byte & 0xC0 != 0x80 for byte in begun) - 1))
            text += self._raw[token]
        return offsets


def live(metrics: dict[str, float]) -> float:
    """Sequences that the scheduler has."""
    return metrics["requests_waiting"] + metrics["requests_running"]


def about(value: float) -> Any:
    """Equal as float32 is, wherever its last bit was rounded."""
    return pytest.approx(float(value), abs=2e-6, rel=1e-6)
