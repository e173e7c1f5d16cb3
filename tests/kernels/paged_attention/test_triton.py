import pytest
import torch
from paging import attend, paged

from stretto.kernels.generation import pretend
from stretto.kernels.paged_attention import reference, triton
from stretto.kernels.paged_attention import triton_plan as plan

SPLITS = [1, 63, plan.SPLIT, plan.SPLIT + 1, 3 * plan.SPLIT + 7]
"""Lengths of sequences with one split, with a full one, and with more."""


def equal(q, cache, rows, lengths, assert_close, **options):
    """Check one call against the reference."""
    expected = attend(reference.paged_attention, q, cache, rows, lengths, **options)
    assert_close(attend(triton.paged_attention, q, cache, rows, lengths, **options), expected)


SHAPES = [(6, 2, 64, 1), (3, 1, 64, 16), (2, 2, 80, 3), (1, 1, 80, 128)]
"""Query heads, KV heads, head size, page size."""


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "page_size"), SHAPES)
def test_decodes_of_all_lengths(heads, kv_heads, dim, page_size, assert_close):
    cache = paged([torch.randn(2, n, kv_heads, dim) for n in SPLITS], page_size)
    equal(torch.randn(len(SPLITS), heads, dim), cache, [1] * len(SPLITS), SPLITS, assert_close)


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "page_size"), SHAPES)
def test_a_mixed_batch(heads, kv_heads, dim, page_size, assert_close):
    rows, lengths = [1, 33, 0, 3, 1, 17], [1, 33, 5, 150, 200, 40]
    cache = paged([torch.randn(2, n, kv_heads, dim) for n in lengths], page_size)
    equal(torch.randn(sum(rows), heads, dim), cache, rows, lengths, assert_close)


@pytest.mark.parametrize("dim", [6, 96, 128, 256])
def test_every_head_size(dim, assert_close):
    rows, lengths = [1, 5], [520, 37]
    cache = paged([torch.randn(2, n, 1, dim) for n in lengths], 16)
    equal(torch.randn(6, 7, dim), cache, rows, lengths, assert_close)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits(dtype, assert_close):
    rows, lengths = [1, 20, 1], [600, 30, 50]
    cache = paged([torch.randn(2, n, 2, 64) for n in lengths], 16)
    cache = cache._replace(keys=cache.keys.to(dtype), values=cache.values.to(dtype))
    equal(torch.randn(22, 8, 64).to(dtype), cache, rows, lengths, assert_close)


def test_an_fp8_cache_with_a_scale_for_each_head(assert_close):
    rows, lengths = [1, 20, 1], [600, 30, 50]
    cache = paged([torch.randn(2, n, 2, 64) * 100 for n in lengths], 16)
    keys, values = (x.to(torch.float8_e4m3fn) for x in cache[:2])
    scales = {"k_scale": torch.tensor([0.01, 0.02]), "v_scale": torch.tensor([0.005, 0.01])}
    q = torch.randn(22, 8, 64).bfloat16()
    equal(q, cache._replace(keys=keys, values=values), rows, lengths, assert_close, **scales)


