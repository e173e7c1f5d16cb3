import threading
import weakref

import torch

from stretto.kernels.buffers import Buffers
from stretto.kernels.linear import Linear
from stretto.kernels.program import Program
from stretto.kernels.rms_norm import rms_norm


def record(layer, x, out):
    """A program that puts norm(x) in x, then the layer's product of it in out."""
    weight = torch.rand(x.shape[1])
    with Program() as program:
        rms_norm(x, x, weight, 1e-5)
        layer(x, out)
    program.weight = weight
    return program


def test_calls_are_made_while_they_are_recorded_and_again_on_new_values(nan):
    layer, x, out = Linear(torch.randn(500, 96)), torch.randn(5, 96), nan(5, 500)
    first = x.clone()
    program = record(layer, x, out)
    assert len(program) == 2
    expected = out.clone()
    for _ in range(3):
        x.copy_(first)
        out.fill_(float("nan"))
        program()
        assert torch.equal(out, expected)
    x.copy_(torch.randn(5, 96))
    again = x.clone()
    program()
    rms_norm(again, again, program.weight, 1e-5)
    assert torch.equal(out, layer(again))


def test_buffers_of_the_thread_that_recorded_outlive_it(nan):
    layer = Linear(torch.randn(500, 96), quantization="int8")
    x, out, made = torch.randn(30, 96), nan(30, 500), []
    buffers = Buffers()

    def record_and_end():
        with Program() as program:
            buffer = weakref.ref(buffers.least(64))
            layer(x, out)
        made.extend([program, buffer])

    thread = threading.Thread(target=record_and_end)
    thread.start()
    thread.join()
    program, buffer = made
    assert buffer() is not None
    expected = out.clone()
    out.fill_(float("nan"))
    program()
    assert torch.equal(out, expected)
    made.clear()
    program = None
    assert buffer() is None


def test_deferred_calls_are_made_by_the_program_alone(nan):
    layer, x, out, weight = Linear(torch.randn(500, 96)), torch.randn(5, 96), nan(5, 500), torch.rand(96)
    expected = x.clone()
    rms_norm(expected, expected, weight, 1e-5)
    with Program(deferred=True) as program:
        rms_norm(x, x, weight, 1e-5)
        layer(x, out)
    assert out.isnan().all()
    program()
    assert torch.equal(x, expected)
    assert torch.equal(out, layer(expected))


def test_a_program_runs_on_one_thread_as_on_many():
    layer, x, threads = (
        Linear(torch.randn(500, 96).half(), None, "int8"),
        torch.randn(40, 96),
        torch.get_num_threads(),
    )
    outs = torch.empty(2, 40, 500)
    try:
        for count, out in zip((1, threads), outs, strict=True):
            torch.set_num_threads(count)
            with Program() as program:
                layer(x, out)
            out.zero_()
            program()
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], layer(x))


def test_calls_outside_of_the_block_are_not_recorded():
    layer, x = Linear(torch.randn(50, 30)), torch.randn(3, 30)
    with Program() as program:
        pass
    layer(x)
    assert len(program) == 0
    program()
