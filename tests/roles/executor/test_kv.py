from functools import partial

import pytest
import torch

from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.kv import CPU_LIMIT, PageShape, count_pages, default_bytes, pool_dtype

CPU = torch.device("cpu")
SHAPE = PageShape(layers=2, page_size=16, kv_heads=3, head_dim=64, dtype=torch.float32)
GIB = 1 << 30


def test_a_page_holds_keys_and_values_of_all_layers() -> None:
    assert SHAPE.bytes == 2 * 2 * 16 * 3 * 64 * 4


@pytest.mark.parametrize(
    ("wanted", "pages"),
    [
        ("48KiB", 1),
        ("1MiB", 21),
        ("1.5 MiB", 32),
        ("1mb", 20),
        ("2GiB", 43690),
        ("4096tokens", 256),
        ("17 tokens", 2),
        ("1token", 1),
    ],
)
def test_sizes_are_in_bytes_or_tokens(wanted: str, pages: int) -> None:
    assert count_pages(wanted, SHAPE, free=4 * GIB, default=GIB) == pages


@pytest.mark.parametrize("wanted", ["lots", "12", "GiB", "-1GiB", "1e3MiB", "3 apples"])
def test_nonsense_is_refused_with_what_to_write_instead(wanted: str) -> None:
    with pytest.raises(ConfigError, match="512MiB, 2GiB or 4096tokens"):
        count_pages(wanted, SHAPE, free=GIB, default=GIB)


def test_more_than_there_is_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"--kv-memory 3GiB is 3 GiB, but only 1.5 GiB"):
        count_pages("3GiB", SHAPE, free=3 * GIB // 2, default=GIB)


def test_less_than_a_page_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least --kv-memory 16tokens"):
        count_pages("47KiB", SHAPE, free=GIB, default=GIB)


def test_the_default_is_used_within_what_is_free() -> None:
    assert count_pages("", SHAPE, free=GIB, default=96 << 10) == 2
    assert count_pages("", SHAPE, free=96 << 10, default=GIB) == 2


def test_the_default_on_a_cpu_is_modest() -> None:
    assert default_bytes(SHAPE, free=64 * GIB, slots=2, max_len=100) == 2 * 7 * SHAPE.bytes
    assert default_bytes(SHAPE, free=64 * GIB, slots=2, max_len=1 << 20) == 2 * 128 * SHAPE.bytes
    assert default_bytes(SHAPE, free=GIB, slots=4096, max_len=8192) == GIB // 4
    assert default_bytes(SHAPE, free=64 * GIB, slots=4096, max_len=8192) == CPU_LIMIT


def test_the_pool_has_the_layout_of_the_kernels() -> None:
    cache = SHAPE.allocate(5, CPU)
    assert cache.keys.shape == cache.values.shape == (2, 5, 16, 3, 64)
    assert cache.keys.dtype == torch.float32


def test_a_pool_without_room_names_the_option() -> None:
    with pytest.raises(ConfigError, match="give a smaller --kv-memory"):
        SHAPE.allocate(1 << 40, CPU)


def test_the_pool_is_of_the_compute_type_or_fp8() -> None:
    assert pool_dtype("auto", torch.bfloat16, has_fp8=False) is torch.bfloat16
    assert pool_dtype("fp8", torch.bfloat16, has_fp8=True) is torch.float8_e4m3fn
    assert pool_dtype("fp8_e4m3", torch.float32, has_fp8=True) is torch.float8_e4m3fn


def test_on_a_cpu_the_pool_may_be_float16_and_is_where_weights_are_quantized() -> None:
    cpu = partial(pool_dtype, compute=torch.float32, has_fp8=True, has_float16=True)
    assert cpu("auto") is torch.float32
    assert cpu("float16") is cpu("auto", quantized=True) is torch.float16
    assert cpu("fp8", quantized=True) is torch.float8_e4m3fn


def test_on_a_cpu_the_pool_may_be_float32_whatever_the_weights_are() -> None:
    cpu = partial(pool_dtype, compute=torch.float32, has_fp8=True, has_float16=True)
    assert cpu("float32") is cpu("float32", quantized=True) is torch.float32
    with pytest.raises(ConfigError, match="a CPU keeps KV in float32, float16 or fp8; leave it out"):
        cpu("bfloat16")


@pytest.mark.parametrize("compute", ["float32", "float16", "bfloat16"])
def test_on_a_gpu_the_pool_is_of_the_type_it_computes_in(compute: str) -> None:
    dtype = getattr(torch, compute)
    assert pool_dtype(compute, dtype, has_fp8=False) is dtype
    for other in {"float32", "float16", "bfloat16"} - {compute}:
        words = f"here {compute}, or in fp8; leave it out, or give --dtype {other}"
        with pytest.raises(ConfigError, match=words):
            pool_dtype(other, dtype, has_fp8=True)


def test_fp8_is_refused_where_the_device_has_none() -> None:
    with pytest.raises(
        ConfigError, match=r"--kv-cache-dtype fp8 needs a GPU of compute capability 8\.9 or new"
    ):
        pool_dtype("fp8", torch.bfloat16, has_fp8=False)
