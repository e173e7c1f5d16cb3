"""From a configuration to a runner: device, model, pool.

Everything that imports torch is reached from here, so that the actor can set the environment
first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch

from stretto.kernels.paged_attention import paged_attention
from stretto.kernels.paged_attention.flashinfer import FlashInferAttention
from stretto.roles.config import Config
from stretto.roles.executor.build_attention import build_attention, check_scales, refuse_attention
from stretto.roles.executor.build_kernels import compiling
from stretto.roles.executor.build_tiers import Tiers, build_tiers
from stretto.roles.executor.device import Device
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.kv import PageShape, count_pages, default_bytes, pool_dtype
from stretto.roles.executor.largest_step import ROWS, largest_plan, pool_bytes, run_largest
from stretto.roles.executor.models import build_model
from stretto.roles.executor.models.interface import Model
from stretto.roles.executor.models.loader import Loader
from stretto.roles.executor.runner import Runner
from stretto.roles.executor.runner_device import DeviceRunner
from stretto.roles.executor.runner_planned import PlannedRunner
from stretto.roles.executor.weights.model_config import ModelConfig, load_model_config
from stretto.roles.executor.weights.safetensors_dir import Weights


class Built(NamedTuple):
    """A runner, and what may be told about it."""

    runner: Runner
    device: str
    dtype: str
    pages: int
    tiers: Tiers | None = None
    """What lies below the pool."""
    windows: tuple[int, ...] = (0,)
    state_pages: int = 0
    """The last two as in `Hello`."""


def build(config: Config, wake: Callable[[], None], progress: Callable[[str], None]) -> Built:
    """Load the model, make the pool. `wake` is called from other threads when a step is done or has failed.

    Raises ConfigError or ModelError, with a sentence for the user.
    """
    if config.device == "sim":
        _refuse_quantization(config)
        refuse_attention(config)
        from stretto.roles.executor.sim.build import build_simulated

        return build_simulated(config, wake, progress)
    device = make_device(config.device, wake)
    model_config = load_model_config(config.model_dir)
    _refuse_tiers(config, model_config)
    max_len = _max_len(config, model_config)
    progress(f"loading {config.model_dir}")
    loader = _loader(config, model_config, device)
    with compiling(model_config, loader, config.quantization, progress) as compile_rest:
        model = build_model(model_config, loader, max_len)
        attention = loader.attention if isinstance(loader.attention, FlashInferAttention) else None
        if attention is not None:
            check_scales(loader.scales)
        heads, groups = (model.kv_heads, model.head_dim), len(model.kv_windows)
        shape = PageShape(model.kv_layers, config.page_size, *heads, model.kv_dtype, groups)
        longest = -(-max_len // config.page_size)
        kind = runner_kind(config, device.torch_device, model, attention)
        stream = None
        if device.torch_device.type == "cuda":
            progress("running the largest step")
            rows, blocks = config.max_batched_tokens or ROWS, longest * groups + model.state_pages
            largest = largest_plan(rows, config.max_seqs, max_len, blocks)
            stream = run_largest(kind, device, model, shape, largest, config.max_seqs, longest)
        pages = _count_pages(config, shape, device, max_len)
        compile_rest()
    cache = shape.allocate(pages, device.torch_device)
    scales = [[part.tolist() for part in pair if part is not None] for pair in loader.scales]
    tiers = build_tiers(config, device, cache, shape, longest, wake, scales)
    runner = kind(
        device=device,
        model=model,
        cache=cache,
        slots=config.max_seqs,
        pages_per_slot=longest,
        wake=wake,
        transfers=None if tiers is None else tiers.transfers,
        stream=stream,
    )
    dtype, layout = str(model.dtype).removeprefix("torch."), (model.kv_windows, model.state_pages)
    return Built(runner, device.name, dtype, pages, tiers, *layout)


def runner_kind(
    config: Config, place: torch.device, model: Model, attention: FlashInferAttention | None = None
) -> Callable[..., Runner]:
    """What makes the runner. On a GPU rows are made there, where all layers share one block table and
    attention needs no plan from the host.
    """
    if attention is not None:
        return partial(PlannedRunner, attention=attention)
    if place.type == "cuda" and len(model.kv_windows) == 1 and not model.state_pages:
        return partial(DeviceRunner, graphs=config.graphs)
    return Runner


def make_device(name: str, alarm: Callable[[], None]) -> Device:
    """The device of that name; "auto" is the GPU where torch can use one, else the CPU."""
    usable = name != "cpu" and torch.cuda.is_available()
    if name == "cuda" and not usable:
        raise ConfigError("--device cuda, but torch finds no usable GPU; try --device cpu")
    device: Any
    if usable:
        from stretto.roles.executor.device_cuda import CudaDevice

        device = CudaDevice(alarm)
    else:
        from stretto.roles.executor.device_cpu import CpuDevice

        device = CpuDevice(alarm)
    return cast(Device, device)


def _loader(config: Config, model_config: ModelConfig, device: Device) -> Loader:
    dtype = compute_dtype(config.dtype, model_config.dtype, device.torch_device)
    if device.torch_device.type != "cpu":
        _refuse_quantization(config)
    place = device.torch_device
    attention = build_attention(config, model_config, place, dtype) or paged_attention
    on_cpu, quantized = place.type == "cpu", config.quantization != "none"
    kv_dtype = pool_dtype(config.kv_cache_dtype, dtype, has_fp8(place), on_cpu, quantized)
    return Loader(Weights(config.model_dir), place, dtype, config.quantization, kv_dtype, attention)


def has_fp8(place: torch.device) -> bool:
    """Whether a KV pool there may be fp8: GPUs know the type since compute capability 8.9."""
    return place.type == "cpu" or torch.cuda.get_device_capability(place) >= (8, 9)


def _refuse_tiers(config: Config, model: ModelConfig) -> None:
    if model.window_layers and (config.host_kv_memory or config.disk_kv):
        raise ConfigError(
            "the model's layers look back through sliding windows, and such KV is kept on the device only; "
            "leave out --host-kv-memory and --disk-kv"
        )


def _refuse_quantization(config: Config) -> None:
    if config.quantization != "none":
        raise ConfigError(f"--quantization {config.quantization} is for --device cpu; leave it out")


def compute_dtype(wanted: str, stored: str, place: torch.device) -> torch.dtype:
    """Type of the activations: on a CPU always float32, elsewhere what is wanted or what is stored."""
    if place.type == "cpu" and wanted not in ("auto", "float32"):
        raise ConfigError(f"--dtype {wanted}: the CPU computes in float32; leave --dtype out")
    name = wanted if wanted != "auto" else "float32" if place.type == "cpu" else stored
    return cast(torch.dtype, getattr(torch, name))


def _max_len(config: Config, model: ModelConfig) -> int:
    longest = model.max_position_embeddings
    return min(config.max_model_len or longest, longest)


def _count_pages(config: Config, shape: PageShape, device: Device, max_len: int) -> int:
    free = device.free_memory()
    if device.torch_device.type == "cuda":
        default = pool_bytes(config.gpu_memory, free, device.total_memory(), shape)
    else:
        default = default_bytes(shape, free, config.max_seqs, max_len)
    return count_pages(config.kv_memory, shape, free, default)
