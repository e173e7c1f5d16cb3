from __future__ import annotations

import numpy as np

from stretto.roles.scheduler.keys import Chain, page_keys, split_keys


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_there_is_a_key_for_each_whole_page() -> None:
    tokens = array(1, 2, 3, 4, 5, 6, 7)
    keys = page_keys(tokens, 3, "")
    assert [len(key) for key in keys] == [16, 16]
    assert page_keys(tokens[:2], 3, "") == []
    assert page_keys(tokens[:3], 3, "") == keys[:1]


def test_a_key_depends_on_all_tokens_before_its_pages_end_and_on_no_others() -> None:
    keys = page_keys(array(1, 2, 3, 4, 5, 6), 2, "")
    assert page_keys(array(1, 2, 3, 4, 9, 9), 2, "")[:2] == keys[:2]
    assert not set(page_keys(array(9, 2, 3, 4, 5, 6), 2, "")) & set(keys)


def test_salts_share_no_key() -> None:
    tokens = array(1, 2, 3, 4)
    assert not set(page_keys(tokens, 2, "a")) & set(page_keys(tokens, 2, "b"))


def test_keys_stay_the_same_for_ever() -> None:
    assert page_keys(array(1, 2), 2, "salt")[0].hex() == "d67cb006cfb9d6a9b68a8535588d1ef6"


def test_keys_come_out_of_a_buffer_as_they_went_in() -> None:
    keys = page_keys(array(1, 2, 3, 4), 2, "")
    assert split_keys(b"".join(keys)) == keys


def test_a_sequence_that_grew_goes_on_with_the_keys_it_has() -> None:
    chain, tokens = Chain("a"), array(1, 2, 3, 4, 5, 6, 7)
    first = chain.of(tokens[:5], 2)
    assert first == page_keys(tokens[:5], 2, "a")
    grown = chain.of(tokens, 2)
    assert grown == page_keys(tokens, 2, "a")
    assert grown[0] is first[0]
    assert chain.of(tokens[:3], 2) == grown[:1]
