from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from stretto.roles.executor.weights import convert, sources
from stretto.roles.executor.weights.errors import ModelError


def silent(line: str) -> None:
    pass


@pytest.mark.parametrize(
    ("architecture", "name", "changes"),
    [
        ("llama", "Llama", {}),
        ("llama", "Llama", {"tie_word_embeddings": True, "attention_bias": True, "num_key_value_heads": 4}),
        ("llama", "Mistral", {"sliding_window": 8}),
        ("qwen2", "Qwen2", {}),
        ("qwen3", "Qwen3", {"head_dim": 32}),
    ],
)
def test_logits_of_the_converted_model_are_the_originals(
    tmp_path: Path,
    tiny: Callable[..., Any],
    write_gguf: Callable[..., Path],
    architecture: str,
    name: str,
    changes: dict[str, Any],
) -> None:
    model = tiny(f"{name}ForCausalLM", **changes)
    for tensor in model.parameters():
        tensor.data = tensor.data.half().float()
    path = convert.convert_gguf(write_gguf(model, architecture), tmp_path / "cache", silent)
    converted = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        assert type(converted) is type(model)
        assert torch.equal(converted(ids).logits, model(ids).logits)


def test_metadata_that_contradicts_itself_is_the_files_fault(
    tmp_path: Path, tiny: Callable[..., Any], write_gguf: Callable[..., Path]
) -> None:
    path = write_gguf(
        tiny("LlamaForCausalLM"), "llama", edit=lambda writer: writer.add_unk_token_id(1_000_000)
    )
    with pytest.raises(ModelError, match=r"tiny\.gguf contradicts itself .*IndexError"):
        convert.convert_gguf(path, tmp_path / "cache", silent)


def fill(directory: Path) -> None:
    (directory / "file").write_text("content")


def test_a_whole_directory_is_made_once(tmp_path: Path) -> None:
    target = tmp_path / "models" / "m"
    assert convert.make_once(target, fill, silent) == target
    convert.make_once(target, lambda directory: pytest.fail("made again"), silent)
    assert (target / "file").read_text() == "content"


def test_a_failed_attempt_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        fill(directory)
        raise ModelError("bad file")

    target = tmp_path / "m"
    with pytest.raises(ModelError, match="bad file"):
        convert.make_once(target, fail, silent)
    assert [path.name for path in tmp_path.iterdir()] == ["m.lock"]


def test_what_a_killed_process_left_is_not_trusted(tmp_path: Path) -> None:
    target, partial = tmp_path / "m", tmp_path / "m.partial"
    for leftover in (target, partial):
        leftover.mkdir()
        (leftover / "rest").touch()
    convert.make_once(target, fill, silent)
    assert sorted(path.name for path in target.iterdir()) == ["file", sources.MANIFEST]
    assert not partial.exists()


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    def full(directory: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(ModelError, match="No space left on device; make room, or point STRETTO_CACHE"):
        convert.make_once(tmp_path / "m", full, silent)


def test_of_two_at_once_one_makes_it_and_the_other_waits(tmp_path: Path) -> None:
    target, made, waits = tmp_path / "m", [], threading.Event()

    def build(directory: Path) -> None:
        assert waits.wait(60)
        made.append(directory)
        fill(directory)

    def progress(line: str) -> None:
        assert "waiting" in line
        waits.set()

    threads = [threading.Thread(target=convert.make_once, args=(target, build, progress)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert sources.is_whole(target)
