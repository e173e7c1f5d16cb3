import pytest

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
