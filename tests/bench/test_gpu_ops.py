import torch

from stretto.bench import gpu_kernels, gpu_ops

CPU = torch.device("cpu")


def test_a_tiny_run_measures_every_op():
    best = gpu_kernels.Yardsticks(1e9, 1e9)
    rows, failures = gpu_kernels.measure(CPU, True, best, gpu_ops.cases)
    assert not failures
    sampled = [f"sample, {filters}" for filters in gpu_ops.FILTERS]
    moves = ["page copy", "page gather", "page scatter"]
    ops = ["residual and norm", "gate", *sampled, "penalties", "log-probabilities", *moves, "preparation"]
    assert [row.op for row in rows] == ops
    assert all(row.microseconds > 0 and row.copy_share > 0 for row in rows)


def test_a_page_is_read_and_written_once():
    case = next(gpu_ops.pages(CPU, torch.bfloat16, 3, 2))
    assert case.bytes == 2 * 3 * 2 * 2 * 16 * 8 * 128 * 2


def test_a_residual_goes_both_ways_in_float32():
    assert gpu_ops.norm(CPU, torch.bfloat16, 3, 5).bytes == 3 * 5 * (2 + 2 + 4 + 4)
