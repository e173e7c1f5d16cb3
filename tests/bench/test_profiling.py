"""What a recording costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stretto.bench import profiling, recording
from stretto.bench.profiling import TOKENS, Work, measure, record_microseconds, span_microseconds


class Server:
    """Its steps take 10 ms, and 1 ms more while it is recorded."""

    url = "http://server"

    def __init__(self) -> None:
        self.recorded = False
        self.steps = self.busy = self.idle = 0.0

    def metrics(self) -> dict[str, float]:
        return {
            "stretto_steps_total": self.steps,
            "stretto_device_busy_seconds_total": self.busy,
            "stretto_device_idle_seconds_total": self.idle,
        }

    def post(self, url: str, body: Mapping[str, Any]) -> bytes:
        if url.endswith("_profile"):
            self.recorded = url.endswith("start_profile")
            return b'{"traceEvents": [' + b", ".join([b'{"ph": "X"}'] * 3 * TOKENS + [b'{"ph": "M"}']) + b"]}"
        self.steps += TOKENS
        self.busy += 0.010 * TOKENS
        self.idle += 0.001 * TOKENS * self.recorded
        return b""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(recording, "post", server.post)
    monkeypatch.setattr(profiling, "REQUESTS", 1)
    return server


def test_a_recorded_server_is_compared_with_itself(server: Server) -> None:
    figures = measure(server, rounds=3)  # type: ignore[arg-type]
    assert figures == pytest.approx({"ms_per_step": 10.0, "recorded_ratio": 1.1, "spans_per_step": 3.0})
    assert not server.recorded


def test_spans_are_measured_and_the_probe_is_gone_afterwards() -> None:
    before = Work.act
    recorded, bare = span_microseconds(calls=100)
    assert 0 < bare < recorded
    assert Work.act is before
    assert record_microseconds(calls=100) > 0
