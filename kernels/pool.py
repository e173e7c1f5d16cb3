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
import platform
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
from numba.extending import intrinsic, overload

from stretto.kernels import cache, simd

_runtime = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
_parallel = _runtime.GOMP_parallel
_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
_parallel.restype = None

for _library, _name in (
    (_runtime, "omp_get_thread_num"),
    (_runtime, "omp_get_num_threads"),
    (ctypes.CDLL(None), "sched_yield"),
):
    _address = ctypes.cast(getattr(_library, _name), ctypes.c_void_p).value
    llvmlite.binding.add_symbol(f"stretto_{_name}", _address)

_UNBOUNDED = 1 << 60
thread_index = types.ExternalFunction("stretto_omp_get_thread_num", types.int32())
thread_count = types.ExternalFunction("stretto_omp_get_num_threads", types.int32())
_sched_yield = types.ExternalFunction("stretto_sched_yield", types.int32())
SPINS = 2000
"""How often a thread looks for the others before it offers its core, some 20 us."""
HEAD = ("claimed", "arrived")
"""Counters that the threads of a call share: work handed out, and arrivals at meeting points."""


class Args(ctypes.Structure):
    """Base of a kernel's arguments. Pointers and sizes are int64 fields, after those of `HEAD`."""

    _fields_ = tuple((name, ctypes.c_int64) for name in HEAD)


def arguments(ints: str, floats: str = "") -> type[Args]:
    """An `Args` with the named int64 fields, then the named float64 fields."""
    fields = [(name, ctypes.c_int64) for name in ints.split()]
    fields += [(name, ctypes.c_double) for name in floats.split()]  # type: ignore[misc]
    return type("Args", (Args,), {"_fields_": fields})


def _record(args: type[Args]) -> Any:
    """The numba record type of an argument struct: every field is eight bytes, those of `HEAD` come first."""
    names = [*HEAD, *(field[0] for field in args._fields_)]
    kinds = [ctypes.c_int64 for _ in HEAD] + [field[1] for field in args._fields_]
    dtypes = [np.float64 if kind is ctypes.c_double else np.int64 for kind in kinds]
    return numba.from_dtype(np.dtype(list(zip(names, dtypes, strict=True)), align=True))


recorded_calls: ContextVar[Callable[[int, Args], bool] | None] = ContextVar("recorded_calls", default=None)
"""Told of every call of a kernel, before it runs: the body's address and the arguments. Returns whether it is
to run now. See `program.py`."""


class Kernel:
    """A body `void body(args*)` that every thread of the pool runs. Bodies never raise.

    Compiled, or loaded from the cache, at the first call or by `compile`.
    """

    def __init__(self, args: type[Args], body: Callable[[Any], None]) -> None:
        self._args = args
        self._body = body

    def compile(self, wait: bool = True) -> bool:
        """Make the next call quick; returns whether that took a compilation, and not only the cache.

        Raises `cache.Busy` where another process compiles it, unless we are to wait for that.
        """
        if "_entry" in self.__dict__:
            return False
        signature = types.void(types.CPointer(_record(self._args)))
        with cache.claim(f"{self._body.__module__}.{self._body.__qualname__}", wait):
            self._compiled = numba.cfunc(signature, cache=True, error_model="numpy")(self._body)
        self._entry = int(self._compiled.address)  # of code that lives as long as `_compiled`
        return not self._compiled.cache_hits

    @functools.cached_property
    def _entry(self) -> int:
        """Address of the machine code."""
        self.compile()
        return self._entry

    def __call__(self, threads: int, *values: float) -> None:
        """Run on up to `threads` threads and wait; values: the fields of the arguments, in order."""
        args = self._args(*(0 for _ in HEAD), *values)
        if (record := recorded_calls.get()) is not None and not record(self._entry, args):
            return
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
def _arrive(typing: Any, pointer: Any) -> Any:
    """Count the calling thread on the args' second field."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.atomic_rmw("add", _second(builder, values[0]), ir.IntType(64)(1), ordering="acq_rel")
        return context.get_dummy_value()

    return types.none(pointer), generate


@intrinsic
def _arrived(typing: Any, pointer: Any) -> Any:
    """What that field says now."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load_atomic(_second(builder, values[0]), "acquire", 8)

    return types.int64(pointer), generate


def _second(builder: Any, pointer: Any) -> Any:
    words = builder.bitcast(pointer, ir.IntType(64).as_pointer())
    return builder.gep(words, [ir.IntType(64)(HEAD.index("arrived"))])


@intrinsic
def _pause(typing: Any) -> Any:
    """Tell the processor that this thread only looks."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if platform.machine() == "x86_64":
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.none(), generate


@simd.device()
def meet(pointer: Any, arrivals: int) -> None:
    """Wait until the threads of this call have come to meeting points `arrivals` times, all told.

    For the n-th meeting of t threads that is n * t. A thread looks for the others and offers its core when
    they are late; it never sleeps, as libgomp's barrier does at once where there are more threads than cores
    (a second pool on another thread is enough): 272 times in a decode step, on two cores.
    """
    _arrive(pointer)
    looks = 0
    while _arrived(pointer) < arrivals:
        looks += 1
        if looks > SPINS:
            _sched_yield()
        else:
            _pause()


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@simd.device()
def floats(address: int) -> Any:
    """The float32 array that starts at `address`; its length is the caller's business."""
    return numba.carray(_pointer(address), (_UNBOUNDED,), np.float32)


def stored(address: int, size: int) -> Any:
    """The array of numbers of `size` bytes, a constant, that starts at `address`: float32, or what `simd.py`
    takes as smaller ones.
    """
    raise NotImplementedError("for kernels")


@overload(stored, prefer_literal=True, jit_options={"forceinline": True})
def _stored(address: Any, size: Any) -> Any:
    dtype = {4: np.float32, 2: np.uint16, 1: np.uint8}[size.literal_value]

    def array(address: Any, size: Any) -> Any:
        return numba.carray(_pointer(address), (_UNBOUNDED,), dtype)

    return array


@simd.device()
def int32s(address: int) -> Any:
    """The int32 array that starts at `address`."""
    return numba.carray(_pointer(address), (_UNBOUNDED,), np.int32)


@simd.device()
def int64s(address: int) -> Any:
    """The int64 array that starts at `address`."""
    return numba.carray(_pointer(address), (_UNBOUNDED,), np.int64)


@simd.device()
def share(total: int, index: int, count: int) -> tuple[int, int]:
    """Half-open range of `total` units that thread `index` of `count` takes."""
    return total * index // count, total * (index + 1) // count
