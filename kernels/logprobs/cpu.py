"""Log-probabilities on the CPU: a row is a unit of work, passed over three or four times while in cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stretto.kernels import simd
from stretto.kernels.pool import arguments, claim, floats, int32s, kernel, unpack
from stretto.kernels.rows import largest
from stretto.kernels.sample.noise import exp

BLOCK = 1024
"""Tokens of one float32 sum."""
_GROUP = 4 * simd.LANES
_Args = arguments("logits tokens values ranks top_ids top rows vocabulary stride width")
_ZERO, _ONE, _INF, _LOWEST = np.float32(0), np.float32(1), np.float32(np.inf), np.float32(-87)


@simd.device()
def _log_sum(logits: Any, start: int, count: int, most: Any) -> Any:
    """log(sum(exp(logit - most))), float64."""
    shift, lowest = simd.splat(most), simd.splat(_LOWEST)
    total = np.float64(0)
    for block in range(0, count, BLOCK):
        sums = simd.splat(_ZERO)
        for i in range(block, block + BLOCK, simd.LANES):
            n = max(0, min(simd.LANES, count - i))
            depth = simd.sub(simd.load_first(logits, start + i, n), shift)
            sums = simd.add(sums, exp(simd.maximum(simd.keep_first(depth, n, lowest), lowest)))
        total += np.float64(simd.sum_lanes(sums))
    return np.log(total)


@simd.device()
def _count_above(logits: Any, start: int, count: int, value: Any) -> Any:
    """How many logits are larger than `value`, int32."""
    limit, one, zero = simd.splat(value), simd.splat(_ONE), simd.splat(_ZERO)
    found = zero
    for i in range(0, count, simd.LANES):
        n = min(simd.LANES, count - i)
        part = simd.keep_first(simd.load_first(logits, start + i, n), n, limit)
        found = simd.add(found, simd.where_less(limit, part, one, zero))
    return np.int32(simd.sum_lanes(found))


@simd.device()
def _has_above(logits: Any, start: int, value: Any) -> bool:
    """Whether one of 64 logits is larger than `value`."""
    first = simd.maximum(simd.load(logits, start), simd.load(logits, start + simd.LANES))
    start += 2 * simd.LANES
    second = simd.maximum(simd.load(logits, start), simd.load(logits, start + simd.LANES))
    return simd.max_lanes(simd.maximum(first, second)) > value


@simd.device()
def _insert(top: Any, top_ids: Any, to: int, kept: int, value: Any, token: int) -> None:
    """Put a token behind those of the `kept` first that are not smaller; what follows moves on by one."""
    at = to + kept
    while at > to and top[at - 1] < value:
        top[at], top_ids[at] = top[at - 1], top_ids[at - 1]
        at -= 1
    top[at], top_ids[at] = value, token


@simd.device()
def _find_top(logits: Any, start: int, count: int, top: Any, top_ids: Any, to: int, width: int) -> None:
    """The `width` largest logits and their ids, in order. Groups without a candidate are skipped whole."""
    kept = 0
    for group in range(0, count, _GROUP):
        whole = group + _GROUP <= count
        if kept == width and whole and not _has_above(logits, start + group, top[to + width - 1]):
            continue
        for i in range(group, min(group + _GROUP, count)):
            value = logits[start + i]
            if kept < width:
                _insert(top, top_ids, to, kept, value, i)
                kept += 1
            elif value > top[to + width - 1]:
                _insert(top, top_ids, to, width - 1, value, i)


@kernel(_Args)
def logprobs_kernel(pointer: Any) -> None:
    a = unpack(pointer)
    logits, tokens = floats(a.logits), int32s(a.tokens)
    values, ranks, top_ids, top = floats(a.values), int32s(a.ranks), int32s(a.top_ids), floats(a.top)
    row = claim(pointer)
    while row < a.rows:
        start, to, token = row * a.stride, row * a.width, np.int64(tokens[row])
        most = largest(logits, start, a.vocabulary)
        if not np.isfinite(most) or token < 0:
            values[row], ranks[row] = np.nan, 0
            top[to : to + a.width] = np.nan
            top_ids[to : to + a.width] = -1
        else:
            chosen, total = logits[start + token], _log_sum(logits, start, a.vocabulary, most)
            values[row] = (np.float64(chosen) - np.float64(most)) - total
            ranks[row] = 1 + _count_above(logits, start, a.vocabulary, chosen)
            if a.width > 0:
                _find_top(logits, start, a.vocabulary, top, top_ids, to, a.width)
            for i in range(to, to + a.width):
                top[i] = (np.float64(top[i]) - np.float64(most)) - total
        row = claim(pointer)


def fits(logits: torch.Tensor, *outputs: torch.Tensor) -> bool:
    """Whether this kernel handles these tensors: float32 on the CPU, logits of a row side by side."""
    return (
        logits.is_cpu
        and logits.dtype is torch.float32
        and logits.stride(-1) == 1
        and all(output.is_contiguous() for output in outputs)
    )


def logprobs(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    values: torch.Tensor,
    ranks: torch.Tensor,
    top_ids: torch.Tensor,
    top: torch.Tensor,
) -> None:
    """See `stretto.kernels.logprobs.logprobs`."""
    rows, vocabulary = logits.shape
    logprobs_kernel(
        1 if rows == 1 else torch.get_num_threads(),
        logits.data_ptr(),
        tokens.data_ptr(),
        values.data_ptr(),
        ranks.data_ptr(),
        top_ids.data_ptr(),
        top.data_ptr(),
        rows,
        vocabulary,
        logits.stride(0),
        top.shape[1],
    )
