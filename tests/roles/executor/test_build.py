from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stretto.kernels import warm
from stretto.roles.config import Config
from stretto.roles.executor import build as module
from stretto.roles.executor.build import build, compute_dtype, has_fp8, make_device, runner_kind
from stretto.roles.executor.device_cpu import CpuDevice
from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.runner import Runner
from stretto.roles.executor.runner_device import DeviceRunner
from stretto.roles.executor.runner_planned import PlannedRunner

CPU = torch.device("cpu")


def make(path: Path, **more: Any) -> Any:
    lines: list[str] = []
    built = build(Config(model_dir=str(path), device="cpu", **more), lambda: None, lines.append)
    built.runner.close()
    return built, lines


def test_what_is_built_is_what_the_config_says(make_tiny: Any) -> None:
    path = make_tiny()
    built, lines = make(path, kv_memory="100tokens", page_size=8)
    assert (built.device, built.dtype, built.pages) == ("cpu", "float32", 13)
    assert lines[0] == f"loading {path}"


def test_the_default_pool_holds_every_slot_at_full_length(make_tiny: Any) -> None:
    built, _ = make(make_tiny(), max_seqs=3, max_model_len=100)
    assert built.pages == 3 * 7


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that are made ready, in order."""
    names: list[str] = []
    monkeypatch.setattr(warm, "compile_all", lambda kernels, progress: names.extend(kernels))
    return names


def test_quantized_layers_have_kernels_of_their_own(make_tiny: Any, compiled: list[str]) -> None:
    make(make_tiny(), quantization="int4")
    kinds = [name for name in compiled if " int" in name or "of int" in name]
    assert sorted(kinds) == ["linear int4", "linear int8", "rows of int4", "rows of int8"]


def test_what_is_not_computed_on_a_cpu_is_not_quantized() -> None:
    config = Config(device="sim", quantization="int8")
    with pytest.raises(ConfigError, match="--quantization int8 is for --device cpu"):
        build(config, lambda: None, lambda text: None)


def test_an_fp8_pool_holds_four_times_the_tokens_of_float32(make_tiny: Any) -> None:
    whole, _ = make(make_tiny(), kv_memory="1MiB")
    fp8, _ = make(make_tiny(), kv_memory="1MiB", kv_cache_dtype="fp8")
    assert (whole.pages, fp8.pages) == (128, 512)
    assert fp8.dtype == "float32"
    assert [cache.dtype for cache in fp8.runner._cache] == [torch.float8_e4m3fn] * 2


@pytest.mark.parametrize("options", [{"kv_cache_dtype": "float16"}, {"quantization": "int8"}])
def test_a_float16_pool_holds_twice_the_tokens_of_float32(options: dict[str, Any], make_tiny: Any) -> None:
    built, _ = make(make_tiny(), kv_memory="1MiB", **options)
    assert (built.pages, built.dtype) == (256, "float32")
    assert [cache.dtype for cache in built.runner._cache] == [torch.float16] * 2


def test_a_float32_pool_is_to_be_had_with_quantized_weights(make_tiny: Any) -> None:
    built, _ = make(make_tiny(), kv_memory="1MiB", quantization="int8", kv_cache_dtype="float32")
    assert (built.pages, built.runner._cache.keys.dtype) == (128, torch.float32)


@pytest.mark.parametrize(("dtype", "scales"), [("fp8_e4m3", [[[0.5, 0.5], [2.0, 2.0]]] * 2), ("auto", [])])
def test_the_tiers_below_know_the_scales(
    dtype: str, scales: Any, make_tiny: Any, add_scales: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(module, "build_tiers", lambda *args: told.append(args[-1]))
    units = {"k_scale": torch.tensor(0.5), "v_scale": torch.tensor(2.0)}
    make(add_scales(make_tiny(), units), kv_cache_dtype=dtype)
    assert told == [scales]


@pytest.mark.parametrize(("capability", "known"), [((8, 0), False), ((8, 9), True), ((9, 0), True)])
def test_gpus_before_capability_8_9_have_no_fp8(
    capability: tuple[int, int], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda place: capability)
    assert has_fp8(torch.device("cuda")) is known
    assert has_fp8(CPU) is True


def test_nonsense_for_the_pool_is_refused(make_tiny: Any) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        make(make_tiny(), kv_memory="much")


def test_the_cpu_computes_in_float32_whatever_is_stored() -> None:
    assert compute_dtype("auto", "bfloat16", CPU) == torch.float32
    assert compute_dtype("float32", "float16", CPU) == torch.float32
    with pytest.raises(ConfigError, match="the CPU computes in float32"):
        compute_dtype("bfloat16", "bfloat16", CPU)


def test_a_gpu_computes_in_what_is_stored_unless_told() -> None:
    gpu = torch.device("cuda")
    assert compute_dtype("auto", "bfloat16", gpu) == torch.bfloat16
    assert compute_dtype("float16", "bfloat16", gpu) == torch.float16


def kind_on(place: str, windows: tuple[int, ...] = (0,), states: int = 0, **more: Any) -> Any:
    model: Any = SimpleNamespace(kv_windows=windows, state_pages=states)
    return runner_kind(Config(**more), torch.device(place), model)


def test_a_gpu_makes_its_rows_where_one_block_table_serves_all_layers() -> None:
    assert kind_on("cuda").keywords == {"graphs": True}
    assert kind_on("cuda", graphs=False).func is DeviceRunner
    assert kind_on("cuda", graphs=False).keywords == {"graphs": False}
    assert kind_on("cuda", windows=(0, 64)) is kind_on("cuda", states=1) is kind_on("cpu") is Runner


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused() -> None:
    device = make_device("auto", lambda: None)
    assert isinstance(device, CpuDevice)
    with pytest.raises(ConfigError, match="try --device cpu"):
        make_device("cuda", lambda: None)


def test_attention_that_is_planned_has_a_runner_of_its_own() -> None:
    model: Any = SimpleNamespace(kv_windows=(0,), state_pages=0)
    attention: Any = object()
    kind: Any = runner_kind(Config(), torch.device("cuda"), model, attention)
    assert (kind.func, kind.keywords) == (PlannedRunner, {"attention": attention})


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_an_attention_of_gpus_is_refused_elsewhere(device: Any, make_tiny: Any) -> None:
    config = Config(model_dir=str(make_tiny()), device=device, attention_backend="flashinfer")
    with pytest.raises(ConfigError, match="--attention-backend flashinfer is for --device cuda"):
        build(config, lambda: None, lambda text: None)


def test_layers_with_windows_are_groups_of_pages_of_equal_size(make_tiny: Any) -> None:
    some = {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1, "num_hidden_layers": 4}
    built, _ = make(make_tiny("Qwen2", **some), kv_memory="160tokens")
    assert (built.windows, built.pages) == ((0, 12, 12, 12), 4 * 10)
    built, _ = make(make_tiny("Mistral", sliding_window=64), kv_memory="160tokens")
    assert (built.windows, built.pages) == ((64,), 10)


def test_kv_of_windows_is_not_kept_below_the_device(make_tiny: Any) -> None:
    with pytest.raises(ConfigError, match="leave out --host-kv-memory"):
        make(make_tiny("Mistral", sliding_window=64), host_kv_memory="160tokens")
