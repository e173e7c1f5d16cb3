"""GGUF tokenizer metadata as `tokenizer.json` and `tokenizer_config.json`.

Two kinds: "gpt2" is byte-level BPE with the file's own merges; "llama" is SentencePiece BPE, whose merges
follow from the tokens' scores. Both come out as Hugging Face's own conversions of such models do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from stretto.roles.executor.weights import pretokenizers
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.gguf_file import GGUFFile

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
"""Token types, as in `gguf.TokenType`."""
_NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def tokenizer(file: GGUFFile, progress: Callable[[str], None]) -> Tokenizer:
    """The file's tokenizer, with control tokens as special and user-defined ones as plain added tokens.

    Raises `ModelError` for an unknown kind or pre-tokenizer and for inconsistent metadata.
    """
    model = file.metadata.get("tokenizer.ggml.model")
    builders = {"gpt2": _byte_level, "llama": _sentencepiece}
    if model not in builders:
        raise ModelError(f"{file.path}: tokenizer {model!r} is not supported, only {' and '.join(builders)}")
    if not file.metadata.get("tokenizer.ggml.tokens"):
        raise ModelError(f"{file.path} holds no vocabulary")
    result = builders[model](file, progress)
    for kind, token in zip(_types(file), file.metadata["tokenizer.ggml.tokens"], strict=True):
        if kind in (_CONTROL, _USER_DEFINED):
            result.add_tokens([AddedToken(token, special=kind == _CONTROL, normalized=False)])
    _begin_with_bos(file, result)
    return result


def tokenizer_config(file: GGUFFile) -> dict[str, Any]:
    """The content of tokenizer_config.json: special tokens by name and the chat template."""
    tokens = file.metadata["tokenizer.ggml.tokens"]
    ids = {name: file.metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in _NAMED.items()}
    named = {name: tokens[index] for name, index in ids.items() if index is not None}
    templates = _chat_templates(file)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": _adds_bos(file),
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.metadata.get(f"{file.metadata['general.architecture']}.context_length"),
        **named,
        **({"chat_template": templates} if templates else {}),
    }


def _chat_templates(file: GGUFFile) -> str | list[dict[str, str]] | None:
    """The template, or the list of named ones that transformers takes when there are several."""
    default = file.metadata.get("tokenizer.chat_template")
    names = file.metadata.get("tokenizer.chat_templates")
    if not names:
        return default
    named = [{"name": name, "template": file.metadata[f"tokenizer.chat_template.{name}"]} for name in names]
    return [*([{"name": "default", "template": default}] if default else []), *named]


def _byte_level(file: GGUFFile, progress: Callable[[str], None]) -> Tokenizer:
    name = file.metadata.get("tokenizer.ggml.pre")
    if name is None:
        progress("the file names no pre-tokenizer: using 'default', numbers and spaces may split wrongly")
        name = "default"
    stored = (merge.partition(" ") for merge in file.metadata.get("tokenizer.ggml.merges", []))
    merges = [(left, right) for left, _, right in stored]
    whole_words = pretokenizers.takes_whole_words(name)
    result = Tokenizer(_bpe(file, merges, ignore_merges=whole_words))
    result.pre_tokenizer = pretokenizers.byte_level(name)
    result.decoder = decoders.ByteLevel()
    return result


def _sentencepiece(file: GGUFFile, progress: Callable[[str], None]) -> Tokenizer:
    progress("deriving merges from the vocabulary's scores")
    unknown = file.metadata["tokenizer.ggml.tokens"][file.metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    result = Tokenizer(
        _bpe(file, _merges_by_score(file), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    spaces = normalizers.Replace(" ", "▁")
    result.normalizer = spaces
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if file.metadata.get("tokenizer.ggml.add_space_prefix", True):
        result.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    result.decoder = decoders.Sequence(steps)
    return result


def _bpe(file: GGUFFile, merges: list[tuple[str, str]], **options: Any) -> models.BPE:
    vocabulary = {token: index for index, token in enumerate(file.metadata["tokenizer.ggml.tokens"])}
    if len(vocabulary) < len(file.metadata["tokenizer.ggml.tokens"]):
        raise ModelError(f"{file.path}: its vocabulary names a token twice; convert the original model again")
    try:
        return models.BPE(vocab=vocabulary, merges=merges, **options)
    except Exception as error:
        raise ModelError(f"{file.path}: merges and vocabulary do not fit ({error}); fetch it again") from None


def _merges_by_score(file: GGUFFile) -> list[tuple[str, str]]:
    """Every way to join two tokens into a third, the best score of the result first (SentencePiece's rule).

    Ties go to the pair whose parts come first in the vocabulary, as in transformers' conversion.
    """
    scores = file.metadata.get("tokenizer.ggml.scores")
    if scores is None:
        raise ModelError(f"{file.path} has neither merges nor scores; convert the original model again")
    tokens = file.metadata["tokenizer.ggml.tokens"]
    ids = {tokens[index]: index for index, kind in enumerate(_types(file)) if kind == _NORMAL}
    joins = [
        (-float(scores[index]), ids[token[:cut]], ids[token[cut:]])
        for token, index in ids.items()
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
    return [(tokens[left], tokens[right]) for _, left, right in sorted(joins)]


def _types(file: GGUFFile) -> list[int]:
    tokens = file.metadata["tokenizer.ggml.tokens"]
    types = file.metadata.get("tokenizer.ggml.token_type")
    return [_NORMAL] * len(tokens) if types is None else types.tolist()


def _adds_bos(file: GGUFFile) -> bool:
    """Whether a prompt begins with the BOS token; where the file does not say, llama.cpp's defaults."""
    sentencepiece = file.metadata["tokenizer.ggml.model"] == "llama"
    default = sentencepiece or pretokenizers.takes_whole_words(file.metadata.get("tokenizer.ggml.pre", ""))
    has_one = file.metadata.get("tokenizer.ggml.bos_token_id") is not None
    return has_one and bool(file.metadata.get("tokenizer.ggml.add_bos_token", default))


def _begin_with_bos(file: GGUFFile, result: Tokenizer) -> None:
    if not _adds_bos(file):
        return
    index = int(file.metadata["tokenizer.ggml.bos_token_id"])
    token = file.metadata["tokenizer.ggml.tokens"][index]
    result.post_processor = processors.TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", token, "$B"], special_tokens=[(token, index)]
    )
