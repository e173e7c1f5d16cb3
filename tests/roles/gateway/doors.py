"""Doors whose wires only listen, for what becomes of streams after deaths and lost connections."""

from __future__ import annotations

from stretto.roles import messages as m
from stretto.roles.gateway.door import Door
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import Inbox, Stream
from stretto.roles.metrics import Meter
from stretto.tests.roles.gateway.house import ids

STREAMED = Job(params=m.SamplingParams(), prompts=("Hi",), stream=True)
CHOICES = Job(params=m.SamplingParams(n=2, logprobs=0), prompts=("a", [5]), stream=True)
WHOLE = Job(params=m.SamplingParams(n=2), prompts=("a",))


class Bench:
    """Doors to two tokenizers and two detokenizers that only listen."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[tuple[int, m.ToTokenizer]] = []
        self.told: list[tuple[int, m.ToDetokenizer]] = []
        self.meter = Meter("gateway", memoryview(bytearray(8 * 128)).cast("d"))
        self.door = self.another(0)

    def another(self, index: int) -> Door:
        return Door(index, 2, 2, self, self.meter, lambda: self.now)

    def offer(self, tokenizer: int, message: m.ToTokenizer) -> bool:
        self.sent.append((tokenizer, message))
        return True

    def post(self, tokenizer: int, message: m.ToTokenizer) -> None:
        self.sent.append((tokenizer, message))

    def tell(self, detokenizer: int, message: m.ToDetokenizer) -> None:
        self.told.append((detokenizer, message))

    def submit(self, job: Job) -> Stream:
        return self.door.submit(job, Inbox())

    def events(self, *events: m.Event) -> None:
        self.door.on_message(m.Events(list(events)))

    def sent_now(self) -> list[tuple[int, m.ToTokenizer]]:
        sent, self.sent = self.sent, []
        return sent

    def told_now(self) -> list[tuple[int, m.ToDetokenizer]]:
        told, self.told = self.told, []
        return told


def word(uid: int, start: int, stop: int | None = None, end: bool = False) -> m.Event:
    """Tokens [start, stop) of a sequence that says its uid's last digits; each is one character."""
    stop = start + 1 if stop is None else stop
    tokens = range(start, stop)
    return m.Event(
        uid,
        start,
        "".join(chr(97 + (uid + i) % 26) for i in tokens),
        ids(*tokens),
        "stop" if end else None,
        usage=m.Usage(1, stop) if end else None,
        logprobs=[m.TokenInfo(i, "", b"", float(-i), 1, []) for i in tokens],
        offset=start,
    )
