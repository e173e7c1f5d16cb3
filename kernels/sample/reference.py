"""Sampling in plain torch, a row at a time. The functions here are the definition, bit for bit."""

from __future__ import annotations

import math

import torch

from stretto.kernels.sample.state import State

WORD = 0xFFFFFFFF
UNIT = float(1 << 40)
"""The mass of the likeliest token."""


def philox(counter: torch.Tensor, key: tuple[int, int]) -> torch.Tensor:
    """Philox4x32-10. counter: int64 [n, 4] of 32-bit words; returns the same, random."""
    c0, c1, c2, c3 = counter.unbind(1)
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _product(0xD2511F53, c0), _product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = p1[0] ^ c1 ^ k0, p1[1], p0[0] ^ c3 ^ k1, p0[1]
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return torch.stack([c0, c1, c2, c3], dim=1)


def _product(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low word of the 64-bit products, by halves of a: torch has no unsigned 64-bit multiply."""
    low = (a & 0xFFFF) * b
    high = (a >> 16) * b + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def exp(x: torch.Tensor) -> torch.Tensor:
    """e ** x for float32 x in [-87, 88], within 2 units in the last place: Cephes' expf."""
    n = (x * 1.44269504088896341 + 0.5).floor()
    r = x - n * 0.693359375 - n * -2.12194440e-4
    p = torch.full_like(r, 1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
        p = p * r + c
    return (p * (r * r) + r + 1.0) * ((n.int() + 127) << 23).view(torch.float32)


def log(x: torch.Tensor) -> torch.Tensor:
    """Natural logarithm of positive normal float32 x, within 1 unit in the last place: Cephes' logf."""
    m, e = torch.frexp(x)
    low = m < 0.707106781186547524
    f = torch.where(low, m + m, m) - 1.0
    e = torch.where(low, e - 1, e).float()
    p = torch.full_like(f, 7.0376836292e-2)
    for c in (
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    ):
        p = p * f + c
    z = f * f
    y = p * f * z + e * -2.12194440e-4
    return f + (y + z * -0.5) + e * 0.693359375


def gumbel(seed: int, position: int, count: int, device: torch.device) -> torch.Tensor:
    """The noise g of tokens 0 .. count - 1, float32."""
    counter = torch.zeros(-(-count // 4), 4, dtype=torch.int64, device=device)
    counter[:, 0] = torch.arange(len(counter), device=device)
    counter[:, 2], counter[:, 3] = position & WORD, position >> 32 & WORD
    bits = philox(counter, (seed & WORD, seed >> 32 & WORD)).flatten()[:count]
    v = (bits.float() * 2.0**-32 + 2.0**-33).clamp(max=1.0 - 2.0**-24)
    u = 1.0 - v
    waited = torch.where(u < 1.0, (0.0 - log(u)) * (v / (1.0 - u)), v)
    return 0.0 - log(waited)


def deepest(depth: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """The depth down to which the three filters keep tokens."""
    limit = depth.new_tensor(math.inf)
    if 0 < top_k < len(depth):
        limit = depth.kthvalue(top_k).values
    if top_p < 1:
        ordered = depth[depth <= limit].sort().values
        mass = (exp(-ordered.clamp(max=80.0)) * UNIT).long().cumsum(0).double()
        limit = ordered[(mass >= top_p * mass[-1]).nonzero()[0, 0]]
    if min_p > 0:
        limit = torch.minimum(limit, depth.new_tensor(-math.log(min_p)))
    return limit


def sample_row(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, position: int
) -> int:
    """The token of one row, logits [V]; -1 where there is none."""
    top = logits.max()
    if not torch.isfinite(top):
        return -1
    if temperature == 0:
        return int((logits == top).nonzero()[0, 0])
    depth = (top - logits) / torch.full_like(logits, temperature)
    score = gumbel(seed, position, len(logits), logits.device) - depth
    score[depth > deepest(depth, top_k, top_p, min_p)] = -math.inf
    return int((score == score.max()).nonzero()[0, 0])


def sample(
    logits: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, state: State, out: torch.Tensor
) -> None:
    """See `stretto.kernels.sample.sample`."""
    *columns, last_token = state
    wanted = (*(column[slots] for column in columns), positions)
    rows = zip(logits.float(), *(column.tolist() for column in wanted), strict=True)
    out.copy_(torch.tensor([sample_row(*row) for row in rows], dtype=torch.int32))
    last_token[slots] = out.clamp(min=0)
