"""Microseconds that the detokenizer spends per token, by batch size.

    python -m stretto.bench.detokenizer [MODEL_DIR]

Feeds whole steps of random tokens, as the scheduler's ring would, and encodes the events, as the zmq socket
would take them. Without a model directory a byte-level vocabulary of random entries is made up.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec
from tokenizers import Tokenizer, decoders, models

from stretto.roles import messages as m
from stretto.roles.detokenizer.core import Core
from stretto.roles.detokenizer.scheme import Scheme, load_scheme, scheme_of

BATCHES = (1, 64, 256)
TOKENS = 100_000
ENTRIES = 49_152


def made_up_scheme(rng: random.Random) -> Scheme:
    """Byte-level, entries of 1 to 8 bytes: a harder mix than text, as many entries end inside a character."""
    names = [chr(c) for c in range(0x21, 0x7F)] + [chr(c) for c in range(0x100, 0x143)]
    entries: dict[str, int] = {}
    while len(entries) < ENTRIES:
        entries.setdefault("".join(rng.choices(names, k=rng.randint(1, 8))), len(entries))
    vocabulary = Tokenizer(models.BPE(entries, []))
    vocabulary.decoder = decoders.ByteLevel()
    return scheme_of(vocabulary, {"type": "ByteLevel"})


def steps(batch: int, count: int, rng: random.Random, output: m.Output) -> Iterator[bytes]:
    """Encoded messages of `count` steps: all requests open with the first and end with the last."""
    uids = array("q", range(batch))
    for step in range(count):
        yield msgspec.msgpack.encode(
            m.Tokens(
                [m.Open(uid, 1, output) for uid in uids] if step == 0 else [],
                uids.tobytes(),
                array("i", rng.choices(range(ENTRIES), k=batch)).tobytes(),
                array("i", [step] * batch).tobytes(),
                [m.End(uid, "length") for uid in uids] if step == count - 1 else [],
            )
        )


def measure(scheme: Scheme, records: list[bytes]) -> float:
    """Seconds from encoded steps to encoded events."""
    core = Core(scheme)
    decoder, encoder = msgspec.msgpack.Decoder(m.Tokens), msgspec.msgpack.Encoder()
    start = time.perf_counter()
    for record in records:
        core.feed(decoder.decode(record))
        for events in core.take().events.values():
            encoder.encode(m.Events(events))
    return time.perf_counter() - start


def main() -> None:
    """Print one JSON line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", nargs="?", type=Path)
    model_dir = parser.parse_args().model_dir
    rng = random.Random(1)
    scheme = made_up_scheme(rng) if model_dir is None else load_scheme(model_dir)
    cases = {
        "stream": m.Output(0, stream=True),
        "stream, 4 stop strings": m.Output(
            0, stream=True, stop=("\n\u2603", "#\u2603", "</\u2603>", "User\u2603")
        ),
        "whole": m.Output(0, stream=False),
    }
    for name, output in cases.items():
        for batch in BATCHES:
            records = list(steps(batch, TOKENS // batch, rng, output))
            measure(scheme, records)  # fills the tables
            seconds = min(measure(scheme, records) for _ in range(3))
            tokens = batch * len(records)
            print(
                json.dumps({"case": name, "batch": batch, "us_per_token": round(seconds / tokens * 1e6, 2)})
            )


if __name__ == "__main__":
    main()
