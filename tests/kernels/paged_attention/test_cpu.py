from functools import partial

import pytest
import torch
from paging import attend as attend_by
from paging import paged

from stretto.kernels.paged_attention import cpu, paged_attention, reference

attend = partial(attend_by, paged_attention)


@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(9, 3, 64), (4, 4, 80), (2, 1, 6), (12, 1, 128)])
def test_a_mixed_batch_equals_the_reference(heads, kv_heads, dim, page_size, assert_close):
    rows, lengths = [1, 63, 3, 1, 17], [1, 63, 500, 200, 33]
    cache = paged([torch.randn(2, n, kv_heads, dim) for n in lengths], page_size)
    q = torch.randn(sum(rows), heads, dim)
    expected = attend_by(reference.paged_attention, q, cache, rows, lengths)
    assert_close(attend(q, cache, rows, lengths), expected)


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("chunk", [1, 7, 8, 64, 100])
def test_bits_are_the_same_for_every_chunk_and_page_size(chunk, page_size):
    """Decodes (chunks of 1) included; the reference order is one prefill of all rows with 16-token pages."""
    length = 100
    content, q = torch.randn(2, length, 3, 64), torch.randn(length, 9, 64)
    whole = attend(q, paged([content], 16), [length], [length])
    cache = paged([content], page_size)
    for begin in range(0, length, chunk):
        end = min(begin + chunk, length)
        assert torch.equal(attend(q[begin:end], cache, [end - begin], [end]), whole[begin:end])


@pytest.mark.parametrize("window", [0, 21, 700])
@pytest.mark.parametrize("page_size", [5, 16])
def test_bits_are_the_same_whether_segments_are_shared_out_or_not(page_size, window):
    length, span = 2 * cpu.SEGMENT + 90, {"window": window}
    content, q = torch.randn(2, length, 3, 64), torch.randn(length, 9, 64)
    whole = attend(q, paged([content], 16), [length], [length], **span)
    ends = [1, *range(cpu.SEGMENT - 1, cpu.SEGMENT + 3), 2 * cpu.SEGMENT, 2 * cpu.SEGMENT + 1, length]
    rows, expected = q[[end - 1 for end in ends]], whole[[end - 1 for end in ends]]
    together = attend(rows, paged([content[:, :end] for end in ends], page_size), [1] * 8, ends, **span)
    assert torch.equal(together, expected)
    for row, end, mine in zip(rows, ends, expected, strict=True):
        alone = attend(row[None], paged([content[:, :end]], page_size), [1], [end], **span)
        assert torch.equal(alone[0], mine)
    start = cpu.SEGMENT - 13
    assert torch.equal(
        attend(q[start:], paged([content], 16), [length - start], [length], **span), whole[start:]
    )


@pytest.mark.parametrize("rows", [[2, 0], [0, 2], [0, 1, 2]])
def test_only_decodes_are_shared_out_where_others_have_no_rows_or_more(rows):
    lengths = [600, 1500, 700][: len(rows)]
    contents, q = [torch.randn(2, n, 3, 64) for n in lengths], torch.randn(sum(rows), 9, 64)
    together = attend(q, paged(contents, 16), rows, lengths).split(rows)
    for content, length, count, part, mine in zip(
        contents, lengths, rows, q.split(rows), together, strict=True
    ):
        for row in range(count):
            end = length - count + row + 1
            alone = attend(part[row : row + 1], paged([content[:, :end]], 16), [1], [end])
            assert torch.equal(alone, mine[row : row + 1])


def test_segments_of_two_sequences_equal_the_reference(assert_close):
    lengths = [3, 1500]
    cache, q = paged([torch.randn(2, n, 4, 80) for n in lengths], 16), torch.randn(2, 8, 80)
    expected = attend_by(reference.paged_attention, q, cache, [1, 1], lengths)
    assert_close(attend(q, cache, [1, 1], lengths), expected)


