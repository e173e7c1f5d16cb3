from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers

from stretto.roles.executor.weights import overlay, sources
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.prepare import locate, prepare


def silent(line: str) -> None:
    pass


@pytest.fixture
def without_tokenizer(tmp_path: Path, tiny: Callable[..., Any]) -> Path:
    """A Qwen2 directory whose tokenizer is in the old form, vocabulary and merges."""
    directory = tmp_path / "qwen"
    tiny("Qwen2ForCausalLM").save_pretrained(directory)
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "<|endoftext|>"]
    (directory / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (directory / "merges.txt").write_text("#version: 0.2\na b\n")
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    return directory


def test_the_tokenizer_is_added_beside_the_users_directory(tmp_path: Path, without_tokenizer: Path) -> None:
    before = sorted(without_tokenizer.iterdir())
    cache = tmp_path / "cache"
    assert locate(str(without_tokenizer), cache) is None
    made = prepare(str(without_tokenizer), cache, silent)
    assert sorted(without_tokenizer.iterdir()) == before
    assert Tokenizer.from_file(str(made / "tokenizer.json")).encode("ab").tokens == ["ab"]
    assert (made / "model.safetensors").samefile(without_tokenizer / "model.safetensors")
    assert locate(str(without_tokenizer), cache) == made


def test_a_changed_directory_is_done_again(tmp_path: Path, without_tokenizer: Path) -> None:
    first = sources.overlay_dir(without_tokenizer, tmp_path)
    (without_tokenizer / "merges.txt").write_text("#version: 0.2\n")
    assert sources.overlay_dir(without_tokenizer, tmp_path) != first


def test_a_complete_directory_is_used_as_it_is(tmp_path: Path, without_tokenizer: Path) -> None:
    (without_tokenizer / "tokenizer.json").touch()
    assert overlay.with_tokenizer(without_tokenizer, tmp_path / "cache", silent) == without_tokenizer


def test_no_tokenizer_at_all_is_refused(tmp_path: Path, without_tokenizer: Path) -> None:
    (without_tokenizer / "vocab.json").unlink()
    with pytest.raises(ModelError, match=r"neither tokenizer\.json nor"):
        overlay.with_tokenizer(without_tokenizer, tmp_path, silent)


def test_a_broken_tokenizer_is_explained(tmp_path: Path, without_tokenizer: Path) -> None:
    (without_tokenizer / "vocab.json").write_text("{")
    with pytest.raises(ModelError, match=r"cannot be converted .* add a tokenizer\.json"):
        overlay.with_tokenizer(without_tokenizer, tmp_path, silent)
