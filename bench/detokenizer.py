"""Microseconds that the detokenizer spends per token, by batch size.

    stretto bench detokenizer [MODEL_DIR]

Feeds whole steps of random tokens, as the scheduler's ring would, and encodes the events, as the zmq socket
would take them. Without a model directory a byte-level vocabulary of random entries is made up.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from tokenizers import Tokenizer, decoders, models

from stretto.bench.options import described
from stretto.bench.plot import Chart
from stretto.bench.report import Report, progress, report_options
from stretto.roles import messages as m
from stretto.roles.detokenizer.core import Core
from stretto.roles.detokenizer.scheme import Scheme, load_scheme, scheme_of

BATCHES = (1, 64, 256)
TOKENS = 100_000
ENTRIES = 49_152


def made_up_vocabulary(rng: random.Random) -> Tokenizer:
    """Byte-level, entries of 1 to 8 bytes: a harder mix than text, as many entries end inside a character."""
    names = [chr(c) for c in range(0x21, 0x7F)] + [chr(c) for c in range(0x100, 0x143)]
    entries: dict[str, int] = {}
    while len(entries) < ENTRIES:
        entries.setdefault("".join(rng.choices(names, k=rng.randint(1, 8))), len(entries))
    vocabulary = Tokenizer(models.BPE(entries, []))
    vocabulary.decoder = decoders.ByteLevel()
    return vocabulary


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


def decode_stream(vocabulary: Tokenizer, rng: random.Random) -> float:
    """Microseconds per token of the library's own incremental decoder, on one sequence of random tokens."""
    ids, stream = rng.choices(range(ENTRIES), k=TOKENS // 10), decoders.DecodeStream(skip_special_tokens=True)
    start = time.perf_counter()
    for token in ids:
        stream.step(vocabulary, token)
    return (time.perf_counter() - start) / len(ids) * 1e6


def rows(scheme: Scheme, rng: random.Random) -> Iterator[dict[str, Any]]:
    """One row per case and batch size: the best of three runs."""
    stops = ("\n\u2603", "#\u2603", "</\u2603>", "User\u2603")  # often begun, never completed
    cases = {
        "stream": m.Output(0, stream=True),
        "stream, 4 stop strings": m.Output(0, stream=True, stop=stops),
        "whole": m.Output(0, stream=False),
    }
    for name, output in cases.items():
        for batch in BATCHES:
            records = list(steps(batch, TOKENS // batch, rng, output))
            measure(scheme, records)  # fills the tables
            seconds = min(measure(scheme, records) for _ in range(3))
            microseconds = seconds / (batch * len(records)) * 1e6
            yield {"case": name, "batch": batch, "us_per_token": round(microseconds, 2)}


@click.command("detokenizer", help=described(__doc__))
@click.argument("model_dir", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@report_options
def main(model_dir: Path | None, json_file: Path | None, plot_file: Path | None) -> None:
    """Measure and report."""
    report, rng = Report("detokenizer", json_file, plot_file), random.Random(1)
    if model_dir is None:
        vocabulary = made_up_vocabulary(rng)
        scheme = scheme_of(vocabulary, {"type": "ByteLevel"})
    else:
        vocabulary = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        scheme = load_scheme(model_dir)
    found = list(progress(rows(scheme, rng), 3 * len(BATCHES), "case"))
    found.append(
        {"case": "DecodeStream.step alone", "us_per_token": round(decode_stream(vocabulary, rng), 2)}
    )
    for row in found:
        print(f"{row['case']:<24}{row.get('batch', 1):>5}{row['us_per_token']:>8.2f} us")
    names = [f"{row['case']}, {row.get('batch', 1)}" for row in found]
    bars = {"us per token": [row["us_per_token"] for row in found]}
    report.publish({"tokens": TOKENS, "rows": found}, Chart("Detokenizer", "bars", names, bars))


if __name__ == "__main__":
    main()
