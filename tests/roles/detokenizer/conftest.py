import json

import pytest
from hypothesis import HealthCheck, settings
from tokenizers import AddedToken, Tokenizer, decoders, models

from stretto.roles.detokenizer.scheme import scheme_of

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def with_special_tokens(vocabulary, decoder):
    vocabulary.decoder = decoder
    vocabulary.add_special_tokens([AddedToken(t, normalized=False) for t in ("<s>", "</s>")])
    vocabulary.add_tokens([AddedToken("<plain é>", normalized=False)])
    return vocabulary


@pytest.fixture(scope="session")
def byte_level():
    """Ids 0 to 255 are the bytes; then " ab", "é😀", half an emoji, "\\ufffd", special and added tokens."""
    names = sorted_byte_names()
    entries = [*names, "Ġab", "".join(names[b] for b in "é😀".encode()), names[0xF0] + names[0x9F]]
    entries.append("".join(names[b] for b in "\ufffd".encode()))
    vocabulary = Tokenizer(models.BPE({entry: i for i, entry in enumerate(entries)}, []))
    return with_special_tokens(vocabulary, decoders.ByteLevel())


def sorted_byte_names():
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


WORDS = ["▁", "▁▁", "▁Hello", "▁world", "Hello", "lo", "é", "😀", "\ufffd", "▁a▁b", "\n", "<0xZZ>", "<0x4>"]


@pytest.fixture(scope="session")
def sentencepiece():
    """Ids 0 to 255 are the bytes <0x00> ..., then `WORDS`; one leading space is dropped."""
    entries = [f"<0x{byte:02X}>" for byte in range(256)] + WORDS
    vocabulary = Tokenizer(models.BPE({entry: i for i, entry in enumerate(entries)}, []))
    stages = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    return with_special_tokens(vocabulary, decoders.Sequence(stages))


@pytest.fixture(scope="session")
def metaspace():
    """The words of `sentencepiece`, without bytes, under a decoder that has no table."""
    vocabulary = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="é"))
    return with_special_tokens(vocabulary, decoders.Metaspace())


@pytest.fixture(scope="session")
def scheme():
    """The scheme of a vocabulary made here."""
    return lambda vocabulary: scheme_of(vocabulary, json.loads(vocabulary.to_str())["decoder"])
