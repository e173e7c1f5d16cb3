import torch

from stretto.bench import gpu_kernels

CPU, BEST = torch.device("cpu"), gpu_kernels.Yardsticks(1e9, 1e9)


def test_a_tiny_run_measures_every_op():
    rows, failures = gpu_kernels.measure(CPU, True, BEST)
    assert not failures
    assert [row.op for row in rows] == ["decode attention", "prompt attention", "rotary and cache write"]
    assert all(row.microseconds > 0 and row.copy_share > 0 for row in rows)
    assert [row.product_share > 0 for row in rows] == [False, True, False]


def test_decoding_moves_all_keys_and_values_once():
    assert gpu_kernels.decode(CPU, torch.float32, 2, 40).bytes == 2 * 2 * 40 * 8 * 128 * 4


def test_a_row_of_a_prompt_computes_on_what_it_sees():
    """Four rows see 7, 8, 9 and 10 positions: two products, of a multiplication and an addition each."""
    assert gpu_kernels.extend(CPU, torch.float32, [4], 10).flops == 4 * (7 + 8 + 9 + 10) * 32 * 128
    assert gpu_kernels.extend(CPU, torch.float32, [1, 4], 10).flops == 4 * (10 + 7 + 8 + 9 + 10) * 32 * 128


def test_a_prompt_reads_its_keys_in_their_type_and_its_queries_in_theirs():
    case = gpu_kernels.extend(CPU, torch.bfloat16, [4], 10, gpu_kernels.FP8)
    assert (case.op, case.shape) == ("prompt attention, fp8", "4 of 10")
    assert case.bytes == 2 * (10 * 8 + 4 * 32 * 2) * 128


def test_a_case_that_fails_costs_itself_alone():
    def cases(device, dtype, tiny):
        yield gpu_kernels.Case("bad", "3", lambda: 1 / 0, 1.0)
        yield gpu_kernels.Case("good", "3", lambda: None, 1.0)

    rows, failures = gpu_kernels.measure(CPU, True, BEST, cases)
    assert [row.op for row in rows] == ["good"]
    assert failures == ["bad 3: ZeroDivisionError: division by zero"]
