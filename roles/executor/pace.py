"""How fast the device computes prompts, measured at boot: from it the scheduler chooses how much of a prompt
a step may compute, and whether a copy is cheaper than computing anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np

from stretto.roles import messages as m

LEAST, MOST, TRIES = 256, 2048, 4
"""Tokens of the prompts that are tried. A fast device computes the longest more than once: the first run
of a shape may compile for it."""
ENOUGH_SECONDS = 0.1
"""A step of this length is measured well enough, and long enough for whoever waits for the server."""


def prompt_plan(tokens: int, page_size: int, groups: int = 1, state_pages: int = 0) -> m.Plan:
    """A step that computes a prompt in the first pages, of which each group of layers needs its own."""
    pages = np.arange(state_pages + -(-tokens // page_size) * groups, dtype=np.int32)
    admit = m.Admit(slot=0, length=0, pages=pages.tobytes(), sampling=m.Sampling())
    return m.Plan(
        step=0,
        admits=[admit],
        chunks=np.array([0, tokens, 1], np.int32).tobytes(),
        chunk_ids=bytes(4 * tokens),
    )


async def prefill_rate(
    compute: Callable[[m.Plan], Awaitable[m.Result]], room: int, page_size: int, *layout: int
) -> float:
    """Tokens per second, the best of a few steps; `room` is the longest prompt that there is room for, the
    layout as in `prompt_plan`.
    """
    best, tokens = 0.0, min(LEAST, room)
    for _ in range(TRIES):
        clock = (await compute(prompt_plan(tokens, page_size, *layout))).clock
        seconds = max(clock.ended - clock.started, 1e-9)
        best = max(best, tokens / seconds)
        if seconds > ENOUGH_SECONDS:
            break
        wanted = round(1.25 * tokens * ENOUGH_SECONDS / seconds)
        tokens = min(max(tokens, wanted), MOST, room)
    return best
