from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from stretto.roles.executor.weights import sources
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.model_config import load_model_config
from stretto.roles.executor.weights.prepare import locate, main, prepare


def silent(line: str) -> None:
    pass


@pytest.fixture
def path(tiny: Callable[..., Any], write_gguf: Callable[..., Path]) -> Path:
    return write_gguf(tiny("LlamaForCausalLM"), "llama")


def test_it_is_located_once_it_is_prepared(tmp_path: Path, path: Path) -> None:
    assert locate(str(path), tmp_path) is None
    made = prepare(str(path), tmp_path, silent)
    assert locate(str(path), tmp_path) == made
    assert sorted(file.name for file in made.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        sources.MANIFEST,
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_a_damaged_conversion_is_made_again(tmp_path: Path, path: Path) -> None:
    weights = prepare(str(path), tmp_path, silent) / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert locate(str(path), tmp_path) is None
    prepare(str(path), tmp_path, silent)
    assert weights.read_bytes() == whole


def test_locating_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path; from stretto.roles.executor.weights.prepare import locate;"
        "locate('', Path('/nowhere')); locate('org/name', Path('/nowhere'));"
        "heavy = {'torch', 'numpy', 'gguf', 'tokenizers', 'transformers', 'huggingface_hub'};"
        "print(heavy & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_the_command_prints_the_directory_last(
    tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(path), str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert Path(out.splitlines()[-1]) == locate(str(path), tmp_path)
    assert err.splitlines()[-1] == "converting weights: 100 %"


def test_the_command_fails_with_the_reason_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["no such model", str(tmp_path)]) == 1
    assert "is no existing directory or file" in capsys.readouterr().err.splitlines()[-1]
    assert main(["one argument"]) == 2


def test_an_unsupported_directory_is_refused(tmp_path: Path, tiny: Callable[..., Any]) -> None:
    model = tiny("LlamaForCausalLM")
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").touch()
    assert prepare(str(tmp_path), tmp_path, silent) == tmp_path
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace("LlamaForCausalLM", "GPT2LMHeadModel"))
    with pytest.raises(ModelError, match="'GPT2LMHeadModel' is not supported"):
        prepare(str(tmp_path), tmp_path, silent)


def test_two_processes_at_once_both_get_it(tmp_path: Path, path: Path) -> None:
    command = [sys.executable, "-m", "stretto.roles.executor.weights.prepare", str(path), str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = {process.communicate()[0].strip() for process in both}
    assert outputs == {str(locate(str(path), tmp_path))}


def test_the_embedded_model_is_configured_as_published(model_dir: Path) -> None:
    config = load_model_config(model_dir)
    assert (config.architecture, config.num_layers, config.num_heads, config.num_kv_heads) == (
        *("LlamaForCausalLM", 30, 9, 3),
    )
    assert (config.hidden_size, config.intermediate_size, config.head_dim) == (576, 1536, 64)
    assert (config.vocab_size, config.max_position_embeddings) == (49152, 8192)
    assert (config.rope_theta, config.rope_scaling, config.rms_norm_eps) == (100000.0, None, 1e-5)
    assert (config.tie_word_embeddings, config.eos_token_ids, config.dtype) == (True, (2,), "float16")


def test_transformers_gets_the_right_answer_from_the_embedded_model(model_dir: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert output[-1] == 2
    assert tokenizer.decode(output, skip_special_tokens=True) == "The capital of France is Paris."
