import json
import subprocess
import sys

import pytest
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from stretto.roles.actor import SetupError
from stretto.roles.tokenizer.vocabulary import load_vocabulary


def change(directory, name, **values):
    path = directory / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_directory_is_read(small_dir):
    vocabulary = load_vocabulary(small_dir)
    assert (vocabulary.size, vocabulary.context, vocabulary.eos) == (264, 32, (259, 5))
    assert vocabulary.bound.chars == len("</s>")
    assert load_vocabulary(small_dir, max_model_len=16).context == 16


def test_special_tokens_in_a_text_are_recognised(small_dir):
    ids = load_vocabulary(small_dir).encode("<s>\x01 ab</s>", add_special_tokens=False)
    assert ids == [258, 1, 257, 259]


@pytest.mark.parametrize(
    ("flags", "ids"),
    [
        ({}, [97]),
        ({"add_bos_token": True}, [258, 97]),
        ({"add_eos_token": True}, [97, 259]),
        ({"add_bos_token": True, "add_eos_token": True}, [258, 97, 259]),
        ({"add_bos_token": True, "bos_token": "<absent>"}, [97]),
    ],
)
def test_boundary_tokens_follow_the_flags_where_the_file_is_silent(small_dir, flags, ids):
    change(small_dir, "tokenizer_config.json", **flags)
    vocabulary = load_vocabulary(small_dir)
    assert vocabulary.encode("a", add_special_tokens=True) == ids
    assert vocabulary.encode("a", add_special_tokens=False) == [97]


@pytest.mark.parametrize("flags", [{}, {"add_bos_token": True}, {"add_bos_token": False}])
def test_boundary_tokens_are_those_of_transformers(small_dir, flags):
    change(small_dir, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", **flags)
    encoder = Tokenizer.from_file(str(small_dir / "tokenizer.json"))
    encoder.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 258)])
    encoder.save(str(small_dir / "tokenizer.json"))
    expected = PreTrainedTokenizerFast.from_pretrained(small_dir)("x <s> ab")["input_ids"]
    assert expected == [258, *b"x ", 258, 257]
    assert load_vocabulary(small_dir).encode("x <s> ab", add_special_tokens=True) == expected


def test_truncation_and_padding_left_in_the_file_do_nothing(small_dir):
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "</s>",
    }  # fmt: skip
    change(small_dir, "tokenizer.json", truncation=truncation, padding=padding)
    assert load_vocabulary(small_dir).encode("xyz", add_special_tokens=True) == list(b"xyz")


def test_the_named_eos_token_is_the_last_resort(small_dir):
    (small_dir / "generation_config.json").unlink()
    change(small_dir, "config.json", eos_token_id=None)
    assert load_vocabulary(small_dir).eos == (259,)
    change(small_dir, "tokenizer_config.json", eos_token=None)
    assert load_vocabulary(small_dir).eos == ()


def test_without_a_vocabulary_size_the_entries_count(small_dir):
    change(small_dir, "config.json", vocab_size=None)
    assert load_vocabulary(small_dir).size == 260


def test_what_is_missing_is_named(small_dir):
    change(small_dir, "config.json", max_position_embeddings=None)
    with pytest.raises(SetupError, match="--max-model-len"):
        load_vocabulary(small_dir)
    (small_dir / "tokenizer.json").unlink()
    with pytest.raises(SetupError, match=r"no tokenizer\.json"):
        load_vocabulary(small_dir)


def test_transformers_is_not_imported():
    code = "import sys, stretto.roles.tokenizer.actor; print('transformers' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"
