"""The dictionary of metrics, and the means to count them on the shared board.

Every role process owns one row of the board (`shm.board`), a memory page that the supervisor keeps: counting
is one addition, a restarted role goes on where its predecessor stopped, and any gateway can answer `/metrics`
and `/health` for the whole graph without asking anyone.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal, NamedTuple

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


class Metric(NamedTuple):
    """One metric of a role; its name on `/metrics` is `stretto_` + `name`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    buckets: tuple[float, ...] = ()

    @property
    def cells(self) -> int:
        """Board cells it takes: buckets, overflow and sum for a histogram, else one."""
        return len(self.buckets) + 2 if self.kind == "histogram" else 1


METRICS: dict[str, tuple[Metric, ...]] = {
    "gateway": (
        Metric("requests_total", "counter", "Requests accepted for work by the gateway."),
        Metric("requests_finished_total", "counter", "Requests that ended with stop or length."),
        Metric("requests_cut_total", "counter", "Of those, requests that ended with length."),
        Metric("requests_failed_total", "counter", "Requests that ended with an error."),
        Metric("requests_cancelled_total", "counter", "Requests whose client left or cancelled."),
        Metric("requests_live", "gauge", "Requests between acceptance and terminal event."),
        Metric("requests_queued", "gauge", "Requests that have had no event yet."),
        Metric("tokens_queued", "gauge", "Prompt tokens of those, as estimated before they are tokenized."),
        Metric("requests_refused_total", "counter", "Requests refused because the queue was full."),
        Metric(
            "requests_resubmitted_total", "counter", "Prompts sent again after a death behind the gateway."
        ),
        Metric("streams_resumed_total", "counter", "Streams taken up again by a client that came back."),
        Metric("slow_readers_total", "counter", "Connections cut because their client did not read."),
        Metric("connections_live", "gauge", "Open WebSocket connections."),
        Metric("time_to_first_token_seconds", "histogram", "Arrival to first text (TTFT).", SECONDS),
        Metric("inter_token_latency_seconds", "histogram", "Between streamed events (ITL).", SECONDS),
        Metric("request_latency_seconds", "histogram", "Arrival to terminal event (E2E).", SECONDS),
        Metric("request_prompt_tokens", "histogram", "Prompt tokens of a sequence that ended.", TOKENS),
        Metric("request_generated_tokens", "histogram", "Tokens it generated.", TOKENS),
    ),
    "tokenizer": (
        Metric("prompts_total", "counter", "Prompts tokenized."),
        Metric("prompts_rejected_total", "counter", "Prompts refused before the scheduler."),
    ),
    "scheduler": (
        Metric("steps_total", "counter", "Steps whose result came back."),
        Metric("steps_followed_total", "counter", "Steps that followed another while there was work."),
        Metric("steps_ahead_total", "counter", "Of those, steps queued before the one ahead had ended."),
        Metric("device_busy_seconds_total", "counter", "Seconds the device computed."),
        Metric("device_idle_seconds_total", "counter", "Seconds the device waited while there was work."),
        Metric("prompt_tokens_total", "counter", "Prompt tokens of admitted requests."),
        Metric("cached_tokens_total", "counter", "Of those, tokens found in the prefix cache."),
        Metric("host_cached_tokens_total", "counter", "Of those cached, tokens that host memory had."),
        Metric("disk_cached_tokens_total", "counter", "Of those cached, tokens that were read from disk."),
        Metric("generated_tokens_total", "counter", "Tokens generated and kept."),
        Metric("wasted_tokens_total", "counter", "Tokens computed after a stop that was learnt a step late."),
        Metric("retractions_total", "counter", "Sequences put back for want of pages."),
        Metric("evicted_pages_total", "counter", "Cached KV pages given up for others."),
        Metric("new_token_ratio", "gauge", "Share of its possible output expected of a running request."),
        Metric("queue_oldest_seconds", "gauge", "Since the arrival of the request that waits longest."),
        Metric("requests_running", "gauge", "Requests that hold a slot."),
        Metric("requests_waiting", "gauge", "Requests in the queue."),
        Metric("kv_pages_free", "gauge", "KV pages that hold nothing."),
        Metric("kv_pages_cached", "gauge", "KV pages held by the prefix cache alone."),
        Metric("kv_pages_owned", "gauge", "KV pages that running sequences use."),
        Metric("kv_pages", "gauge", "KV pages in the pool."),
        Metric("host_hit_pages_total", "counter", "KV pages that sequences got from host memory."),
        Metric("disk_hit_pages_total", "counter", "KV pages that sequences got from disk."),
        Metric(
            "swapped_pages_total",
            "counter",
            "KV pages of retracted sequences that were moved to host memory.",
        ),
        Metric("demoted_pages_total", "counter", "KV pages copied from the pool to host memory."),
        Metric("promoted_pages_total", "counter", "KV pages copied from host memory to the pool."),
        Metric("host_evicted_pages_total", "counter", "KV pages dropped from host memory."),
        Metric("host_kv_pages", "gauge", "KV pages of host memory."),
        Metric("host_kv_pages_cached", "gauge", "Of those, pages that hold something."),
        Metric("disk_kv_pages", "gauge", "KV pages in the file store."),
    ),
    "executor": (
        Metric("kv_out_bytes_total", "counter", "Bytes of KV copied from the device to host memory."),
        Metric("kv_in_bytes_total", "counter", "Bytes of KV copied from host memory to the device."),
        Metric("kv_saved_bytes_total", "counter", "Bytes of KV written to disk."),
        Metric("kv_loaded_bytes_total", "counter", "Bytes of KV read from disk."),
        Metric("kv_disk_errors_total", "counter", "KV pages that could not be written, read or trusted."),
    ),
    "detokenizer": (Metric("streams_live", "gauge", "Requests the detokenizer keeps text for."),),
}

FIRST_CELL = 8
"""Cells before it are the row's head, which `shm.board` names."""


def offsets(role: str) -> dict[str, tuple[int, Metric]]:
    """Where each metric of a role starts on its board row."""
    at, table = FIRST_CELL, {}
    for metric in METRICS[role]:
        table[metric.name] = (at, metric)
        at += metric.cells
    return table


def clear_gauges(role: str, row: memoryview[float]) -> None:
    """For a process that has ended: it has no live requests, no queue. What it counted stays."""
    for at, metric in offsets(role).values():
        if metric.kind == "gauge":
            row[at] = 0.0


class Meter:
    """Counts the metrics of one role on its board row, a writable `memoryview` of doubles."""

    def __init__(self, role: str, row: memoryview[float]) -> None:
        self._row = row
        self._table = offsets(role)
        self._at = {name: at for name, (at, _) in self._table.items()}

    def add(self, name: str, amount: float = 1.0) -> None:
        self._row[self._at[name]] += amount

    def set(self, name: str, value: float) -> None:
        self._row[self._at[name]] = value

    def observe(self, name: str, value: float) -> None:
        """Add one value to a histogram: its bucket (`value <= bound`) and the sum."""
        at, metric = self._table[name]
        bucket = bisect_left(metric.buckets, value)
        self._row[at + bucket] += 1
        self._row[at + len(metric.buckets) + 1] += value

    def value(self, name: str) -> float:
        return self._row[self._at[name]]
