import torch

from stretto.kernels import warm


def test_progress_names_every_kernel_in_turn():
    told = []
    warm.compile_all(64, 3, [torch.float16, torch.float16], told.append)
    assert [text.split(": ")[1] for text in told] == [
        "rms_norm",
        "rope_and_cache",
        "silu_and_mul",
        "sample",
        "paged_attention",
        "linear float16",
    ]
    assert told[0].startswith("compiling kernels 1/6")
