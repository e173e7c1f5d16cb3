"""Joined deltas against the full decode, for every way of decoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from stretto.roles.detokenizer.decoding import ByteLevelText, FallbackText, WindowText
from stretto.roles.detokenizer.scheme import WindowScheme, load_scheme

KINDS = {"byte_level": ByteLevelText, "sentencepiece": FallbackText, "metaspace": WindowText}


@pytest.fixture(scope="session", params=KINDS)
def kind(request, scheme):
    """(vocabulary, scheme, class) of each way of decoding."""
    vocabulary = request.getfixturevalue(request.param)
    return vocabulary, scheme(vocabulary), KINDS[request.param]


@pytest.fixture(scope="session")
def real(model_dir):
    return Tokenizer.from_file(str(model_dir / "tokenizer.json")), load_scheme(model_dir)


def deltas(scheme, ids, skip_special=False, context=()):
    decoding = scheme.begin(context, skip_special)
    return [*map(decoding.push, ids), decoding.finish()]


def shown_after(vocabulary, context, ids, skip_special=False):
    """What the full decode adds to the prompt's; a U+FFFD that ends the prompt may be replaced."""
    before = vocabulary.decode(context, skip_special_tokens=skip_special)
    full = vocabulary.decode([*context, *ids], skip_special_tokens=skip_special)
    return full[len(before) :] if full.startswith(before) else full[len(before) - 1 :]


def random_ids(vocabulary):
    last = vocabulary.get_vocab_size() - 1
    return st.lists(st.integers(0, last) | st.integers(max(0, last - 20), last), max_size=30)


def test_each_kind_is_decoded_by_its_own_class(kind):
    _, scheme, cls = kind
    assert type(scheme.begin((), True)) is cls


@pytest.mark.parametrize("skip_special", [True, False])
@given(data=st.data())
def test_deltas_of_random_ids_add_up_to_the_full_decode(kind, skip_special, data):
    vocabulary, scheme, _ = kind
    ids = data.draw(random_ids(vocabulary))
    expected = vocabulary.decode(ids, skip_special_tokens=skip_special)
    assert "".join(deltas(scheme, ids, skip_special)) == expected


@pytest.mark.parametrize("skip_special", [True, False])
@given(data=st.data())
def test_deltas_after_a_prompt_are_what_the_full_decode_adds(byte_level, scheme, skip_special, data):
    context, ids = data.draw(random_ids(byte_level)), data.draw(random_ids(byte_level))
    expected = shown_after(byte_level, context, ids, skip_special)
    assert "".join(deltas(scheme(byte_level), ids, skip_special, context)) == expected


@given(data=st.data())
def test_deltas_after_a_prompt_of_words_are_what_the_full_decode_adds(sentencepiece, scheme, data):
    words = st.lists(st.integers(256, sentencepiece.get_vocab_size() - 1), max_size=5)
    context, ids = data.draw(words), data.draw(random_ids(sentencepiece))
    expected = sentencepiece.decode([*context, *ids])[len(sentencepiece.decode(context)) :]
    assert "".join(deltas(scheme(sentencepiece), ids, True, context)) == expected


@given(text=st.text(max_size=60))
def test_text_comes_back_whole_and_never_with_a_replacement_character(real, text):
    vocabulary, scheme = real
    ids = vocabulary.encode(text, add_special_tokens=False).ids
    parts = deltas(scheme, ids)
    assert "".join(parts) == vocabulary.decode(ids, skip_special_tokens=False)
    if "\ufffd" not in vocabulary.decode(ids, skip_special_tokens=False):
        assert all("\ufffd" not in part for part in parts)


@given(
    ids=st.lists(st.integers(0, 49_151), max_size=40), context=st.lists(st.integers(0, 49_151), max_size=8)
)
def test_random_ids_of_the_embedded_model_add_up(real, ids, context):
    vocabulary, scheme = real
    assert "".join(deltas(scheme, ids, True)) == vocabulary.decode(ids)
    assert "".join(deltas(scheme, ids, True, context)) == shown_after(vocabulary, context, ids, True)


def test_a_split_character_waits_for_its_last_byte(byte_level, scheme):
    assert deltas(scheme(byte_level), [*"😀".encode(), 97]) == ["", "", "", "😀", "a", ""]
    assert deltas(scheme(byte_level), [258, 0x98, 0x80]) == ["", "", "😀", ""]


def test_bytes_that_come_to_nothing_are_shown_as_the_full_decode_shows_them(byte_level, scheme):
    assert deltas(scheme(byte_level), [0xF0, 0x9F, 97]) == ["", "", "\ufffda", ""]
    assert deltas(scheme(byte_level), [97, 0xF0, 0x9F]) == ["a", "", "", "\ufffd"]
    assert deltas(scheme(byte_level), [0xFF, 97]) == ["\ufffd", "a", ""]


