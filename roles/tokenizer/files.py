"""The model directory's JSON files, as far as this role reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from stretto.roles.actor import SetupError

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Model(msgspec.Struct):
    """The head of `tokenizer.json`'s "model"; its vocabulary is skipped."""

    type: str = ""
    unk_token: str | None = None
    byte_fallback: bool = False


class AddedToken(msgspec.Struct):
    """One of `tokenizer.json`'s "added_tokens"."""

    content: str
    lstrip: bool = False
    rstrip: bool = False


class Pipeline(msgspec.Struct):
    """`tokenizer.json` without its vocabulary: the stages a text goes through."""

    model: Model
    added_tokens: list[AddedToken] = []
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None


def read_pipeline(path: Path) -> Pipeline:
    """Stages of a `tokenizer.json`; megabytes of vocabulary are skipped, not built."""
    return msgspec.json.decode(path.read_bytes(), type=Pipeline)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or `{}` where the file is absent."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise SetupError(f"{path} is not valid JSON ({error}); fetch or convert the model again.") from error


def stages(stage: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    """A pipeline stage as a flat list: `key` names the members of a "Sequence"."""
    if stage is None:
        return []
    if stage["type"] != "Sequence":
        return [stage]
    return [leaf for member in stage[key] for leaf in stages(member, key)]


def special_tokens(model_dir: Path) -> dict[str, str]:
    """Named special tokens, e.g. {"bos_token": "<s>"}: from `tokenizer_config.json`, else the older map."""
    found = read_json(model_dir / "special_tokens_map.json") | read_json(model_dir / "tokenizer_config.json")
    named = {name: found.get(name) for name in SPECIAL_TOKENS}
    texts = {name: value["content"] if isinstance(value, dict) else value for name, value in named.items()}
    return {name: text for name, text in texts.items() if text is not None}


def eos_ids(model_dir: Path) -> tuple[int, ...]:
    """Ids that end the model's output: `generation_config.json` decides, else `config.json`; may be empty."""
    for name in ("generation_config.json", "config.json"):
        found = read_json(model_dir / name).get("eos_token_id")
        if found is not None:
            return tuple(found) if isinstance(found, list) else (found,)
    return ()
