"""The measured pace of prompts."""

from __future__ import annotations

import asyncio

import numpy as np

from stretto.roles import messages as m
from stretto.roles.executor.pace import prefill_rate


def measure(seconds_per_token: float, fixed: float = 0.0, room: int = 10_000) -> tuple[float, list[int]]:
    sizes = []

    async def compute(plan: m.Plan) -> m.Result:
        tokens = len(plan.chunk_ids) // 4
        assert np.frombuffer(plan.chunks, np.int32).tolist() == [0, tokens, 1]
        assert len(plan.admits[0].pages) == 4 * -(-tokens // 16)
        sizes.append(tokens)
        return m.Result(0, b"", m.Clock(0.0, 1.0, 1.0 + fixed + tokens * seconds_per_token, 0.0))

    return asyncio.run(prefill_rate(compute, room, 16)), sizes


def test_a_slow_device_is_measured_once() -> None:
    rate, sizes = measure(1 / 512)
    assert (round(rate), sizes) == (512, [256])


def test_a_fast_device_is_measured_where_it_is_busy() -> None:
    rate, sizes = measure(1e-6, fixed=1e-3)
    assert (round(rate), sizes) == (round(2048 / 3.048e-3), [256, 2048, 2048, 2048])


def test_a_device_of_middling_speed_is_not_asked_for_more_than_enough() -> None:
    rate, sizes = measure(1 / 3200)
    assert (round(rate), sizes) == (3200, [256, 400])


def test_no_prompt_is_longer_than_there_is_room_for() -> None:
    assert measure(1e-6, room=40)[1] == [40] * 4
