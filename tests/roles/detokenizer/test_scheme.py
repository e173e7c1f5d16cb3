import json

import pytest
from tokenizers import Tokenizer, decoders, models

from stretto.roles.actor import SetupError
from stretto.roles.detokenizer.scheme import (
    ByteLevelScheme,
    FallbackScheme,
    WindowScheme,
    load_scheme,
    scheme_of,
)

MARK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK = [MARK, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def sequence(*decoders):
    return {"type": "Sequence", "decoders": list(decoders)}


@pytest.mark.parametrize(
    ("decoder", "kind"),
    [
        ({"type": "ByteLevel"}, ByteLevelScheme),
        (sequence({"type": "ByteLevel"}), ByteLevelScheme),
        (sequence(*FALLBACK), FallbackScheme),
        (sequence(*FALLBACK, STRIP), FallbackScheme),
        (sequence(*FALLBACK, STRIP | {"stop": 1}), WindowScheme),
        (sequence(*FALLBACK, STRIP, STRIP), WindowScheme),
        (sequence(*FALLBACK[1:]), WindowScheme),
        (sequence({"type": "ByteLevel"}, STRIP), WindowScheme),
        ({"type": "WordPiece", "prefix": "##", "cleanup": True}, WindowScheme),
        (None, WindowScheme),
    ],
)
def test_a_table_is_used_only_where_it_is_exact(sentencepiece, decoder, kind):
    assert type(scheme_of(sentencepiece, decoder)) is kind


def test_the_scheme_of_a_directory_is_read_from_its_tokenizer(tmp_path, sentencepiece):
    sentencepiece.save(str(tmp_path / "tokenizer.json"))
    text = load_scheme(tmp_path).begin([], True)
    assert type(load_scheme(tmp_path)) is FallbackScheme
    assert text.push(sentencepiece.token_to_id("▁Hello")) == "Hello"


def test_a_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(SetupError, match=r"no tokenizer\.json"):
        load_scheme(tmp_path)


@pytest.mark.parametrize(
    ("vocabulary", "token", "raw"),
    [
        ("byte_level", "Ġab", b" ab"),
        ("byte_level", 0xC3, b"\xc3"),
        ("byte_level", 258, b"\xf0\x9f"),
        ("byte_level", "</s>", b"</s>"),
        ("byte_level", "<plain é>", "<plain é>".encode()),
        ("sentencepiece", "▁Hello", b" Hello"),
        ("sentencepiece", "▁▁", b"  "),
        ("sentencepiece", "😀", "😀".encode()),
        ("sentencepiece", 0xC3, b"\xc3"),
        ("sentencepiece", "<s>", b"<s>"),
        ("metaspace", "▁Hello", b" Hello"),
        ("metaspace", "lo", b"lo"),
        ("metaspace", "<s>", b"<s>"),
    ],
)
def test_a_token_stands_for_its_true_bytes(request, scheme, vocabulary, token, raw):
    vocabulary = request.getfixturevalue(vocabulary)
    token = vocabulary.token_to_id(token) if isinstance(token, str) else token
    assert scheme(vocabulary).raw(token) == raw


def test_an_id_that_the_vocabulary_lacks_stands_for_nothing(byte_level, sentencepiece, metaspace, scheme):
    assert {scheme(vocabulary).raw(99_999) for vocabulary in (byte_level, sentencepiece, metaspace)} == {b""}


def test_the_window_knows_byte_entries_by_the_decoders_stages(byte_level, sentencepiece):
    levels, fallback = sequence({"type": "ByteLevel"}, STRIP), sequence(*FALLBACK, STRIP, STRIP)
    assert scheme_of(byte_level, levels).raw(0xC3) == b"\xc3"
    assert scheme_of(sentencepiece, fallback).raw(0xC3) == b"\xc3"


def test_the_window_sees_a_word_piece_as_it_is_inside_a_text():
    entries = {word: i for i, word in enumerate(["[UNK]", "hello", "##lo", "."])}
    vocabulary = Tokenizer(models.WordPiece(entries, unk_token="[UNK]"))
    vocabulary.decoder = decoders.WordPiece()
    scheme = scheme_of(vocabulary, json.loads(vocabulary.to_str())["decoder"])
    assert [scheme.raw(token) for token in (1, 2)] == [b" hello", b"lo"]


def test_the_bytes_of_a_texts_tokens_are_the_text(model_dir):
    vocabulary = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    text = "  Héllo 😀 日本語<|im_end|>\n\n3.14"
    ids = vocabulary.encode(text, add_special_tokens=False).ids
    scheme = load_scheme(model_dir)
    assert b"".join(map(scheme.raw, ids)).decode() == scheme.text(ids) == text
