import json

import pytest

from stretto.roles.actor import SetupError
from stretto.roles.tokenizer.files import eos_ids, read_json, read_pipeline, special_tokens, stages


def test_the_pipeline_is_read_without_the_vocabulary(small_dir):
    pipeline = read_pipeline(small_dir / "tokenizer.json")
    assert pipeline.model.type == "BPE"
    assert pipeline.normalizer is None
    assert [token.content for token in pipeline.added_tokens] == ["<s>", "</s>"]


def test_nested_sequences_become_a_flat_list_of_stages():
    leaf = {"type": "NFC"}
    nested = {"type": "Sequence", "normalizers": [leaf, {"type": "Sequence", "normalizers": [leaf]}]}
    assert stages(nested, "normalizers") == [leaf, leaf]
    assert stages(None, "normalizers") == []


def test_special_tokens_may_be_strings_or_objects_and_the_newer_file_wins(tmp_path):
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<old>", "unk_token": "<u>"}))
    config = {"bos_token": {"content": "<s>", "lstrip": False}, "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert special_tokens(tmp_path) == {"bos_token": "<s>", "unk_token": "<u>"}


def test_the_generation_config_decides_which_ids_end_the_output(small_dir):
    assert eos_ids(small_dir) == (259, 5)
    (small_dir / "generation_config.json").unlink()
    assert eos_ids(small_dir) == (259,)


def test_an_absent_file_is_empty_and_a_broken_one_is_named(tmp_path):
    assert read_json(tmp_path / "config.json") == {}
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(SetupError, match=r"config\.json is not valid JSON"):
        read_json(tmp_path / "config.json")
