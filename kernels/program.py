"""Kernel calls recorded once and run many times, in one entry of the pool.

Between two calls from Python lie the interpreter's work and the waking of threads: for a decode of one row
that is a third of the step. A `Program` keeps what calls were made with, and runs them behind each other on
all threads, a barrier after each. It is what a CUDA graph is on a GPU, with the same terms: addresses and
sizes are those of the recording, so whatever changes must be in the memory that the calls point to.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stretto.kernels.buffers import recorded_memory
from stretto.kernels.pool import (
    HEAD,
    Args,
    arguments,
    int64s,
    kernel,
    meet,
    recorded_calls,
    thread_count,
    thread_index,
    unpack,
)

_Args = arguments("calls count")


@intrinsic
def _call(typing: Any, entry: Any, args: Any) -> Any:
    """Run the kernel body at one address on the arguments at another."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer]).as_pointer()
        builder.call(builder.inttoptr(values[0], kind), [builder.inttoptr(values[1], pointer)])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@kernel(_Args)
def program_kernel(pointer: Any) -> None:
    a = unpack(pointer)
    calls, threads = int64s(a.calls), thread_count()
    for i in range(a.count):
        _call(calls[2 * i], calls[2 * i + 1])
        meet(pointer, (i + 1) * threads)
        if thread_index() == 0:
            int64s(calls[2 * i + 1])[: len(HEAD)] = 0  # its counters, for the next run


class Program:
    """The kernel calls that the calling thread makes in a `with` block; they are also carried out there, or
    `deferred` to the first call of the program.

    Only kernels of the pool are recorded; the caller sees to it that nothing else in the block matters, and
    that the memory that the calls work on outlives the program. Buffers (`buffers.py`) are kept by it: the
    thread that recorded may have ended when the program runs.
    """

    def __init__(self, deferred: bool = False) -> None:
        self._deferred = deferred
        self._threads = torch.get_num_threads()
        self._args: list[Args] = []
        self._entries: list[int] = []
        self._memory: list[torch.Tensor] = []

    def __enter__(self) -> Program:
        self._tokens = recorded_calls.set(self._record), recorded_memory.set(self._memory)
        return self

    def __exit__(self, *error: object) -> None:
        calls, memory = self._tokens
        recorded_calls.reset(calls)
        recorded_memory.reset(memory)
        addresses = map(ctypes.addressof, self._args)
        pairs = list(zip(self._entries, addresses, strict=True))
        self._calls = np.array(pairs, np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._entries)

    def _record(self, entry: int, args: Args) -> bool:
        self._entries.append(entry)
        self._args.append(args if self._deferred else type(args).from_buffer_copy(args))
        return not self._deferred

    def __call__(self) -> None:
        """Make the calls again."""
        program_kernel(self._threads, self._calls.ctypes.data, len(self._calls))
