from stretto.kernels import warm


class Fake:
    """A kernel that is in the cache, or is not."""

    def __init__(self, cached: bool) -> None:
        self.cached = cached

    def compile(self) -> bool:
        return not self.cached


def test_progress_names_what_comes_once_something_had_to_be_compiled() -> None:
    told: list[str] = []
    kernels = {"a": Fake(True), "b": Fake(False), "c": Fake(True), "d": Fake(False)}
    warm.compile_all(kernels, told.append)
    assert told == ["compiling kernels 3/4: c", "compiling kernels 4/4: d"]
    warm.compile_all({"a": Fake(True)}, told.append)
    assert len(told) == 2


def test_a_network_and_its_sampler_are_all_that_there_is_to_compile() -> None:
    assert list(warm.network(64, 3) | warm.sampler()) == [
        "rms_norm",
        "rope_and_cache",
        "silu_and_mul",
        "paged_attention",
        "program",
        "sample",
        "apply_controls",
        "logprobs",
    ]


def test_a_network_over_a_cache_of_smaller_numbers_has_kernels_of_its_own():
    whole, *others = (warm.network(64, 3, kv_bytes) for kv_bytes in (4, 2, 1))
    for other in others:
        different = {name for name in whole if whole[name] is not other[name]}
        assert different == {"rope_and_cache", "paged_attention"}
