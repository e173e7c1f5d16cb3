"""Host memory for KV below the device, and the copies between the two.

The layout is page-first, [pages, layers, 2, page_size, kv_heads, head_dim]: a page is one run of memory,
which one transfer brings to the device, and one write to a file. Bytes are moved as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from stretto.kernels.move_pages import gather_pages, scatter_pages
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.kv import KVCache, PageShape, readable

STAGED_PAGES = 16
"""Pages that cross the border of a GPU together: 32 MiB of an 8B model, enough to fill the link."""


class Mover(Protocol):
    """Copies pages between device and host; for work on a stream."""

    def out(self, device: np.ndarray, host: np.ndarray) -> None:
        """Host page host[i] = device page device[i], int32 [n]."""

    def into(self, device: np.ndarray, host: np.ndarray) -> None:
        """Device page device[i] = host page host[i], int32 [n]."""


def allocate_host(shape: PageShape, pages: int, place: torch.device) -> torch.Tensor:
    """Memory of so many host pages, uninitialised; for a GPU it is pinned, so that copies run by themselves.

    Raises ConfigError when there is no room for it.
    """
    size = (pages, shape.layers, 2, shape.page_size, shape.kv_heads, shape.head_dim)
    try:
        memory = torch.empty(size, dtype=shape.dtype)
    except RuntimeError as error:
        need = readable(pages * shape.bytes)
        raise ConfigError(f"no room for {need} of host KV; give a smaller --host-kv-memory") from error
    if place.type == "cuda":
        _pin(memory)
    return memory


def _pin(memory: torch.Tensor) -> None:
    """Pin just this: torch's own pinned allocator rounds up to a power of two."""
    status = torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)
    if int(status):
        size = readable(memory.nbytes)
        raise ConfigError(f"the driver refuses to pin {size} of host KV; give a smaller --host-kv-memory")


class HostMover:
    """Between the pool of a CPU and its host memory, which are the same kind: one copy of each page."""

    def __init__(self, cache: KVCache, host: torch.Tensor) -> None:
        self._cache, self._host = cache, host

    def out(self, device: np.ndarray, host: np.ndarray) -> None:
        for source, target in zip(torch.from_numpy(device).split(1), host.tolist(), strict=True):
            gather_pages(*self._cache, source, self._host[target : target + 1])

    def into(self, device: np.ndarray, host: np.ndarray) -> None:
        for target, source in zip(torch.from_numpy(device).split(1), host.tolist(), strict=True):
            scatter_pages(*self._cache, target, self._host[source : source + 1])


Part = tuple[torch.Tensor, list[int], torch.Tensor]
"""Device pages, host pages, and the rows of the buffer between them."""


class StagedMover:
    """Between a GPU and pinned memory, through a buffer on the GPU that has the host's layout."""

    def __init__(self, cache: KVCache, host: torch.Tensor) -> None:
        self._cache, self._host = cache, host
        self._staged = torch.empty(STAGED_PAGES, *host.shape[1:], dtype=host.dtype, device=cache.keys.device)

    def out(self, device: np.ndarray, host: np.ndarray) -> None:
        for pages, targets, staged in self._parts(device, host):
            gather_pages(*self._cache, pages, staged)
            for row, target in zip(staged, targets, strict=True):
                self._host[target].copy_(row, non_blocking=True)

    def into(self, device: np.ndarray, host: np.ndarray) -> None:
        for pages, sources, staged in self._parts(device, host):
            for row, source in zip(staged, sources, strict=True):
                row.copy_(self._host[source], non_blocking=True)
            scatter_pages(*self._cache, pages, staged)

    def _parts(self, device: np.ndarray, host: np.ndarray) -> list[Part]:
        pages = self._bring(torch.from_numpy(device))
        return [
            (part, host[at : at + len(part)].tolist(), self._staged[: len(part)])
            for at, part in zip(range(0, len(host), STAGED_PAGES), pages.split(STAGED_PAGES), strict=True)
        ]

    def _bring(self, pages: torch.Tensor) -> torch.Tensor:
        """To the device, from pinned memory: from other memory the host waits for the stream."""
        if self._staged.is_cuda:
            pages = pages.pin_memory()
        return pages.to(self._staged.device, non_blocking=True)


class ModelledMover:
    """Between a GPU that is not there and its host: only time passes."""

    def __init__(self, spend: Callable[[float], None], page_seconds: float) -> None:
        self._spend, self._page_seconds = spend, page_seconds

    def out(self, device: np.ndarray, host: np.ndarray) -> None:
        self._spend(len(device) * self._page_seconds)

    def into(self, device: np.ndarray, host: np.ndarray) -> None:
        self._spend(len(device) * self._page_seconds)