def test_bits_are_the_same_alone_and_in_a_batch():
    lengths, rows = [1, 16, 17, 100, 300], [1, 1, 5, 1, 40]
    contents = [torch.randn(2, n, 3, 64) for n in lengths]
    q = torch.randn(sum(rows), 9, 64)
    together = attend(q, paged(contents, 16), rows, lengths).split(rows)
    for content, length, count, part, mine in zip(
        contents, lengths, rows, q.split(rows), together, strict=True
    ):
        assert torch.equal(attend(part, paged([content], 16), [count], [length]), mine)


def test_queries_may_be_slices_of_a_wider_matrix():
    content, qkv = torch.randn(2, 20, 3, 64), torch.randn(4, 15, 64)
    cache = paged([content], 16)
    sliced, dense = qkv[:, :9], qkv[:, :9].contiguous()
    assert cpu.fits(sliced, sliced, cache.keys, cache.values)
    assert torch.equal(attend(sliced, cache, [4], [20]), attend(dense, cache, [4], [20]))


def test_a_sequence_without_rows_is_passed_over():
    contents = [torch.randn(2, n, 3, 64) for n in (5, 9, 20)]
    cache, q = paged(contents, 16), torch.randn(3, 9, 64)
    out = attend(q, cache, [2, 0, 1], [5, 9, 20])
    assert torch.equal(out[2:], attend(q[2:], paged(contents[2:], 16), [1], [20]))


def test_large_scores_do_not_overflow():
    content = torch.randn(2, 40, 1, 16) * 1e4
    cache, q = paged([content], 16), torch.randn(1, 2, 16) * 1e4
    best = (q[0] @ content[0, :, 0].T).argmax(dim=1)
    assert torch.equal(attend(q, cache, [1], [40])[0], content[1, best, 0])


def test_nan_in_a_key_reaches_the_output():
    content = torch.randn(2, 5, 1, 16)
    content[0, 2] = float("nan")
    assert attend(torch.randn(1, 2, 16), paged([content], 16), [1], [5]).isnan().all()


def test_what_a_row_does_not_see_changes_none_of_its_bits():
    """Keys of tokens after it, in its tile and in others, and of those before its window."""
    length, row, window = 90, 40, 7
    content, q = torch.randn(2, length, 3, 64), torch.randn(length, 9, 64)
    for begin, end, span in ((row + 1, length, 0), (0, row - window + 1, window)):
        poisoned = content.clone()
        poisoned[0, begin:end] = float("nan")
        expected = attend(q, paged([content], 16), [length], [length], window=span)
        out = attend(q, paged([poisoned], 16), [length], [length], window=span)
        assert torch.equal(out[row], expected[row])


