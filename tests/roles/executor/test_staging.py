import numpy as np
import torch

from stretto.roles.executor import staging

ARRAYS = [
    np.array([1, 2, 3], np.int32),
    np.empty((0, 3), np.int64),
    np.array([[0.5, -1.0]], np.float32),
    np.arange(12, dtype=np.int64).reshape(2, 6)[:, ::2],
]


def test_arrays_are_laid_out_aligned_and_in_order() -> None:
    assert staging.offsets(ARRAYS) == ([0, 16, 16, 32], 80)


def test_what_is_packed_is_unpacked_with_types_and_shapes() -> None:
    starts, size = staging.offsets(ARRAYS)
    buffer = torch.zeros(size + 7, dtype=torch.uint8)
    staging.pack(buffer, ARRAYS, starts)
    tensors = staging.unpack(buffer, ARRAYS, starts)
    assert [tensor.dtype for tensor in tensors] == [torch.int32, torch.int64, torch.float32, torch.int64]
    for tensor, array in zip(tensors, ARRAYS, strict=True):
        assert tensor.numpy().shape == array.shape
        assert (tensor.numpy() == array).all()
