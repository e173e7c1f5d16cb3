"""Compiled kernels on torch's own OpenMP pool.

A CPU kernel is a numba `cfunc` that every thread of the pool runs once over a shared struct of arguments.
The pool is the one that torch's matrix products use, reached through the OpenMP runtime that torch itself
has loaded: two pools (torch's and numba's) would take the cores from each other whenever both wait for
work.

Measured, two cores (Zen 5), microseconds that one small kernel adds between two linear layers: this pool
0-3; `numba.prange` on a second libgomp 2 (and no such library in a bare container); on numba's workqueue
layer 56-79. There is also nothing of numba's parallel transform to compile.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_runtime = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
_parallel = _runtime.GOMP_parallel
_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
_parallel.restype = None

for _name in ("omp_get_thread_num", "omp_get_num_threads", "GOMP_barrier"):
    _address = ctypes.cast(getattr(_runtime, _name), ctypes.c_void_p).value
    llvmlite.binding.add_symbol(f"stretto_{_name}", _address)

_UNBOUNDED = 1 << 60
thread_index = types.ExternalFunction("stretto_omp_get_thread_num", types.int32())
thread_count = types.ExternalFunction("stretto_omp_get_num_threads", types.int32())
barrier = types.ExternalFunction("stretto_GOMP_barrier", types.void())
"""Wait until every thread of this call has come here."""


class Args(ctypes.Structure):
    """Base of a kernel's arguments. Pointers and sizes are int64 fields; `claimed` counts work handed out."""

    _fields_ = (("claimed", ctypes.c_int64),)


def arguments(ints: str, floats: str = "") -> type[Args]:
    """An `Args` with the named int64 fields, then the named float64 fields."""
    fields = [(name, ctypes.c_int64) for name in ints.split()]
    fields += [(name, ctypes.c_double) for name in floats.split()]  # type: ignore[misc]
    return type("Args", (Args,), {"_fields_": fields})


def _record(args: type[Args]) -> Any:
    """The numba record type of an argument struct: every field is eight bytes, `claimed` comes first."""
    names = ["claimed"] + [name for name, _ in args._fields_]
    kinds = [np.int64] + [np.float64 if kind is ctypes.c_double else np.int64 for _, kind in args._fields_]
    return numba.from_dtype(np.dtype(list(zip(names, kinds, strict=True)), align=True))


recorded_calls: ContextVar[Callable[[int, Args], None] | None] = ContextVar("recorded_calls", default=None)
"""Told of every call of a kernel, before it runs: the body's address and the arguments. See `program.py`."""


class Kernel:
    """A body `void body(args*)` that every thread of the pool runs. Bodies never raise.

    Compiled, or loaded from the cache, at the first call or by `compile`.
    """

    def __init__(self, args: type[Args], body: Callable[[Any], None]) -> None:
        self._args = args
        self._body = body

    def compile(self) -> None:
        """Make the next call quick."""
        _ = self._entry

    @functools.cached_property
    def _entry(self) -> int:
        """Address of the machine code."""
        signature = types.void(types.CPointer(_record(self._args)))
        self._compiled = numba.cfunc(signature, cache=True, error_model="numpy")(self._body)
        return int(self._compiled.address)

    def __call__(self, threads: int, *values: float) -> None:
        """Run on up to `threads` threads and wait; values: the fields of the arguments, in order."""
        args = self._args(0, *values)
        if (record := recorded_calls.get()) is not None:
            record(self._entry, args)
        _parallel(self._entry, ctypes.addressof(args), threads, 0)


def kernel(args: type[Args]) -> Callable[[Callable[[Any], None]], Kernel]:
    """Decorator: make a body a `Kernel`. In the body, `unpack(pointer)` gives the fields by name."""
    return functools.partial(Kernel, args)


def threads_for(work: int, grain: int) -> int:
    """Threads for `work` units, where fewer than `grain` take one thread less time than waking others."""
    return 1 if work < grain else torch.get_num_threads()


@intrinsic
def unpack(typing: Any, pointer: Any) -> Any:
    """The record behind an argument pointer."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], context.get_value_type(signature.return_type))

    return pointer.dtype(pointer), generate


@intrinsic
def claim(typing: Any, pointer: Any) -> Any:
    """Take the next unclaimed unit of work: an atomic fetch-and-add on the args' first field."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        counter = builder.bitcast(values[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", counter, ir.IntType(64)(1), ordering="monotonic")

    return types.int64(pointer), generate


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@numba.njit(forceinline=True)
def floats(address: int) -> Any:
    """The float32 array that starts at `address`; its length is the caller's business."""
    return numba.carray(_pointer(address), (_UNBOUNDED,), np.float32)


@numba.njit(forceinline=True)
def int32s(address: int) -> Any:
    """The int32 array that starts at `address`."""
    return numba.carray(_pointer(address), (_UNBOUNDED,), np.int32)


@numba.njit(forceinline=True)
def int64s(address: int) -> Any:
    """The int64 array that starts at `address`."""
    return numba.carray(_pointer(address), (_UNBOUNDED,), np.int64)


@numba.njit(forceinline=True)
def share(total: int, index: int, count: int) -> tuple[int, int]:
    """Half-open range of `total` units that thread `index` of `count` takes."""
    return total * index // count, total * (index + 1) // count
