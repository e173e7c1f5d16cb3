from __future__ import annotations

import pytest

from stretto.roles.executor.weights import pretokenizers
from stretto.roles.executor.weights.errors import ModelError

TEXT = "it's 2024, HTTPServer\n  x"


def words(name: str, text: str) -> list[str]:
    return [
        piece.replace("Ġ", " ").replace("Ċ", "\n")
        for piece, _ in pretokenizers.byte_level(name).pre_tokenize_str(text)
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["it", "'s", " 2024", ",", " HTTPServer", "\n ", " x"]),
        ("smollm", ["it", "'s", " ", "2", "0", "2", "4", ",", " HTTPServer", "\n ", " x"]),
        ("llama-bpe", ["it", "'s", " ", "202", "4", ",", " HTTPServer", "\n", " ", " x"]),
        ("qwen2", ["it", "'s", " ", "2", "0", "2", "4", ",", " HTTPServer", "\n", " ", " x"]),
        ("tekken", ["it", "'s", " ", "2", "0", "2", "4", ",", " HTTPServer", "\n", " ", " x"]),
        ("gpt-4o", ["it's", " ", "202", "4", ",", " HTTPServer", "\n", " ", " x"]),
        ("deepseek-coder", ["it", "'", "s", " ", "2", "0", "2", "4", ",", " HTTPServer", "\n", " ", " x"]),
        ("deepseek-v3", ["it", "'s", " ", "202", "4", ",", " HTTPServer", "\n", " ", " x"]),
        ("default", ["it", "'", "s", " ", "202", "4", ",", " HTTPServer", "\n ", " x"]),
    ],
)
def test_words_and_numbers_split_as_the_name_says(name: str, expected: list[str]) -> None:
    assert words(name, TEXT) == expected


def test_capitals_start_words_only_where_case_counts() -> None:
    assert words("tekken", "aB Cd") == ["a", "B", " Cd"]
    assert words("llama-bpe", "aB Cd") == ["aB", " Cd"]


def test_every_unicode_number_is_a_digit() -> None:
    assert len(words("smollm", "½²٣")) == 3
    assert len(words("gpt-2", "½²٣")) == 1


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"'klingon' .* llama-bpe, .*qwen2"):
        pretokenizers.byte_level("klingon")


def test_whole_words_are_taken_in_the_families_that_do_so() -> None:
    assert pretokenizers.takes_whole_words("llama-bpe")
    assert not pretokenizers.takes_whole_words("smollm")
