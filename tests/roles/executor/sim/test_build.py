from pathlib import Path
from typing import Any

import pytest

from stretto.roles.config import Config
from stretto.roles.executor.build import Built, build
from stretto.roles.executor.errors import ConfigError


def make(path: Path, **more: Any) -> Built:
    built = build(Config(model_dir=str(path), device="sim", **more), lambda: None, lambda text: None)
    built.runner.close()
    return built


def test_the_pool_is_that_of_the_gpu(make_tiny: Any) -> None:
    built = make(make_tiny())
    pages = int((141_000_000_000 - 16_060_522_496) * 0.85) // (131_072 * 16)
    assert (built.device, built.dtype, built.pages) == ("simulated h200, llama-3-8b", "bfloat16", pages)


def test_the_pool_may_be_chosen(make_tiny: Any) -> None:
    built = make(make_tiny(), kv_memory="100tokens", page_size=8, sim_gpu="l40s", sim_model="qwen3-4b")
    assert (built.device, built.pages) == ("simulated l40s, qwen3-4b", 13)


def test_an_fp8_pool_has_twice_the_pages_where_the_gpu_knows_the_type(make_tiny: Any) -> None:
    whole, fp8 = (make(make_tiny(), kv_cache_dtype=dtype, kv_memory="1GiB") for dtype in ("auto", "fp8"))
    assert (whole.pages, fp8.pages) == (512, 1024)
    with pytest.raises(ConfigError, match=r"needs a GPU of compute capability 8\.9 or newer"):
        make(make_tiny(), kv_cache_dtype="fp8", sim_gpu="a100")


@pytest.mark.parametrize("kept", ["bfloat16", "float16"])
def test_the_pool_may_be_named_by_the_type_the_gpu_computes_in(make_tiny: Any, kept: str) -> None:
    built = make(make_tiny(), dtype=kept, kv_cache_dtype=kept, kv_memory="1GiB")
    assert (built.dtype, built.pages) == (kept, 512)
    with pytest.raises(ConfigError, match=f"here {kept}, or in fp8"):
        make(make_tiny(), dtype=kept, kv_cache_dtype="float32")


def test_a_model_that_does_not_fit_is_refused(make_tiny: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"the weights take 141\.1 GB and the GPU has 80 GB; choose a larger"
    ):
        make(make_tiny(), sim_gpu="h100", sim_model="llama-3-70b")


def test_another_type_is_refused(make_tiny: Any) -> None:
    with pytest.raises(ConfigError, match="leave --dtype out"):
        make(make_tiny(), dtype="float32")


def test_host_memory_is_as_far_away_as_the_link_makes_it(make_tiny: Any) -> None:
    tiers = make(make_tiny(), host_kv_memory="1600tokens", kv_memory="160tokens").tiers
    assert tiers is not None
    assert (tiers.host_pages, tiers.disk, tiers.copy_rate) == (100, False, 50e9 / (131_072 * 16))
    assert make(make_tiny()).tiers is None


def test_there_is_nothing_to_store(make_tiny: Any) -> None:
    with pytest.raises(ConfigError, match="a simulated GPU has no KV that could be stored"):
        make(make_tiny(), disk_kv="/tmp")
