"""Looks at what torch is asked to do while work runs: whose memory, and whether the host would have to wait.

What kernels do inside is theirs: on a GPU it happens there, and here plain code that reads numbers plays it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from stretto.tests.roles.executor.late_cuda import Violation

T = torch.Tensor
WAITS = {
    getattr(T, name)
    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__", "nonzero")
}
FROM_HOST = {torch.tensor, torch.as_tensor, torch.from_numpy}
SYNCHRONISE = {
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::repeat_interleave.Tensor",
    "aten::equal",
}
INDEXING = {"aten::index.Tensor", "aten::index_put_", "aten::_index_put_impl_"}


def in_kernel() -> bool:
    """Whether a kernel of ours is running."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("stretto.kernels."):
            return True
        frame = frame.f_back
    return False


def tensors(values: Any) -> Iterator[torch.Tensor]:
    """All tensors in arguments or results."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def address(tensor: torch.Tensor) -> int:
    """Of the memory that a tensor is a view of."""
    return tensor.untyped_storage().data_ptr()


class NoWaiting(TorchFunctionMode):
    """Raises Violation for calls whose result the host would have to wait for."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (function in WAITS or function in FROM_HOST) and not in_kernel():
            raise Violation(f"{getattr(function, '__name__', function)} waits for the compute stream")
        return function(*args, **(kwargs or {}))


class Touching(TorchDispatchMode):
    """Tells which memory every operation has to do with, and raises Violation for those that synchronise."""

    def __init__(self, touch: Callable[[int], None], may_wait: bool) -> None:
        super().__init__()
        self._touch, self._may_wait = touch, may_wait

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = list(tensors([*args, *(kwargs or {}).values()]))
        name = function._schema.name + (
            f".{function._overloadname}" if function._overloadname != "default" else ""
        )
        if not self._may_wait and not in_kernel() and synchronises(name, given):
            raise Violation(f"{name} waits for the compute stream")
        for tensor in given:
            self._touch(address(tensor))
        return function(*args, **(kwargs or {}))


def synchronises(name: str, given: list[torch.Tensor]) -> bool:
    """Whether an operation's result has a size that only the GPU knows, or is a number for the host."""
    by_mask = name in INDEXING and any(tensor.dtype is torch.bool for tensor in given[1:])
    return name in SYNCHRONISE or by_mask


class Footprint(TorchDispatchMode):
    """What a capture would have burnt in: every operation with its sizes, numbers, and memory that is not its
    own. Memory that is made on the way belongs to the capture, and is named by order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self._own: dict[int, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = list(tensors([*args, *(kwargs or {}).values()]))
        known = {address(tensor) for tensor in given}
        if not in_kernel():
            numbers = [arg for arg in args if isinstance(arg, (int, float))]
            self.calls.append((str(function), *numbers, *map(self._describe, given)))
        made = function(*args, **(kwargs or {}))
        for tensor in tensors([made]):
            if address(tensor) not in known:
                self._own[address(tensor)] = len(self._own)
        return made

    def _describe(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        at = address(tensor)
        place = ("own",) if at in self._own else (at, tensor.storage_offset())
        return *place, tuple(tensor.shape), tensor.stride()
