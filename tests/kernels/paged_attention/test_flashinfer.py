"""What FlashInfer is told, and that its answers are those of the reference."""

import flashinfer_double
import numpy as np
import pytest
import torch
from flashinfer_double import BatchPrefillWithPagedKVCacheWrapper as Wrapper
from paging import attend, paged

from stretto.kernels.paged_attention import reference
from stretto.kernels.paged_attention.flashinfer import FlashInferAttention


@pytest.fixture
def attention(monkeypatch):
    monkeypatch.setattr(Wrapper, "made", [], raising=False)
    return FlashInferAttention(flashinfer_double, torch.device("cpu"))


def begin(attention, rows, lengths):
    starts = np.cumsum([0, *rows]).astype(np.int32)
    attention.begin(starts, np.array(lengths, np.int32))


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("window", [0, 1, 21, 600])
def test_a_mixed_batch_equals_the_reference(attention, window, page_size):
    rows, lengths = [1, 63, 3, 1, 16], [1, 63, 500, 200, 32]
    cache, q = paged([torch.randn(2, n, 2, 64) for n in lengths], page_size), torch.randn(84, 8, 64)
    begin(attention, rows, lengths)
    expected = attend(reference.paged_attention, q, cache, rows, lengths, window=window)
    assert torch.equal(attend(attention, q, cache, rows, lengths, window=window), expected)


def test_a_plan_says_where_rows_and_pages_are(attention):
    rows, lengths = [1, 4, 1], [9, 4, 8]
    cache, q = paged([torch.randn(2, n, 2, 64) for n in lengths], 4), torch.randn(6, 8, 64).bfloat16()
    cache = cache._replace(keys=cache.keys.bfloat16(), values=cache.values.bfloat16())
    begin(attention, rows, lengths)
    attend(attention, q, cache, rows, lengths)
    (wrapper,) = Wrapper.made
    (plan,) = wrapper.plans
    assert plan.pop("qo_indptr").tolist() == [0, 1, 5, 6]
    assert plan.pop("paged_kv_indptr").tolist() == [0, 3, 4, 6]
    tables = cache.block_tables
    assert plan.pop("paged_kv_indices").tolist() == [*tables[0, :3], *tables[1, :1], *tables[2, :2]]
    assert plan.pop("paged_kv_last_page_len").tolist() == [1, 4, 4]
    assert plan == {
        "num_qo_heads": 8,
        "num_kv_heads": 2,
        "head_dim_qk": 64,
        "page_size": 4,
        "causal": True,
        "sm_scale": 0.125,
        "window_left": -1,
        "q_data_type": torch.bfloat16,
        "kv_data_type": torch.bfloat16,
    }


def test_layers_run_on_the_plan_of_their_group_and_steps_take_turns(attention):
    contents = [torch.randn(2, n, 2, 64) for n in (5, 30)]
    full, windowed = paged(contents, 4), paged(contents, 4)
    q, rows, lengths = torch.randn(3, 4, 64), [1, 2], [5, 30]
    for _ in range(3):
        begin(attention, rows, lengths)
        for _ in range(2):
            attend(attention, q, full, rows, lengths)
            attend(attention, q, windowed, rows, lengths, window=7)
    assert [len(wrapper.plans) for wrapper in Wrapper.made] == [2, 2, 1, 1]
    assert [wrapper.runs for wrapper in Wrapper.made] == [4, 4, 2, 2]
    assert [wrapper.plans[0]["window_left"] for wrapper in Wrapper.made] == [-1, 6, -1, 6]
    assert len({wrapper.workspace.data_ptr() for wrapper in Wrapper.made}) == 1


def test_pages_that_no_row_sees_may_be_gone(attention):
    cache, q = paged([torch.randn(2, 30, 2, 64)], 4), torch.randn(1, 4, 64)
    expected = attend(reference.paged_attention, q, cache, [1], [30], window=5)
    cache.block_tables[0, :6] = -1
    begin(attention, [1], [30])
    assert torch.equal(attend(attention, q, cache, [1], [30], window=5), expected)
    assert Wrapper.made[0].plans[0]["paged_kv_indices"][:6].tolist() == [0] * 6


def test_an_fp8_cache_is_in_units_of_its_scales(attention):
    cache, q = paged([torch.randn(2, 30, 2, 64)], 4), torch.randn(2, 4, 64)
    cache = cache._replace(
        keys=cache.keys.to(torch.float8_e4m3fn), values=cache.values.to(torch.float8_e4m3fn)
    )
    scales = {"k_scale": torch.full((2,), 0.5), "v_scale": torch.full((2,), 3.0)}
    begin(attention, [2], [30])
    expected = attend(reference.paged_attention, q, cache, [2], [30], **scales)
    assert torch.equal(attend(attention, q, cache, [2], [30], **scales), expected)
    assert Wrapper.made[0].plans[0]["kv_data_type"] is torch.float8_e4m3fn