@pytest.mark.parametrize("window", [1, 16, 100, 600])
def test_a_window_hides_and_never_reads_what_is_before_it(window, assert_close):
    rows, lengths = [1, 1, 20, 1], [700, 1300, 150, 20]
    cache = paged([torch.randn(2, n, 2, 16) for n in lengths], 8)
    for table, count, length in zip(cache.block_tables, rows, lengths, strict=True):
        table[: max(length - count - window + 1, 0) // 8] = 2**30
    equal(torch.randn(sum(rows), 4, 16), cache, rows, lengths, assert_close, window=window)


@pytest.fixture
def split(monkeypatch):
    """Long chunks in little: splits of 64 positions, and memory full of NaN."""
    monkeypatch.setattr(plan, "CHUNK_SPLIT", 64)
    monkeypatch.setattr(plan, "JOINED", 16)
    whole = torch.full
    monkeypatch.setattr(torch, "empty", lambda *shape, **kind: whole(shape, float("nan"), **kind))


CHUNKS, CONTEXTS = [3, 2, 1, 9, 0, 2], [200, 3, 70, 130, 7, 65]
"""Rows and lengths of sequences with one split, none, and several."""


@pytest.mark.parametrize(("programs", "window"), [(2, 0), (24, 0), (24, 1), (2, 100), (24, 100)])
def test_chunks_over_several_splits(split, programs, window, monkeypatch, assert_close):
    monkeypatch.setattr(plan, "CHUNK_PROGRAMS", programs)
    cache = paged([torch.randn(2, n, 2, 64) for n in CONTEXTS], 16)
    equal(torch.randn(sum(CHUNKS), 6, 64), cache, CHUNKS, CONTEXTS, assert_close, window=window)


@pytest.mark.parametrize("window", [0, 100])
def test_bits_of_a_chunk_are_the_same_however_its_splits_are_shared(split, window, monkeypatch):
    cache, q = paged([torch.randn(2, n, 1, 64) for n in CONTEXTS], 16), torch.randn(sum(CHUNKS), 3, 64)
    found = []
    for programs, limit in [(1, 1 << 25), (12, 1 << 25), (24, 1 << 25), (24, 1)]:
        monkeypatch.setattr(plan, "CHUNK_PROGRAMS", programs)
        monkeypatch.setattr(plan, "SCRATCH_LIMIT", limit)
        found.append(attend(triton.paged_attention, q, cache, CHUNKS, CONTEXTS, window=window))
    rows = torch.arange(sum(CHUNKS)) != 5  # a decode
    assert all(torch.equal(one[rows], found[0][rows]) for one in found)


def test_an_fp8_chunk_over_several_splits(split, monkeypatch, assert_close):
    monkeypatch.setattr(plan, "CHUNK_PROGRAMS", 24)
    monkeypatch.setattr(plan, "JOINED", 128)
    cache = paged([torch.randn(2, n, 2, 64) * 100 for n in CONTEXTS], 16)
    keys, values = (x.to(torch.float8_e4m3fn) for x in cache[:2])
    scales = {"k_scale": torch.tensor([0.01, 0.02]), "v_scale": torch.tensor([0.005, 0.01])}
    q = torch.randn(sum(CHUNKS), 8, 64).bfloat16()
    equal(q, cache._replace(keys=keys, values=values), CHUNKS, CONTEXTS, assert_close, **scales)


@pytest.mark.parametrize(("rows", "shared"), [(2, True), (64, False)])
def test_splits_are_shared_where_there_are_few_blocks(split, rows, shared, monkeypatch):
    class Skipped:
        def __getitem__(self, grid):
            return lambda *arguments, **options: None

    monkeypatch.setattr(plan, "CHUNK_PROGRAMS", 6)
    monkeypatch.setattr(triton, "join_kernel", Skipped())
    cache, q = paged([torch.randn(2, 100, 1, 64)], 16), torch.randn(rows, 1, 64)
    assert attend(triton.paged_attention, q, cache, [rows], [100]).isnan().all() == shared


def test_more_sequences_than_are_looked_at_together(assert_close):
    rows, lengths = [2, 1] * 70, [3] * 140
    cache = paged([torch.randn(2, 3, 1, 16) for _ in rows], 16)
    equal(torch.randn(210, 1, 16), cache, rows, lengths, assert_close)


@pytest.mark.parametrize(("chunk", "positions"), [(7, 2048), (50, 2048), (7, 32), (50, 32)])
def test_bits_are_the_same_for_every_chunk(chunk, positions, monkeypatch):
    monkeypatch.setattr(plan, "CHUNK_SPLIT", positions)
    monkeypatch.setattr(plan, "CHUNK_PROGRAMS", 6)
    length = 100
    cache, q = paged([torch.randn(2, length, 1, 128)], 16), torch.randn(length, 2, 128)
    whole = attend(triton.paged_attention, q, cache, [length], [length])
    for begin in range(0, length - 2, chunk):
        end = min(begin + chunk, length)
        part = attend(triton.paged_attention, q[begin:end], cache, [end - begin], [end])
        assert torch.equal(part, whole[begin:end])


@pytest.mark.parametrize(("programs", "scratch"), [(1, 1 << 25), (6, 1), (4096, 1 << 25)])
def test_bits_of_a_decode_are_the_same_in_every_batch(programs, scratch, monkeypatch):
    contents, q = [torch.randn(2, n, 1, 16) for n in SPLITS], torch.randn(len(SPLITS), 2, 16)
    alone = [
        attend(triton.paged_attention, q[i : i + 1], paged([x], 16), [1], [x.shape[1]])
        for i, x in enumerate(contents)
    ]
    monkeypatch.setattr(plan, "PROGRAMS", programs)
    monkeypatch.setattr(plan, "SCRATCH_LIMIT", scratch)
    together = attend(triton.paged_attention, q, paged(contents, 3), [1] * len(SPLITS), SPLITS, chunks=(0, 0))
    assert torch.equal(together, torch.cat(alone))


def test_a_decode_fills_the_scratch_it_is_given_and_no_more():
    cache = paged([torch.randn(2, 1000, 2, 16)], 16)
    size = plan.scratch_size(1, 4, 16, cache.block_tables.shape[1] * 16)
    scratch, q = torch.full((size + 8,), float("nan")), torch.randn(1, 4, 16)
    given = attend(triton.paged_attention, q, cache, [1], [1000], scratch=scratch[:size])
    assert torch.equal(given, attend(triton.paged_attention, q, cache, [1], [1000]))
    assert scratch[size:].isnan().all()


@pytest.mark.parametrize(
    ("rows", "bound"), [([1], (1, 5)), ([1, 1], (0, 2)), ([3, 1], (1, 3)), ([1, 70, 1, 2], (2, 72))]
)
def test_how_many_chunks_there_are_is_a_hint(rows, bound):
    lengths = [20, 90, 30, 30][: len(rows)]
    cache, q = paged([torch.randn(2, n, 1, 16) for n in lengths], 16), torch.randn(sum(rows), 2, 16)
    hinted = attend(triton.paged_attention, q, cache, rows, lengths, chunks=bound)
    assert torch.equal(hinted, attend(triton.paged_attention, q, cache, rows, lengths))


def test_programs_are_launched_for_chunks_alone(monkeypatch):
    grids = []

    class Launched:
        def __getitem__(self, grid):
            grids.append(grid)
            return lambda *arguments, **options: None

    monkeypatch.setattr(triton, "extend_kernel", Launched())
    rows, chunks = [*[1] * 100, 2, 300], (2, 302)
    cache, q = paged([torch.randn(2, n, 1, 16) for n in rows], 16), torch.randn(sum(rows), 2, 16)
    for hint in (chunks, (0, 7), None):
        attend(triton.paged_attention, q, cache, rows, rows, chunks=hint)
    assert grids == [(302 // 8 + 2, 1), (402 // 8 + 102, 1)]


def test_a_sequence_without_keys_pads_a_batch():
    cache, q = paged([torch.randn(2, n, 2, 16) for n in (9, 8)], 16), torch.randn(2, 4, 16)
    padded = attend(triton.paged_attention, q, cache, [1, 1], [9, 0])
    assert torch.equal(padded[:1], attend(triton.paged_attention, q[:1], cache, [1], [9]))
    assert padded[1].isnan().all()


def test_queries_may_be_slices_of_a_wider_matrix():
    cache, qkv = paged([torch.randn(2, n, 3, 16) for n in (20, 30)], 16), torch.randn(5, 15, 16)
    sliced = attend(triton.paged_attention, qkv[:, :9], cache, [4, 1], [20, 30])
    dense = attend(triton.paged_attention, qkv[:, :9].contiguous(), cache, [4, 1], [20, 30])
    assert torch.equal(sliced, dense)


def test_large_scores_do_not_overflow():
    content, q = torch.randn(2, 40, 1, 16) * 1e4, torch.randn(1, 2, 16) * 1e4
    best = (q[0] @ content[0, :, 0].T).argmax(dim=1)
    out = attend(triton.paged_attention, q, paged([content], 16), [1], [40])
    assert torch.equal(out[0], content[1, best, 0])


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("length", [5, 600])
def test_nan_in_a_key_reaches_the_output(rows, length):
    content = torch.randn(2, length, 1, 16)
    content[0, 2] = float("nan")
    cache = paged([content], 16)
    assert attend(triton.paged_attention, torch.randn(rows, 2, 16), cache, [rows], [length]).isnan().all()


def test_fp8_is_refused_where_the_gpu_has_none():
    cache = paged([torch.randn(2, 5, 1, 16)], 16)
    cache = cache._replace(keys=cache.keys.to(torch.float8_e4m3fn))
    with pretend(80), pytest.raises(ValueError, match=r"8\.9 or newer"):
        attend(triton.paged_attention, torch.randn(1, 2, 16), cache, [1], [5])
