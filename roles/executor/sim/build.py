"""From a configuration to a runner on a simulated GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import cast

import torch

from stretto.kernels import warm
from stretto.roles.config import Config
from stretto.roles.executor.build import Built
from stretto.roles.executor.build_tiers import Tiers
from stretto.roles.executor.device import Device, Stream
from stretto.roles.executor.device_sim import SimDevice
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.host_kv import ModelledMover
from stretto.roles.executor.kv import PageShape, count_host_pages, count_pages, pool_dtype
from stretto.roles.executor.sim.cost import Roofline, fixed
from stretto.roles.executor.sim.gpus import GPUS, LINKS, POOL_SHARE
from stretto.roles.executor.sim.models import room, simulated_model
from stretto.roles.executor.sim.runner import Absent, SimulatedRunner
from stretto.roles.executor.sim.script import Script
from stretto.roles.executor.transfers import Transfers
from stretto.roles.executor.weights.model_config import load_model_config

DTYPES = {"auto": torch.bfloat16, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""By --dtype; two bytes a number, of which `models.room` and `cost.Roofline` know the size alone."""


def build_simulated(config: Config, wake: Callable[[], None], progress: Callable[[str], None]) -> Built:
    """A runner that takes the time of `config.sim_model` on `config.sim_gpu`; see `build.build`."""
    if config.dtype not in DTYPES:
        raise ConfigError(f"--dtype {config.dtype}: a simulated GPU computes in 16 bits; leave --dtype out")
    gpu, model, dtype = GPUS[config.sim_gpu], simulated_model(config.sim_model), DTYPES[config.dtype]
    kv_dtype = pool_dtype(config.kv_cache_dtype, dtype, gpu.fp8)
    shape = PageShape(model.num_layers, config.page_size, model.num_kv_heads, model.head_dim, kv_dtype)
    free = room(gpu, model)
    pages = count_pages(config.kv_memory, shape, free, int(free * POOL_SHARE))
    warm.compile_all(warm.sampler(), progress)
    tokens = load_model_config(config.model_dir)
    device = SimDevice(wake, f"simulated {config.sim_gpu}, {config.sim_model}", free)
    max_len = min(config.max_model_len or model.max_position_embeddings, model.max_position_embeddings)
    tiers = _tiers(config, device, shape, wake)
    roofline = Roofline(gpu, model, kv_item_bytes=kv_dtype.itemsize)
    runner = SimulatedRunner(
        seconds=fixed(config.sim_step_ms / 1e3) if config.sim_step_ms else roofline,
        script=Script(tokens.vocab_size, tokens.eos_token_ids, config.sim_output_tokens),
        device=device,
        model=Absent(tokens.vocab_size, shape.layers, shape.kv_heads, shape.head_dim, dtype, kv_dtype),
        cache=shape.allocate(pages, torch.device("meta")),
        slots=config.max_seqs,
        pages_per_slot=-(-max_len // config.page_size),
        wake=wake,
        transfers=None if tiers is None else tiers.transfers,
    )
    return Built(runner, device.name, str(dtype).removeprefix("torch."), pages, tiers)


def _tiers(config: Config, device: SimDevice, shape: PageShape, wake: Callable[[], None]) -> Tiers | None:
    """Host memory that is not there either: only the time of the copies passes."""
    if config.disk_kv:
        raise ConfigError("--disk-kv: a simulated GPU has no KV that could be stored; leave it out")
    pages = count_host_pages(config.host_kv_memory, shape, sys.maxsize)
    if not pages:
        return None
    stream, seconds = device.stream(), shape.bytes / LINKS[config.sim_gpu]
    mover = ModelledMover(stream.spend, seconds)
    transfers = Transfers(cast(Device, device), cast(Stream, stream), mover, None, None, shape.bytes, wake)
    return Tiers(transfers, pages, False, 1 / seconds)