def hide(cache, rows, lengths, window):
    """Make entries of the block tables that no row may look up point nowhere."""
    page_size = cache.keys.shape[1]
    for table, count, length in zip(cache.block_tables, rows, lengths, strict=True):
        table[: max(length - count - window + 1, 0) // page_size] = 2**30


@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
@pytest.mark.parametrize("window", [1, 2, 16, 21, 100, 600])
def test_a_window_hides_and_never_reads_what_is_before_it(window, page_size, assert_close):
    rows, lengths = [1, 63, 3, 1, 17, 200], [1, 63, 500, 200, 33, 260]
    cache = paged([torch.randn(2, n, 3, 20) for n in lengths], page_size)
    hide(cache, rows, lengths, window)
    q = torch.randn(sum(rows), 9, 20)
    expected = attend_by(reference.paged_attention, q, cache, rows, lengths, window=window)
    assert_close(attend(q, cache, rows, lengths, window=window), expected)


@pytest.mark.parametrize("window", [1, 7, 16, 33])
@pytest.mark.parametrize("chunk", [1, 7, 8, 64])
def test_bits_in_a_window_are_the_same_for_every_chunk_and_page_size(chunk, window):
    length = 100
    content, q = torch.randn(2, length, 3, 64), torch.randn(length, 9, 64)
    whole = attend(q, paged([content], 16), [length], [length], window=window)
    for begin in range(0, length, chunk):
        end = min(begin + chunk, length)
        cache = paged([content], 5)
        hide(cache, [end - begin], [end], window)
        assert torch.equal(attend(q[begin:end], cache, [end - begin], [end], window=window), whole[begin:end])


def test_a_window_as_wide_as_the_sequence_changes_no_bit():
    cache, q = paged([torch.randn(2, 100, 3, 64)], 16), torch.randn(90, 9, 64)
    assert torch.equal(attend(q, cache, [90], [100], window=100), attend(q, cache, [90], [100]))


def fp8(cache):
    keys, values = ((100 * x).to(torch.float8_e4m3fn) for x in cache[:2])
    return cache._replace(keys=keys, values=values)


def scales(heads):
    return {"k_scale": 0.01 + 0.001 * torch.arange(heads), "v_scale": 0.02 - 0.003 * torch.arange(heads)}


@pytest.mark.parametrize("window", [0, 21])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(9, 3, 64), (4, 4, 80), (2, 1, 6)])
def test_an_fp8_cache_with_a_scale_for_each_head_equals_the_reference(
    heads, kv_heads, dim, window, assert_close
):
    rows, lengths = [1, 63, 3, 1, 17], [1, 63, 500, 200, 33]
    cache = fp8(paged([torch.randn(2, n, kv_heads, dim) for n in lengths], 16))
    q, options = torch.randn(sum(rows), heads, dim), {"window": window, **scales(kv_heads)}
    assert cpu.fits(q, q, *cache[:2], options["k_scale"], options["v_scale"])
    expected = attend_by(reference.paged_attention, q, cache, rows, lengths, **options)
    assert_close(attend(q, cache, rows, lengths, **options), expected)


@pytest.mark.parametrize("page_size", [1, 3])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_bits_of_an_fp8_cache_are_the_same_for_every_chunk_and_page_size(chunk, page_size):
    length = 100
    content, q = torch.randn(2, length, 3, 64), torch.randn(length, 9, 64)
    whole = attend(q, fp8(paged([content], 16)), [length], [length], **scales(3))
    cache = fp8(paged([content], page_size))
    for begin in range(0, length, chunk):
        end = min(begin + chunk, length)
        assert torch.equal(attend(q[begin:end], cache, [end - begin], [end], **scales(3)), whole[begin:end])


def float16(cache):
    return cache._replace(keys=cache.keys.half(), values=cache.values.half())


@pytest.mark.parametrize("window", [0, 21])
@pytest.mark.parametrize("page_size", [3, 16])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(9, 3, 64), (4, 4, 80), (2, 1, 6)])
def test_a_float16_cache_has_the_bits_of_its_numbers_in_float32(heads, kv_heads, dim, page_size, window):
    rows, lengths = [1, 63, 3, 1, 17], [1, 63, 500, 1300, 33]
    cache = float16(paged([torch.randn(2, n, kv_heads, dim) for n in lengths], page_size))
    q = torch.randn(sum(rows), heads, dim)
    assert cpu.fits(q, q, *cache[:2])
    wide = cache._replace(keys=cache.keys.float(), values=cache.values.float())
    expected = attend(q, wide, rows, lengths, window=window)
    assert torch.equal(attend(q, cache, rows, lengths, window=window), expected)


def test_bits_of_decodes_are_the_same_alone_and_where_their_heads_are_read_together():
    """Each kind of cache: from some sequences on, a decode's heads ask for its next tile in one stream."""
    lengths = [33 + 5 * n for n in range(cpu.ENOUGH * torch.get_num_threads() + 1)]
    contents, q = [torch.randn(2, n, 3, 64) for n in lengths], torch.randn(len(lengths), 9, 64)
    for kind, options in ((lambda cache: cache, {}), (float16, {}), (fp8, scales(3))):
        together = attend(q, kind(paged(contents, 16)), [1] * len(lengths), lengths, **options)
        for n, (content, length) in enumerate(zip(contents, lengths, strict=True)):
            alone = attend(q[n : n + 1], kind(paged([content], 16)), [1], [length], **options)
            assert torch.equal(alone[0], together[n])
