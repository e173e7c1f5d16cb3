from stretto.kernels import warm


def test_progress_names_every_kernel_in_turn():
    told = []
    kernels = warm.network(64, 3) | warm.sampler()
    warm.compile_all(kernels, told.append)
    assert [text.split(": ")[1] for text in told] == [
        "rms_norm",
        "rope_and_cache",
        "silu_and_mul",
        "paged_attention",
        "program",
        "sample",
        "apply_controls",
        "logprobs",
    ]
    assert told[0].startswith("compiling kernels 1/8")


def test_a_network_over_a_cache_of_smaller_numbers_has_kernels_of_its_own():
    whole, *others = (warm.network(64, 3, kv_bytes) for kv_bytes in (4, 2, 1))
    for other in others:
        different = {name for name in whole if whole[name] is not other[name]}
        assert different == {"rope_and_cache", "paged_attention"}
