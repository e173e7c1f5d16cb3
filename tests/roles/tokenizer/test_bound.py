import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from stretto.roles.tokenizer.bound import Bound, bound_of, byte_names
from stretto.roles.tokenizer.files import AddedToken, Model, Pipeline

BYTES = {name: i for i, name in enumerate(byte_names())}
BYTE_LEVEL = {"type": "ByteLevel"}
FALLBACK = {f"<0x{byte:02X}>": byte for byte in range(256)}


def byte_level(**changes):
    return Pipeline(**{"model": Model("BPE"), "pre_tokenizer": BYTE_LEVEL, **changes})


def test_the_bytes_are_named_as_the_library_names_them():
    assert sorted(byte_names()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for character in map(chr, [*range(0x80), 0xE9, 0x20AC, 0x1F600]):
        named = "".join(byte_names()[byte] for byte in character.encode())
        assert splitter.pre_tokenize_str(character)[0][0] == named


def test_tokens_are_counted_from_the_longest_entry():
    bound = bound_of(byte_level(), {**BYTES, "abcde": 256})
    assert bound == Bound(5)
    assert [bound.least_tokens("x" * n) for n in (0, 1, 5, 6)] == [0, 1, 1, 2]


def test_characters_that_the_vocabulary_drops_do_not_count():
    vocabulary = {name: i for name, i in BYTES.items() if i not in (4, 6, 0xF1)}
    bound = bound_of(byte_level(), vocabulary)
    assert bound == Bound(1, "\x04\x06")
    assert bound.least_tokens("a\x04\x06\x04b") == 2


def test_composition_shrinks_a_text_at_most_fourfold():
    bound = bound_of(byte_level(normalizer={"type": "NFC"}), BYTES)
    decomposed = unicodedata.normalize("NFD", "\u1f82" * 9)
    assert len(decomposed) == 36
    assert bound.least_tokens(decomposed) == 9


SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}


def test_a_sentencepiece_pipeline_has_a_bound():
    pipeline = Pipeline(
        Model("BPE", "<unk>", byte_fallback=True),
        normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, SPACE]},
    )
    assert bound_of(pipeline, {**FALLBACK, "\u2581" * 16: 256}) == Bound(16)


@pytest.mark.parametrize(
    "pipeline",
    [
        byte_level(normalizer={"type": "NFKC"}),
        byte_level(normalizer={"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}),
        byte_level(normalizer={"type": "Replace", "pattern": {"String": "  "}, "content": " "}),
        byte_level(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTE_LEVEL, {"type": "Whitespace"}]}),
        byte_level(
            pre_tokenizer={
                "type": "Sequence",
                "pretokenizers": [{"type": "Split", "behavior": "Removed"}, BYTE_LEVEL],
            }
        ),
        byte_level(added_tokens=[AddedToken("<m>", lstrip=True)]),
        byte_level(added_tokens=[AddedToken("<m>", rstrip=True)]),
        Pipeline(Model("WordPiece", "[UNK]")),
        Pipeline(Model("BPE", "<unk>")),
    ],
)
def test_stages_that_may_swallow_text_leave_no_bound(pipeline):
    assert bound_of(pipeline, BYTES) is None


def test_missing_bytes_inside_characters_leave_no_bound():
    vocabulary = {name: i for name, i in BYTES.items() if i != 0x85}
    assert bound_of(byte_level(), vocabulary) is None
    assert bound_of(Pipeline(Model("BPE", byte_fallback=True)), BYTES) is None


def merging_tokenizer():
    vocabulary = {name: i for name, i in BYTES.items() if i != 4} | {"Ġa": 256, "ĠaĠa": 257}
    encoder = Tokenizer(models.BPE(vocabulary, [("Ġ", "a"), ("Ġa", "Ġa")]))
    encoder.normalizer = normalizers.NFC()
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    encoder.decoder = decoders.ByteLevel()
    return encoder


@given(st.text(st.sampled_from([*" a\x04\u0301\u0345\u0313\u03b1é", "😀"]), max_size=40))
def test_the_bound_never_exceeds_the_true_count(text):
    encoder = merging_tokenizer()
    bound = bound_of(byte_level(normalizer={"type": "NFC"}), encoder.get_vocab())
    assert bound.least_tokens(text) <= len(encoder.encode(text).ids)
