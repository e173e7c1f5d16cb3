"""The KV pool: how many pages it has, and the memory they are.

The pool is two tensors that all layers share, [layers, pages, page_size, kv_heads, head_dim]. On the CPU it
is allocated but not written: the operating system commits a page of memory when a token first arrives
there, so a large pool costs nothing at start-up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch

from stretto.roles.executor.errors import ConfigError

UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
CPU_SHARE = 0.25
CPU_LIMIT = 2 << 30
CPU_TOKENS_PER_SLOT = 2048
"""What the default pool wants on a CPU, within a quarter of the free memory and 2 GiB: a server of this size
shares its machine with others."""


class KVCache(NamedTuple):
    """Keys and values, each [layers, pages, page_size, kv_heads, head_dim]."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True)
class PageShape:
    """What one page holds: tokens of a group of layers."""

    layers: int
    page_size: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    groups: int = 1
    """Of the model's layers: the same tokens need a page in each of them."""

    @property
    def bytes(self) -> int:
        """Memory of one page, keys and values of all layers."""
        return 2 * self.layers * self.page_size * self.kv_heads * self.head_dim * self.dtype.itemsize

    def allocate(self, pages: int, place: torch.device) -> KVCache:
        """A pool of so many pages, uninitialised. Raises ConfigError when there is no room for it."""
        shape = (self.layers, pages, self.page_size, self.kv_heads, self.head_dim)
        try:
            return KVCache(*(torch.empty(shape, dtype=self.dtype, device=place) for _ in range(2)))
        except RuntimeError as error:  # also torch.OutOfMemoryError
            size = readable(pages * self.bytes)
            raise ConfigError(f"no room for a KV pool of {size}; give a smaller --kv-memory") from error


def pool_dtype(
    wanted: str, compute: torch.dtype, has_fp8: bool, has_float16: bool = False, quantized: bool = False
) -> torch.dtype:
    """Type of the pool for --kv-cache-dtype, where activations are of the type `compute`.

    has_fp8: whether the device knows numbers of eight bits. has_float16: whether its kernels take a pool in
    float16 whatever they compute in, as a CPU's do. quantized: whether the weights are, and outputs no longer
    those of the exact ones. Raises ConfigError for what the device has not.
    """
    if wanted == "auto":
        return torch.float16 if quantized and has_float16 else compute
    if wanted.startswith("fp8"):
        if not has_fp8:
            raise ConfigError(
                f"--kv-cache-dtype {wanted} needs a GPU of compute capability 8.9 or newer, and this one is "
                "older; leave it out"
            )
        return torch.float8_e4m3fn
    kept = cast(torch.dtype, getattr(torch, wanted))
    if kept is not compute and not (has_float16 and kept is torch.float16):
        raise ConfigError(_not_kept(wanted, compute, has_float16))
    return kept


def _not_kept(wanted: str, compute: torch.dtype, on_cpu: bool) -> str:
    if on_cpu:
        return f"--kv-cache-dtype {wanted}: a CPU keeps KV in float32, float16 or fp8; leave it out"
    name = str(compute).removeprefix("torch.")
    return (
        f"--kv-cache-dtype {wanted}: a GPU keeps KV in the type it computes in, here {name}, or in fp8; "
        f"leave it out, or give --dtype {wanted}"
    )


def count_pages(wanted: str, shape: PageShape, free: int, default: int) -> int:
    """Pages of the pool, at least one.

    `wanted` is the user's --kv-memory, such as "512MiB" or "4096tokens", or empty for `default` bytes; `free`
    is the memory that can be had, in bytes. Raises ConfigError for nonsense and for more than there is.
    """
    size = parse_size(wanted, shape, "--kv-memory") if wanted else min(default, free)
    if size > free:
        raise ConfigError(
            f"--kv-memory {wanted} is {readable(size)}, but only {readable(free)} of memory are free"
        )
    if size < shape.bytes:
        raise ConfigError(
            f"a KV page of {shape.page_size} tokens takes {readable(shape.bytes)}, and the pool has only "
            f"{readable(size)}; give at least --kv-memory {shape.page_size}tokens"
        )
    return size // shape.bytes


def default_bytes(shape: PageShape, free: int, slots: int, max_len: int) -> int:
    """Size of a CPU's pool when the user does not say."""
    pages_per_slot = -(-min(max_len, CPU_TOKENS_PER_SLOT) // shape.page_size) * shape.groups
    return min(slots * pages_per_slot * shape.bytes, int(free * CPU_SHARE), CPU_LIMIT)


def count_host_pages(wanted: str, shape: PageShape, free: int) -> int:
    """Pages of host memory for `--host-kv-memory`, of `free` bytes that can be had. Raises ConfigError."""
    size = parse_size(wanted, shape, "--host-kv-memory") if wanted else 0
    if size > free:
        raise ConfigError(
            f"--host-kv-memory {wanted} is {readable(size)}, but only {readable(free)} of memory are free"
        )
    return size // shape.bytes


def parse_size(text: str, shape: PageShape, option: str) -> int:
    """Bytes of a size as users write it, in whole pages where it is in tokens. Raises ConfigError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text.lower())
    unit = match[2] if match else ""
    if match and unit in ("token", "tokens"):
        return int(-(-float(match[1]) // shape.page_size)) * shape.groups * shape.bytes
    if match and unit in UNITS:
        return int(float(match[1]) * UNITS[unit])
    raise ConfigError(f"{option} {text!r} is not a size; write it as 512MiB, 2GiB or 4096tokens")


def readable(size: float) -> str:
    """A number of bytes, for people."""
    unit = next((u for u in ("GiB", "MiB", "KiB") if size >= UNITS[u.lower()]), "bytes")
    return f"{size / UNITS.get(unit.lower(), 1):.4g} {unit}"
