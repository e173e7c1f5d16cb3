import pytest
import torch

from stretto.kernels import warm
from stretto.kernels.cache import Busy
from stretto.kernels.linear import Linear
from stretto.kernels.warm import Network


class Fake:
    """A kernel that is in the cache, or is not, or that another process compiles."""

    def __init__(self, cached: bool, busy: bool = False) -> None:
        self.cached, self.busy = cached, busy
        self.asked = 0

    def compile(self, wait: bool = True) -> bool:
        self.asked += 1
        if self.busy and not wait:
            raise Busy
        return not self.cached


def test_progress_names_what_comes_once_something_had_to_be_compiled() -> None:
    told: list[str] = []
    kernels = {"a": Fake(True), "b": Fake(False), "c": Fake(True), "d": Fake(False)}
    warm.compile_all(kernels, told.append)
    assert told == ["compiling kernels 3/4: c", "compiling kernels 4/4: d"]
    warm.compile_all({"a": Fake(True)}, told.append)
    assert len(told) == 2


def test_what_another_process_compiles_is_waited_for_at_the_end() -> None:
    told: list[str] = []
    kernels = {"a": Fake(True, busy=True), "b": Fake(False), "c": Fake(True)}
    warm.compile_all(kernels, told.append)
    assert told == ["compiling kernels 1/3: b", "compiling kernels 2/3: c", "compiling kernels 3/3: a"]
    assert [kernel.asked for kernel in kernels.values()] == [2, 1, 1]


def test_the_first_kernel_that_is_not_cached_tells_enough() -> None:
    assert warm.are_cached({"a": Fake(True), "b": Fake(True)})
    last = Fake(True)
    assert not warm.are_cached({"a": Fake(True), "b": Fake(False), "c": last})
    assert not warm.are_cached({"a": Fake(True, busy=True), "c": last})
    assert last.asked == 0


def test_a_network_and_its_sampler_are_all_that_there_is_to_compile() -> None:
    assert list(Network(64, 3, 4, ("float16",)).kernels() | warm.sampler()) == [
        "rms_norm",
        "rope_and_cache",
        "linear float16",
        "paged_attention",
        "silu_and_mul",
        "program",
        "sample",
        "apply_controls",
        "logprobs",
    ]


def test_a_network_over_a_cache_of_smaller_numbers_has_kernels_of_its_own():
    whole, *others = (Network(64, 3, kv_bytes).kernels() for kv_bytes in (4, 2, 1))
    for other in others:
        different = {name for name in whole if whole[name] is not other[name]}
        assert different == {"rope_and_cache", "paged_attention"}


@pytest.mark.parametrize(
    ("dtype", "quantization"),
    [
        ("float16", "none"),
        ("bfloat16", "none"),
        ("float32", "none"),
        ("float16", "int8"),
        ("float16", "int4"),
    ],
)
def test_the_kernels_of_layers_are_known_before_there_are_layers(dtype: str, quantization: str) -> None:
    layer = Linear(torch.zeros(16, 64, dtype=getattr(torch, dtype)), None, quantization)
    known = warm.linear(dtype if quantization == "none" else quantization)
    assert layer.kernels.items() <= known.items()
    assert known.keys() - layer.kernels <= {f"rounding to {quantization}"}


def test_weights_that_torch_multiplies_have_no_kernels() -> None:
    assert warm.linear("float64") == warm.linear("unheard of") == {}
