import pytest

from stretto.kernels.paged_attention import triton_plan as plan


@pytest.mark.parametrize(
    ("positions", "window", "splits"),
    [(512, 0, 1), (513, 0, 2), (4096, 1, 2), (4096, 513, 3), (600, 4096, 2)],
)
def test_a_window_bounds_the_splits(positions, window, splits):
    assert plan.count_splits(positions, window) == splits


def test_one_split_needs_no_scratch():
    assert plan.scratch_size(8, 32, 128, 512) == 0


def test_scratch_is_for_all_sequences_or_as_many_as_the_limit_allows():
    assert plan.scratch_size(8, 32, 128, 4096) == 8 * 32 * 8 * 130
    assert plan.at_once(64, 32, 128, 256) == 31
    assert plan.scratch_size(64, 32, 128, 1 << 17) == 31 * 32 * 256 * 130
    assert plan.at_once(64, 32, 128, 1 << 20) == 1


def test_blocks_of_one_split_need_no_room():
    assert plan.chunk_units(300, 8, 16640, 1) == 0


@pytest.mark.parametrize(
    ("blocks", "splits", "units"),
    [(1, 4, 4), (32, 4, 128), (300, 4, 300), (300, 64, 300), (100, 64, 252)],
)
def test_parts_are_kept_of_as_many_blocks_as_are_shared_and_the_limit_allows(blocks, splits, units):
    assert plan.chunk_units(blocks, 8, 128 * 130, splits) == units
