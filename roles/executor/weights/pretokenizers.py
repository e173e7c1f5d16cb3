r"""How byte-level vocabularies cut text into words before merging, by the name GGUF files give it.

`tokenizer.ggml.pre` names the way; what each name means is defined by llama.cpp (`src/llama-vocab.cpp`) after
the `tokenizer.json` of the model that introduced it. Each way is a chain of cuts, every one applied to the
pieces the one before left; what a pattern matches becomes a piece, and so does what lies between.
"""

from __future__ import annotations

from tokenizers import Regex, pre_tokenizers

from stretto.roles.executor.weights.errors import ModelError

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
_SLASHED_SYMBOLS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*" + _SPACES
)

_LLAMA3_NAMES = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"
_CUTS = [
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", (r"\p{N}", _GPT2)),
    (
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum modern-bert exaone4",
        (_GPT2,),
    ),
    (_LLAMA3_NAMES + " dbrx smaug-bpe glm4 chatglm-bpe", (_WORDS + r"|\p{N}{1,3}" + _SYMBOLS + _SPACES,)),
    (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        (_WORDS + r"|\p{N}" + _SYMBOLS + _SPACES,),
    ),
    ("tekken", (_CASED % ("", "") + r"|\p{N}" + _SLASHED_SYMBOLS + _SPACES,)),
    (
        "gpt-4o llama4 kanana2",
        (_CASED % (_SUFFIXES + "?", _SUFFIXES + "?") + r"|\p{N}{1,3}" + _SLASHED_SYMBOLS + _SPACES,),
    ),
    ("deepseek-coder", (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    ("deepseek-v3 hunyuan-dense joyai-llm", (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
    ("default", (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
]
_BY_NAME = {name: cuts for names, cuts in _CUTS for name in names.split()}
_WHOLE_WORDS = {*_LLAMA3_NAMES.split(), "tekken"}
"""Vocabularies in which a word that is a token is that token, even where no merges lead to it; their files
begin a prompt with the beginning-of-sequence token unless they say otherwise."""


def byte_level(name: str) -> pre_tokenizers.PreTokenizer:
    """The cuts called `name`, then bytes as GPT-2's printable characters.

    Raises `ModelError` for an unknown name: guessing would silently tokenise numbers and spaces wrongly.
    """
    if name not in _BY_NAME:
        raise ModelError(
            f"pre-tokenizer {name!r} is not supported; the supported ones are {', '.join(sorted(_BY_NAME))}"
        )
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _BY_NAME[name]]
    return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def takes_whole_words(name: str) -> bool:
    """Whether a word found in the vocabulary is taken as it is, without merging (`ignore_merges`)."""
    return name in _WHOLE_WORDS
