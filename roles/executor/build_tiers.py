"""From a configuration to what lies below the device's pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stretto.roles.config import Config
from stretto.roles.executor.device import Device, Stream
from stretto.roles.executor.device_cpu import free_host_memory
from stretto.roles.executor.disk_kv import DiskKV, ensure_directory
from stretto.roles.executor.disk_worker import DiskWorker
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.fingerprint import fingerprint
from stretto.roles.executor.host_kv import HostMover, Mover, StagedMover, allocate_host
from stretto.roles.executor.kv import KVCache, PageShape, count_host_pages, parse_size
from stretto.roles.executor.transfers import Transfers
from stretto.roles.executor.weights.layout import weight_files

BUFFER_CONTEXTS = 2
BUFFER_BYTES = 2 << 30
"""Host memory that a disk tier gets where none is asked for: room for so many of the longest sequences, but
not more than so much."""
PROBE_PAGES = 4
PROBES = 3


class Tiers(NamedTuple):
    """What `Hello` says of the lower tiers, and what does the moves."""

    transfers: Transfers
    host_pages: int
    disk: bool
    copy_rate: float
    """Pages per second."""


def build_tiers(
    config: Config,
    device: Device,
    cache: KVCache,
    shape: PageShape,
    context_pages: int,
    wake: Callable[[], None],
    kv_scales: Sequence[object] = (),
) -> Tiers | None:
    """Host memory and file store as the configuration wants them, None where it wants none.

    context_pages: of the longest sequence. kv_scales: of an fp8 pool, which its bytes depend on. Raises
    ConfigError, with a sentence for the user.
    """
    pages = count_host_pages(config.host_kv_memory, shape, free_host_memory())
    if not pages and not config.disk_kv:
        return None
    pages = pages or max(1, min(BUFFER_CONTEXTS * context_pages, BUFFER_BYTES // shape.bytes))
    place = device.torch_device
    host, stream = allocate_host(shape, pages, place), device.stream()
    mover: Mover = (StagedMover if place.type == "cuda" else HostMover)(cache, host)
    disk = _disk(config, device, shape, wake, kv_scales) if config.disk_kv else None
    rate = _measure(device, stream, mover, min(pages, cache.keys.shape[1], PROBE_PAGES))
    transfers = Transfers(device, stream, mover, host, disk, shape.bytes, wake)
    return Tiers(transfers, pages, disk is not None, rate)


def _disk(
    config: Config,
    device: Device,
    shape: PageShape,
    wake: Callable[[], None],
    kv_scales: Sequence[object],
) -> DiskWorker:
    root, size = Path(config.disk_kv).expanduser(), parse_size(config.disk_kv_size, shape, "--disk-kv-size")
    try:
        ensure_directory(root)
    except OSError as error:
        raise ConfigError(f"--disk-kv {root} cannot be written to: {error.strerror}") from None
    model = Path(config.model_dir)
    facts = (shape, device.torch_device.type, config.dtype, config.quantization, *kv_scales)
    name = fingerprint([model / "config.json", *weight_files(model)], facts)
    return DiskWorker(DiskKV(root, name, size), wake)


def _measure(device: Device, stream: Stream, mover: Mover, pages: int) -> float:
    """Pages per second that go to the device. The first tries pay for memory that is touched for the first
    time. What the pages hold does not matter yet.
    """
    numbers, seconds = np.arange(pages, dtype=np.int32), 0.0
    for _ in range(PROBES):
        began, ended = device.event(), device.event()
        stream.submit(lambda: mover.out(numbers, numbers))
        stream.record(began)
        stream.submit(lambda: mover.into(numbers, numbers))
        stream.record(ended)
        while not ended.done:
            time.sleep(1e-4)
        seconds = ended.time - began.time
    return pages / seconds if seconds > 0 else 0.0
