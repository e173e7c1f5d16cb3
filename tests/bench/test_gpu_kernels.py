import torch

from stretto.bench import gpu_kernels

CPU = torch.device("cpu")


def test_a_tiny_run_measures_every_op():
    rows = gpu_kernels.measure(CPU, tiny=True)
    assert [row.op for row in rows] == ["decode attention", "prompt attention", "rotary and cache write"]
    assert all(row.microseconds > 0 and row.copy_share > 0 for row in rows)
    assert [row.product_share > 0 for row in rows] == [False, True, False]


def test_decoding_moves_all_keys_and_values_once():
    assert gpu_kernels.decode(CPU, torch.float32, 2, 40).bytes == 2 * 2 * 40 * 8 * 128 * 4


def test_a_row_of_a_prompt_computes_on_what_it_sees():
    """Four rows see 7, 8, 9 and 10 positions: two products, of a multiplication and an addition each."""
    assert gpu_kernels.extend(CPU, torch.float32, 4, 10).flops == 4 * (7 + 8 + 9 + 10) * 32 * 128
