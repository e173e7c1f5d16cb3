"""The definitions of what the benches measure, and the arithmetic.

Seen by the client, from the moment a request is sent:

* **TTFT**, time to first token: until the first piece of the answer that brings a token.
* **E2E**, end-to-end latency: until the end of the answer.
* **TPOT**, time per output token after the first: (E2E - TTFT) / (tokens - 1). One token alone has none.
* **ITL**, inter-token latency: each gap between a piece that brought tokens and the next. All gaps of all
  requests count alike; a piece of several tokens is one end of a gap, and pieces that one read brings have
  gaps of zero.

Of a whole run, which lasts from the first request sent to the last end:

* **request throughput** and **token throughput**: answers, and tokens, per second. Output tokens are those
  the server generated; total tokens include the prompts, cached or not.
* **goodput**: answers per second that kept all objectives given for TTFT and TPOT (DistServe,
  https://arxiv.org/abs/2401.09670). An answer without a TPOT keeps every objective for it.
* **hits and misses**: answers of whose prompt more than half was cached, and the others; their TTFTs are told
  apart where there are both.
* **cache hit rate**: cached prompt tokens / prompt tokens; **device idle share**: idle / (idle + busy) time
  while there was work. Both from the growth of the server's own counters during the run.

Percentiles interpolate linearly between the two nearest values. A failed request counts as failed and nowhere
else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stretto.bench.answer import Answer


class Spread(NamedTuple):
    """Milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float


class Objectives(NamedTuple):
    """Upper bounds in seconds; None: anything will do."""

    ttft: float | None = None
    tpot: float | None = None


class Shares(NamedTuple):
    """What the server's counters say of a run; None where they say nothing."""

    cache_hit_rate: float | None
    device_idle_share: float | None


class Cost(NamedTuple):
    """What the load generator itself took, and how well it kept time."""

    cpu_seconds: float
    cpu_share: float
    """Of one core, while it ran. Near 1 it measures itself: run it on another machine, or ask for less."""
    us_per_piece: float
    late_p99_ms: float
    """99 % of the requests of an open loop were sent at most so long after they were due."""


class Summary(NamedTuple):
    """All figures of a run."""

    answered: int
    failed: int
    seconds: float
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    goodput_per_s: float
    ttft_ms: Spread | None
    tpot_ms: Spread | None
    itl_ms: Spread | None
    e2e_ms: Spread | None
    ttft_hit_ms: Spread | None = None
    ttft_miss_ms: Spread | None = None


def ttft(answer: Answer) -> float:
    """Seconds; an answer without any token has its end for a first token."""
    return (answer.pieces[0] if answer.pieces else answer.ended) - answer.sent


def e2e(answer: Answer) -> float:
    """Seconds."""
    return answer.ended - answer.sent


def tpot(answer: Answer) -> float | None:
    """Seconds; None for fewer than two tokens."""
    return (e2e(answer) - ttft(answer)) / (answer.tokens - 1) if answer.tokens > 1 else None


def itl(answer: Answer) -> list[float]:
    """Seconds of each gap."""
    return [after - before for before, after in pairwise(answer.pieces)]


def samples(answers: Sequence[Answer]) -> dict[str, list[float]]:
    """Milliseconds of all that are well, by name; what has no values is left out."""
    values = {
        "TTFT": [ttft(answer) for answer in answers],
        "TPOT": [value for answer in answers if (value := tpot(answer)) is not None],
        "ITL": [gap for answer in answers for gap in itl(answer)],
        "E2E": [e2e(answer) for answer in answers],
    }
    return {name: [1e3 * second for second in seconds] for name, seconds in values.items() if seconds}


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and percentiles, in the values' unit; None of nothing."""
    if not values:
        return None
    return Spread(float(np.mean(values)), *np.percentile(values, (50, 90, 99)).tolist())


def keeps(answer: Answer, objectives: Objectives) -> bool:
    """Whether an answer is as good as was wanted."""
    per_token = tpot(answer)
    first = objectives.ttft is None or ttft(answer) <= objectives.ttft
    return first and (objectives.tpot is None or per_token is None or per_token <= objectives.tpot)


def well(answers: Sequence[Answer]) -> list[Answer]:
    """Those that did not fail."""
    return [answer for answer in answers if not answer.error]


def summarize(answers: Sequence[Answer], objectives: Objectives) -> Summary:
    """The figures of a run; raises `ValueError` when no request was answered."""
    good = well(answers)
    if not good:
        raise ValueError("no request was answered")
    seconds = max(answer.ended for answer in answers) - min(answer.sent for answer in answers)
    output, prompts = sum(answer.tokens for answer in good), sum(answer.prompt_tokens for answer in good)
    times, hits = samples(good), samples([answer for answer in good if answer.hit])
    misses = samples([answer for answer in good if not answer.hit]) if hits else {}
    return Summary(
        answered=len(good),
        failed=len(answers) - len(good),
        seconds=seconds,
        requests_per_s=len(good) / seconds,
        output_tokens_per_s=output / seconds,
        total_tokens_per_s=(prompts + output) / seconds,
        goodput_per_s=sum(keeps(answer, objectives) for answer in good) / seconds,
        ttft_ms=spread(times.get("TTFT", ())),
        tpot_ms=spread(times.get("TPOT", ())),
        itl_ms=spread(times.get("ITL", ())),
        e2e_ms=spread(times.get("E2E", ())),
        ttft_hit_ms=spread(hits.get("TTFT", ())) if misses else None,
        ttft_miss_ms=spread(misses.get("TTFT", ())),
    )


def shares(before: Mapping[str, float], after: Mapping[str, float]) -> Shares:
    """From two readings of `/metrics`, samples summed over processes."""

    def grown(name: str) -> float:
        return after.get(f"stretto_{name}", 0.0) - before.get(f"stretto_{name}", 0.0)

    idle, busy = grown("device_idle_seconds_total"), grown("device_busy_seconds_total")
    return Shares(
        _share(grown("cached_tokens_total"), grown("prompt_tokens_total")), _share(idle, idle + busy)
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def cost(answers: Sequence[Answer], cpu_seconds: float, seconds: float) -> Cost:
    """Of a generator that took `cpu_seconds` in a run of `seconds`."""
    pieces = sum(len(answer.pieces) for answer in answers)
    late = float(np.percentile([answer.late for answer in answers], 99))
    return Cost(cpu_seconds, cpu_seconds / seconds, 1e6 * cpu_seconds / max(1, pieces), 1e3 * late)
