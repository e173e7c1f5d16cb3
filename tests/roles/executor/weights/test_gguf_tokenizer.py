from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import Tokenizer

from stretto.roles.executor.weights import gguf_tokenizer
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.gguf_file import GGUFFile

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["▁", "a", "b", "ab", "▁a", "▁ab", "x", "▁x"]


def read(path: Path) -> tuple[Tokenizer, dict[str, Any], list[str]]:
    lines: list[str] = []
    file = GGUFFile(path)
    return gguf_tokenizer.tokenizer(file, lines.append), gguf_tokenizer.tokenizer_config(file), lines


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a GGUF file that holds nothing but a tokenizer."""

    def write(edit: Callable[[gguf.GGUFWriter], None]) -> Path:
        path = tmp_path / "tokenizer.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        edit(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def sentencepiece(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *BYTES, *PIECES])
    writer.add_token_scores([0.0] * 259 + [-float(rank) for rank in (9, 8, 7, 1, 2, 0, 6, 3)])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(PIECES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def test_sentencepiece_merges_by_score_after_a_leading_space(write: Callable[..., Path]) -> None:
    tokenizer, config, _ = read(write(sentencepiece))
    assert tokenizer.encode("ab x").tokens == ["<s>", "▁ab", "▁x"]
    assert (config["bos_token"], config["eos_token"], config["unk_token"]) == ("<s>", "</s>", "<unk>")
    assert config["add_bos_token"] is True


def test_sentencepiece_falls_back_to_bytes_and_decodes_them(write: Callable[..., Path]) -> None:
    tokenizer, _, _ = read(write(sentencepiece))
    encoding = tokenizer.encode("aé x")
    assert encoding.tokens == ["<s>", "▁a", "<0xC3>", "<0xA9>", "▁x"]
    assert tokenizer.decode(encoding.ids) == "aé x"


def test_sentencepiece_keeps_every_space_of_the_text(write: Callable[..., Path]) -> None:
    tokenizer, _, _ = read(write(sentencepiece))
    assert tokenizer.decode(tokenizer.encode("  a  x ").ids) == "  a  x "


def test_a_space_comes_after_a_control_token_too(write: Callable[..., Path]) -> None:
    tokenizer, _, _ = read(write(sentencepiece))
    assert tokenizer.encode("a</s>a").tokens == ["<s>", "▁a", "</s>", "▁a"]


def test_no_leading_space_where_the_file_says_so(write: Callable[..., Path]) -> None:
    def edit(writer: gguf.GGUFWriter) -> None:
        sentencepiece(writer)
        writer.add_add_space_prefix(False)
        writer.add_add_bos_token(False)

    tokenizer, config, _ = read(write(edit))
    assert tokenizer.encode("ab x").tokens == ["ab", "▁x"]
    assert config["add_bos_token"] is False


def byte_level(pre: str | None, **changes: Any) -> Callable[[gguf.GGUFWriter], None]:
    def edit(writer: gguf.GGUFWriter) -> None:
        tokens = ["<unk>", "<s>", "</s>", "<|im_end|>", "a", "b", "c", "Ġ", "ab", "abc", "1", "11", "<think>"]
        writer.add_tokenizer_model("gpt2")
        if pre:
            writer.add_tokenizer_pre(pre)
        writer.add_token_list(changes.get("tokens", tokens))
        writer.add_token_types([3, 3, 3, 3, *[1] * 8, 4])
        writer.add_token_merges(changes.get("merges", ["a b", "1 1"]))
        writer.add_bos_token_id(1)

    return edit


def test_control_tokens_are_special_and_user_defined_ones_are_not(write: Callable[..., Path]) -> None:
    tokenizer, config, _ = read(write(byte_level("gpt-2")))
    ids = tokenizer.encode("ab<|im_end|><think>11").ids
    assert ids == [8, 3, 12, 11]
    assert tokenizer.decode(ids) == "ab<think>11"
    assert config["add_bos_token"] is False


def test_a_word_in_the_vocabulary_needs_no_merges_in_the_llama3_family(write: Callable[..., Path]) -> None:
    tokenizer, config, _ = read(write(byte_level("llama-bpe")))
    assert tokenizer.encode("abc").tokens == ["<s>", "abc"]
    assert config["add_bos_token"] is True
    tokenizer, _, _ = read(write(byte_level("gpt-2")))
    assert tokenizer.encode("abc").tokens == ["ab", "c"]


def test_digits_stay_apart_in_smollm(write: Callable[..., Path]) -> None:
    tokenizer, _, _ = read(write(byte_level("smollm")))
    assert tokenizer.encode("11").tokens == ["1", "1"]


def test_a_missing_pre_tokenizer_is_told(write: Callable[..., Path]) -> None:
    _, _, lines = read(write(byte_level(None)))
    assert "names no pre-tokenizer" in lines[0]


def test_named_chat_templates_become_a_list(write: Callable[..., Path]) -> None:
    def edit(writer: gguf.GGUFWriter) -> None:
        byte_level("gpt-2")(writer)
        writer.add_chat_template(
            [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
        )

    _, config, _ = read(write(edit))
    assert config["chat_template"] == [
        {"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T"},
    ]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda writer: writer.add_tokenizer_model("bert"), "'bert' is not supported"),
        (lambda writer: writer.add_tokenizer_model("gpt2"), "no vocabulary"),
        (byte_level("klingon"), "'klingon'"),
        (byte_level("gpt-2", merges=["a z"]), "merges and vocabulary do not fit"),
        (byte_level("gpt-2", tokens=["a"] * 13), "names a token twice"),
    ],
)
def test_what_cannot_be_converted_is_refused(
    write: Callable[..., Path], edit: Callable[[gguf.GGUFWriter], None], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        read(write(edit))


SMOLLM2 = [
    ("Hello 12345 world", [19556, 216, 33, 34, 35, 36, 37, 905]),
    ("  x=10\n\n", [216, 1792, 45, 33, 32, 1116]),
    (
        "\t\tif x:\r\n    return 3.14159\n",
        [197, 197, 342, 1792, 42, 3136, 1003, 216, 35, 30, 33, 36, 33, 37, 41, 198],
    ),
    ("don't I'LL we've", [12420, 982, 339, 23, 16421, 392, 3543]),
    (
        "½² ⅷ ٣٤٥ 12.5",
        [16738, 19133, 216, 173, 223, 132, 216, 164, 113, 164, 114, 164, 115, 216, 33, 34, 30, 37],
    ),
    ("<|im_start|>user\nhi<|im_end|>\n", [1, 4093, 198, 6004, 2, 198]),
    ("<|endoftext|>x<file_sep>y", [0, 104, 5, 105]),
    ("   leading and   inner   spaces   ", [256, 2899, 284, 256, 6210, 256, 5600, 333]),
    (" " * 40, [12427, 353]),
    ("a\u00a0b\u2003c\u3000d", [81, 15442, 82, 321, 221, 83, 12109, 218, 84]),
    (
        '{"k": [1, 2.5e-10, null]}',
        [39428, 91, 1799, 933, 33, 28, 216, 34, 30, 37, 85, 29, 33, 32, 28, 10034, 28852],
    ),
    ("_snake_case CamelCase", [79, 48284, 79, 7544, 5784, 299, 10802]),
    ("«quotes» “smart” … —", [39969, 385, 2346, 20306, 619, 24914, 573, 5548, 1841]),
    ("𝔘 𓀀", [23159, 238, 242, 216, 187, 237, 218, 218]),
    ("a\n \n b", [81, 198, 3717, 278]),
    ("", []),
]
"""Text and what llama.cpp makes of it with the embedded model's file."""


@pytest.mark.parametrize(("text", "ids"), SMOLLM2)
def test_the_embedded_model_reads_text_as_llama_cpp_does(model_dir: Path, text: str, ids: list[int]) -> None:
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    assert tokenizer.encode(text).ids == ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