def test_a_character_that_the_prompt_began_is_shown_whole(byte_level, sentencepiece, scheme):
    prompt = [97, 0xF0, 0x9F]
    assert deltas(scheme(byte_level), [0x98, 0x80, 98], context=prompt) == ["", "😀", "b", ""]
    word = sentencepiece.token_to_id("lo")
    assert deltas(scheme(sentencepiece), [0x98, 0x80, word], context=prompt) == ["", "", "😀lo", ""]


def test_a_character_that_the_prompt_began_in_vain_is_the_prompts_to_show(byte_level, sentencepiece, scheme):
    prompt = [97, 0xF0, 0x9F]
    assert deltas(scheme(byte_level), [98], context=prompt) == ["b", ""]
    assert deltas(scheme(byte_level), [], context=prompt) == [""]
    word = sentencepiece.token_to_id("lo")
    assert deltas(scheme(sentencepiece), [0xFF, word], context=prompt) == ["", "\ufffdlo", ""]


@pytest.mark.parametrize(
    ("vocabulary", "ids", "completed"),
    [
        ("byte_level", [0x98, 0x80], 1),
        ("byte_level", [0x98], 0),
        ("byte_level", [98], 0),
        ("byte_level", [], 0),
        ("sentencepiece", [0x98, 0x80], 2),
        ("sentencepiece", [0x98, 0x80, 260, 0xC3, 0xA9, 260], 2),
        ("sentencepiece", [0xFF], 0),
        ("sentencepiece", [], 0),
    ],
)
def test_prompt_and_output_add_up_to_the_full_decode(request, scheme, vocabulary, ids, completed):
    vocabulary = request.getfixturevalue(vocabulary)
    prompt = [vocabulary.get_vocab_size() - 1, 0xF0, 0x9F]
    decoding = scheme(vocabulary).begin(prompt, True)
    shown = "".join([*map(decoding.push, ids), decoding.finish()])
    assert decoding.completed == completed
    before = vocabulary.decode(prompt)
    assert before[: len(before) - completed] + shown == vocabulary.decode([*prompt, *ids])


def test_the_window_shows_an_unfinished_character_anew(byte_level):
    decoding = WindowScheme(byte_level).begin([97, 0xF0, 0x9F], True)
    assert (decoding.completed, decoding.push(98)) == (1, "\ufffdb")


def test_a_run_of_byte_tokens_is_judged_as_a_whole(sentencepiece, scheme):
    word = sentencepiece.token_to_id("lo")
    assert deltas(scheme(sentencepiece), [*"é😀".encode(), word]) == [*[""] * 6, "é😀lo", ""]
    assert deltas(scheme(sentencepiece), [*"é".encode(), 0xFF, word]) == [
        "",
        "",
        "",
        "\ufffd\ufffd\ufffdlo",
        "",
    ]
    assert deltas(scheme(sentencepiece), [*"é".encode()]) == ["", "", "é"]


def test_the_first_words_space_is_dropped_only_at_the_start_of_all_text(sentencepiece, metaspace, scheme):
    for vocabulary in (sentencepiece, metaspace):
        hello, world = (vocabulary.token_to_id(word) for word in ("▁Hello", "▁world"))
        assert deltas(scheme(vocabulary), [hello, world]) == ["Hello", " world", ""]
        assert deltas(scheme(vocabulary), [world], context=[hello]) == [" world", ""]


def test_a_byte_token_of_the_prompt_is_text_too(sentencepiece, scheme):
    hello = sentencepiece.token_to_id("▁Hello")
    assert deltas(scheme(sentencepiece), [hello], context="é".encode()) == [" Hello", ""]


def test_a_skipped_token_does_not_split_a_character(byte_level, sentencepiece, scheme):
    for vocabulary, shown in ((byte_level, ["", "", "é", ""]), (sentencepiece, ["", "", "", "é"])):
        ids = [0xC3, vocabulary.token_to_id("<s>"), 0xA9]
        assert deltas(scheme(vocabulary), ids, skip_special=True) == shown


def test_a_skipped_special_token_before_the_output_is_no_text(sentencepiece, scheme):
    start, hello = (sentencepiece.token_to_id(word) for word in ("<s>", "▁Hello"))
    assert deltas(scheme(sentencepiece), [hello], skip_special=True, context=[start]) == ["Hello", ""]
    assert deltas(scheme(sentencepiece), [hello], skip_special=False, context=[start]) == [" Hello", ""]


@given(data=st.data())
def test_the_window_gives_the_full_decode_of_bytes_too(byte_level, data):
    ids = data.draw(random_ids(byte_level))
    assert "".join(deltas(WindowScheme(byte_level), ids)) == byte_level.decode(ids, skip_special_tokens=False)


def test_the_window_shows_a_character_that_the_prompt_began(byte_level):
    assert deltas(WindowScheme(byte_level), [0x98, 0x80], context=[97, 0xF0, 0x9F]) == ["", "😀", ""]


def test_the_window_stays_short(metaspace):
    decoding = WindowText(metaspace, True)
    for _ in range(100):
        assert decoding.push(metaspace.token_to_id("lo")) == "lo"
    assert len(decoding._ids) == 1
