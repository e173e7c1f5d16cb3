"""Triton's interpreter, for tests of kernels on machines without a GPU, mended where it is no GPU's twin."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

TYPES = {"fp8e4nv": "float8_e4m3fn", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
"""Torch's names of Triton's types."""


def convert_float(bits: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
    """Floats of one type as another, to nearest even: the interpreter's own cuts bfloat16 off.

    bits: of the floats of type `source`, a Triton type. Returns those of type `target`.
    """
    types = [getattr(torch, TYPES[x.scalar.name]) for x in (source, target)]
    width = f"int{target.scalar.primitive_bitwidth}"
    held = torch.from_numpy(np.ascontiguousarray(bits).view(f"int{source.scalar.primitive_bitwidth}"))
    return held.view(types[0]).to(types[1]).view(getattr(torch, width)).numpy().view(f"u{width}")


def with_index(patch: Any) -> Any:
    """`interpreter._patch_lang_tensor`, with bounds of loops that numpy 2.4 takes too."""

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    return patched


def interpret() -> None:
    """From here on this process interprets kernels; its children do not. Call it before Triton is imported:
    Triton's own library takes the variable from the environment.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    from triton import knobs, language
    from triton.runtime import interpreter

    knobs.runtime.interpret = True
    del os.environ["TRITON_INTERPRET"]

    def dot(self: Any, a: Any, b: Any, sums: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        """The interpreter's own takes bfloat16 for integers, and its rows depend on how many there are:
        sums in float64, rounded once, hide the order of addition.
        """
        wide = [
            convert_float(x.data, x.dtype, language.float32, None).view(np.float32)
            if x.dtype.scalar in (language.bfloat16, language.float8e4nv)
            else x.data
            for x in (a, b)
        ]
        product = np.matmul(*wide, dtype=np.float64).astype(sums.data.dtype)
        return interpreter.TensorHandle(product + sums.data, sums.dtype.scalar)

    interpreter._convert_float = convert_float
    interpreter.InterpreterBuilder.create_dot = dot
    interpreter._patch_lang_tensor = with_index(interpreter._patch_lang_tensor)
