"""One op, one name: a package per op with a plain torch reference and the kernels that stand in for it.

    rms_norm, rope_and_cache, paged_attention, silu_and_mul, gelu_and_mul, linear
    apply_controls, sample, count_tokens, logprobs
    prepare_step, copy_pages, move_pages

`kernels/<op>/reference.py` is the definition: torch, any device, obviously right. `cpu.py` is the same op
on the CPU, in float32; `triton.py` is it on a GPU. The function that `kernels/<op>/__init__.py` offers picks
by the tensor's device. Results of a row never depend on the other rows of a call; each op says how it keeps
that promise.

Triton is imported when a tensor on a GPU first comes (`late.py`), configurations are chosen beforehand for
every generation of GPU (`generation.py`), and `compiled.py` compiles them all where there is no GPU.

Importing this package imports neither torch nor numba.
"""
