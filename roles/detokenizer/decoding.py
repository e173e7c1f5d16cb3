"""Token ids to text, one token at a time.

What all `push` calls and `finish` return, joined, is what decoding all ids at once would give. No character
is shown before its last byte is there; bytes that can no longer become a character show as U+FFFD, as in the
full decode. `context` is the end of the prompt: it settles whether the first token's leading space is kept,
and a character that the prompt leaves unfinished is shown whole once the output completes it.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Iterable
from typing import Protocol

from tokenizers import Tokenizer as Vocabulary

from stretto.roles.detokenizer.pieces import BytePieces, FallbackPieces

REPLACEMENT = "\ufffd"


class Decoding(Protocol):
    """The text of one sequence of tokens, as it becomes certain."""

    completed: int
    """How many U+FFFD at the end of the prompt's own text the output's text stands in for."""

    def push(self, token: int) -> str:
        """Text that this token makes certain; often the token's own."""
        ...

    def finish(self) -> str:
        """What was held back."""
        ...


class ByteLevelText:
    """For byte-level BPE: bytes, and an incremental UTF-8 decoder."""

    __slots__ = ("_borrowed", "_pending", "_pieces", "completed")

    def __init__(self, pieces: BytePieces, context: Iterable[int] = ()) -> None:
        self.completed = 0
        self._pieces = pieces
        self._pending = b""
        self._borrowed = False
        for token in context:
            self.push(token)
        self._borrowed = bool(self._pending)
        """The first pending byte is the prompt's: if it comes to nothing, the prompt has shown the U+FFFD."""

    def push(self, token: int) -> str:
        piece = self._pieces[token]
        if not self._pending and type(piece) is str:
            return piece
        data = self._pending + (piece.encode() if isinstance(piece, str) else piece)
        text, used = utf_8_decode(data, "replace", False)
        self._pending = data[used:]
        return self._settle(text)

    def finish(self) -> str:
        text = self._pending.decode(errors="replace")
        self._pending = b""
        return self._settle(text)

    def _settle(self, text: str) -> str:
        if self._borrowed and text:
            self._borrowed = False
            self.completed = int(text[0] != REPLACEMENT)
            return text.removeprefix(REPLACEMENT)
        return text


class FallbackText:
    """For SentencePiece vocabularies with byte fallback.

    The full decode judges a run of byte tokens as a whole: text if all of it is UTF-8, else one U+FFFD per
    byte. So a run is held until another token ends it.
    """

    __slots__ = ("_borrowed", "_lead", "_pieces", "_run", "completed")

    def __init__(self, pieces: FallbackPieces, lead: int = 0, context: Iterable[int] = ()) -> None:
        """`lead` is how many leading spaces of the whole text are dropped."""
        self.completed = 0
        self._pieces = pieces
        self._lead = lead
        self._run = bytearray()
        self._borrowed = 0
        for token in context:
            self.push(token)
        self._borrow()

    def _borrow(self) -> None:
        """Of a run that ends the prompt, keep the unfinished character; the prompt has shown the rest."""
        text, used = utf_8_decode(self._run, "replace", False)
        self._strip(text)
        del self._run[:used]
        self._borrowed = len(self._run)

    def push(self, token: int) -> str:
        piece = self._pieces[token]
        if type(piece) is str:
            if not piece or not (self._run or self._lead):
                return piece
            return self._strip(self._close() + piece)
        assert isinstance(piece, int)
        self._run.append(piece)
        return ""

    def finish(self) -> str:
        return self._strip(self._close())

    def _close(self) -> str:
        """The text of the run, which ends here."""
        try:
            text, self.completed = self._run.decode(), self._borrowed or self.completed
        except UnicodeDecodeError:
            text = REPLACEMENT * (len(self._run) - self._borrowed)
        self._run.clear()
        self._borrowed = 0
        return text

    def _strip(self, text: str) -> str:
        while self._lead and text:
            if text[0] != " ":
                self._lead = 0
                break
            text = text[1:]
            self._lead -= 1
        return text


class WindowText:
    """For any other decoder: decodes a window of recent tokens and shows what was added.

    The window begins with the tokens that were shown last, so that a decoder that looks one token back sees
    it; the method is that of text-generation-inference. A decode per token: tens of microseconds.
    """

    __slots__ = ("_ids", "_shown_chars", "_shown_ids", "_skip_special", "_vocabulary", "completed")

    def __init__(self, vocabulary: Vocabulary, skip_special: bool, context: Iterable[int] = ()) -> None:
        self._vocabulary = vocabulary
        self._skip_special = skip_special
        self._ids = list(context)
        self._shown_ids = len(self._ids)
        shown = self._decode()
        self._shown_chars = len(shown.rstrip(REPLACEMENT))
        self.completed = len(shown) - self._shown_chars

    def push(self, token: int) -> str:
        self._ids.append(token)
        text = self._decode()
        if len(text) <= self._shown_chars or text.endswith(REPLACEMENT):
            return ""
        added = text[self._shown_chars :]
        del self._ids[: self._shown_ids]
        self._shown_ids = len(self._ids)
        self._shown_chars = len(self._decode())
        return added

    def finish(self) -> str:
        return self._decode()[self._shown_chars :]

    def _decode(self) -> str:
        return self._vocabulary.decode(self._ids, skip_special_tokens=self._skip_special)
