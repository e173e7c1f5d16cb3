"""How much of a GPU's memory the KV pool may have: the largest step is run once, before there is a pool.

What that step allocates stays with torch's allocator, which keeps it for the stream that the step ran on, or
in the model's workspace, and serves all later steps of that stream. So what is free afterwards is free for
good, but for what graphs take.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from stretto.roles import messages as m
from stretto.roles.executor.device import Device, Stream
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.kv import PageShape, parse_size, readable
from stretto.roles.executor.models.interface import Model
from stretto.roles.executor.runner import Runner

ROWS = 8192
"""Of a step whose size is left to the device's speed: the scheduler plans no larger ones
(`scheduler.limits.MAX_BUDGET`)."""
FILTERED = m.Sampling(temperature=1.0, top_p=0.9)


def largest_plan(rows: int, slots: int, max_len: int, pages_per_slot: int) -> m.Plan:
    """Prompts of `rows` tokens, as long as they may be, and in all slots that are left a decode at the end of
    the longest context. Every page is page 0, so a pool of one page will do: what is computed is nonsense.

    pages_per_slot: all that an `Admit` may name.
    """
    counts = [max_len] * (rows // max_len) + [rows % max_len] * (rows % max_len > 0)
    chunks = [(slot, count, 1) for slot, count in enumerate(counts[:slots])]
    decodes = list(range(len(chunks), slots))
    pages = bytes(4 * pages_per_slot)
    admits = [m.Admit(slot, 0, pages, FILTERED) for slot, _, _ in chunks]
    admits += [m.Admit(slot, max_len - 1, pages, FILTERED) for slot in decodes]
    return m.Plan(
        step=1,
        admits=admits,
        chunks=np.array(chunks, np.int32).tobytes(),
        chunk_ids=bytes(4 * sum(count for _, count, _ in chunks)),
        decodes=np.array(decodes, np.int32).tobytes(),
    )


def run_largest(
    kind: Callable[..., Runner],
    device: Device,
    model: Model,
    shape: PageShape,
    plan: m.Plan,
    slots: int,
    pages_per_slot: int,
) -> Stream:
    """Run the plan to its end, in a runner of that kind. Returns the stream that later steps shall run on.

    Raises ConfigError when there is no room for it.
    """
    stream = device.stream()
    try:
        runner = kind(
            device=device,
            model=model,
            cache=shape.allocate(1, device.torch_device),
            slots=slots,
            pages_per_slot=pages_per_slot,
            wake=_nobody,
            stream=stream,
        )
        runner.launch(plan)
        while not runner.collect():
            time.sleep(1e-3)
    except torch.OutOfMemoryError as error:
        rows = len(plan.chunk_ids) // 4
        raise ConfigError(
            f"no room for a step of {rows} prompt tokens and {slots} sequences beside the weights; give a "
            "smaller --max-batched-tokens or --max-seqs"
        ) from error
    return stream


def _nobody() -> None:
    """Nobody waits to be woken."""


def pool_bytes(wanted: str, free: int, total: int, shape: PageShape) -> int:
    """Bytes of the pool with which the GPU is as full as --gpu-memory allows.

    wanted: a share of all its memory, such as "0.9", or a size; `free` and `total` are the GPU's, in bytes,
    with everything but the pool on it. Raises ConfigError for nonsense and where nothing is left.
    """
    allowed = _share(wanted, total) or parse_size(wanted, shape, "--gpu-memory")
    room = min(allowed - (total - free), free)
    if room < shape.bytes:
        raise ConfigError(
            f"--gpu-memory {wanted} is {readable(allowed)}, and {readable(total - free)} are taken by "
            "weights, the largest step and other programs; give more, or a smaller --max-batched-tokens, "
            "--max-seqs or model"
        )
    return room


def _share(wanted: str, total: int) -> int | None:
    try:
        share = float(wanted)
    except ValueError:
        return None
    if not 0 < share <= 1:
        raise ConfigError(f"--gpu-memory {wanted} is no share of the memory; write it as 0.9 or as 70GiB")
    return int(total * share)
