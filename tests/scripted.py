"""Directories of scripted models: what the model says is written down, and every token is known.

`make_model` writes one; see `stretto.roles.executor.models.scripted` for what a script may hold.

    path = make_model(tmp_path, [say("Hello", prompt=3)])     # answers any prompt of three tokens

With the tokenizer "bytes", a byte-level BPE, the ids 0..255 are the bytes, and every prompt encodes to its
bytes: token ids and lengths can be read off the text. With "sentencepiece" a prompt is "<s>", then a token
for each character, spaces as in Llama 2, and `SP_BYTES + byte` for bytes of characters that have no token.
The ids of `extra` never come out of a text; they are for scripts.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

Step = int | Mapping[int, float]

BOS, EOS, START, END = 256, 257, 258, 259
"""Special tokens of "bytes": <|bos|>, <|eos|>, <|start|> and <|end|>; the last two surround chat turns."""
EXTRA = 260
"""Of "bytes": the id of the first of `extra`, by default " hello", " world", "END" and half of 🙂."""
DEFAULT_EXTRA = (" hello", " world", "END", "🙂".encode()[:2])

SP_UNK, SP_BOS, SP_EOS, SP_BYTES, SP_CHARACTERS = 0, 1, 2, 3, 259
"""Of "sentencepiece": <unk>, <s>, </s>, the token of byte 0, and that of the first of `CHARACTERS`."""
CHARACTERS = "▁" + string.ascii_letters + string.digits + string.punctuation
SP_EXTRA = SP_CHARACTERS + len(CHARACTERS)
"""Of "sentencepiece": the id of the first of `extra`, by default "▁hello", "▁world" and "END"."""
SP_DEFAULT_EXTRA = ("▁hello", "▁world", "END")

CHAT = (
    "{% for m in messages %}{{ open + m.role + '\n' + m.content + close }}{% endfor %}"
    "{% if add_generation_prompt %}{{ open + 'assistant\n' }}{% endif %}"
)


def say(text: str | bytes | Sequence[int], prompt: int = 1, end: int | None = EOS) -> list[Any]:
    """A script that answers a prompt of `prompt` tokens with a text's bytes, or with ids, and then ends."""
    ids = list(text.encode() if isinstance(text, str) else text)
    return [{"prompt": prompt}, *ids, *([] if end is None else [end])]


def sp_ids(text: str) -> list[int]:
    """Ids of a text in "sentencepiece", without "<s>" and the space that is put before a prompt."""
    return [
        token
        for character in text.replace(" ", "▁")
        for token in (
            [SP_CHARACTERS + CHARACTERS.index(character)]
            if character in CHARACTERS
            else [SP_BYTES + byte for byte in character.encode()]
        )
    ]


def make_model(
    path: Path,
    scripts: Sequence[Sequence[Step]],
    tokenizer: str = "bytes",
    extra: Sequence[str | bytes] | None = None,
    eos: int | Sequence[int] | None = None,
    max_len: int = 4096,
) -> Path:
    """Write a scripted model into `path`, which is made if need be, and return it.

    extra: texts, or bytes, of further tokens. eos: the ids that end an answer, by default EOS or SP_EOS.
    """
    path.mkdir(parents=True, exist_ok=True)
    encoder, names, default = _bytes(extra) if tokenizer == "bytes" else _sentencepiece(extra)
    encoder.save(str(path / "tokenizer.json"))
    ends = default if eos is None else eos
    _write(path, "scripts.json", scripts)
    _write(
        path,
        "config.json",
        {
            "architectures": ["ScriptedForCausalLM"],
            "vocab_size": encoder.get_vocab_size(),
            "max_position_embeddings": max_len,
            "eos_token_id": ends if isinstance(ends, int) else list(ends),
        },
    )
    _write(path, "tokenizer_config.json", names)
    return path


def _bytes(extra: Sequence[str | bytes] | None) -> tuple[Tokenizer, dict[str, str], int]:
    specials = ["<|bos|>", "<|eos|>", "<|start|>", "<|end|>"]
    texts = [text.encode() if isinstance(text, str) else text for text in extra or DEFAULT_EXTRA]
    entries = [*_NAMES, *specials, *("".join(_NAMES[byte] for byte in text) for text in texts)]
    encoder = Tokenizer(models.BPE(_numbered(entries), []))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    encoder.decoder = decoders.ByteLevel()
    encoder.add_special_tokens([AddedToken(text, normalized=False) for text in specials])
    template = CHAT.replace("open", "'<|start|>'").replace("close", "'<|end|>'")
    return encoder, {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "chat_template": template}, EOS


def _sentencepiece(extra: Sequence[str | bytes] | None) -> tuple[Tokenizer, dict[str, str], int]:
    specials = ["<unk>", "<s>", "</s>"]
    texts = [str(text) for text in extra or SP_DEFAULT_EXTRA]
    entries = [*specials, *(f"<0x{byte:02X}>" for byte in range(256)), *CHARACTERS, *texts]
    encoder = Tokenizer(models.BPE(_numbered(entries), [], unk_token="<unk>", byte_fallback=True))
    encoder.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    stages = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    encoder.decoder = decoders.Sequence(stages)
    encoder.add_special_tokens([AddedToken(text, normalized=False) for text in specials])
    encoder.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", SP_BOS)])
    template = "{{ bos_token }}" + CHAT.replace("open", "'[' ").replace("close", "']'")
    return encoder, {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}, SP_EOS


def _byte_names() -> list[str]:
    """How a byte-level vocabulary writes each byte (GPT-2's `bytes_to_unicode`)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


_NAMES = _byte_names()


def _numbered(entries: Sequence[str]) -> dict[str, int]:
    assert len(set(entries)) == len(entries), "an extra token is there already"
    return {entry: index for index, entry in enumerate(entries)}


def _write(path: Path, name: str, value: Any) -> None:
    (path / name).write_text(json.dumps(value))
