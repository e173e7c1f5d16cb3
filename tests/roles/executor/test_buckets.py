from stretto.roles.executor.buckets import MOST, WIDTH, bucket_of, width_of


def test_buckets_grow_by_powers_of_two_then_by_eights_then_by_thirty_twos():
    sizes = sorted({bucket_of(decodes) for decodes in range(1, MOST + 1)})
    assert sizes == [1, 2, 4, *range(8, 257, 8), *range(288, 513, 32)]


def test_a_bucket_has_room_and_no_more_than_it_must():
    for decodes in range(1, MOST + 1):
        assert decodes <= bucket_of(decodes) < decodes + max(4, min(32, decodes))


def test_widths_grow_fourfold_up_to_the_whole_table():
    assert [width_of(pages, 10_000) for pages in (1, WIDTH, WIDTH + 1, 4 * WIDTH + 1)] == [64, 64, 256, 1024]
    assert width_of(300, 700) == 700
    assert width_of(1, 5) == 5
