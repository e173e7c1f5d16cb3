from __future__ import annotations

import numpy as np
import pytest
import torch

from stretto.roles.executor.errors import ConfigError
from stretto.roles.executor.host_kv import ModelledMover, allocate_host
from stretto.roles.executor.kv import PageShape

SHAPE = PageShape(layers=3, page_size=4, kv_heads=2, head_dim=5, dtype=torch.bfloat16)


def test_a_page_is_one_run_of_memory() -> None:
    host = allocate_host(SHAPE, 6, torch.device("cpu"))
    assert (host.shape, host.dtype) == ((6, 3, 2, 4, 2, 5), torch.bfloat16)
    assert host[1].is_contiguous()
    assert host[1].nbytes == SHAPE.bytes


def test_more_than_there_is_is_refused_with_the_size() -> None:
    with pytest.raises(ConfigError, match="of host KV; give a smaller --host-kv-memory"):
        allocate_host(SHAPE, 1 << 50, torch.device("cpu"))


def test_on_a_modelled_link_only_time_passes() -> None:
    spent: list[float] = []
    mover = ModelledMover(spent.append, 0.5)
    mover.out(np.zeros(3, np.int32), np.zeros(3, np.int32))
    mover.into(np.zeros(2, np.int32), np.zeros(2, np.int32))
    assert spent == [1.5, 1.0]
