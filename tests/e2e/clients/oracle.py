"""What transformers says of the same weights in float32."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from e2e.reference import reference_model
from transformers import AutoTokenizer

Logits = torch.Tensor
"""float32[vocabulary] of one position."""


class Oracle:
    """The embedded model in transformers, and its tokenizer."""

    def __init__(self, model_dir: Path) -> None:
        self.dir = model_dir
        self.model: Any = reference_model(model_dir)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def asked(self, question: str) -> list[int]:
        """A conversation of one question, up to where the answer begins."""
        chat = [{"role": "user", "content": question}]
        return self.ids(self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))

    def logits(self, ids: list[int]) -> torch.Tensor:
        """float32[len(ids), vocabulary]: row i is what follows ids[: i + 1]."""
        with torch.inference_mode():
            return self.model(torch.tensor([ids])).logits[0]

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        """The same, as log-probabilities."""
        return self.logits(ids).log_softmax(-1)

    def greedy(
        self, prompt: list[int], answer: list[int], bend: Callable[[Logits, list[int]], Logits]
    ) -> list[int]:
        """What greedy decoding picks at each place of `answer`, given the tokens before it.

        `bend` changes the logits, given the tokens of the answer so far. Where all picks are the answer's,
        the answer is, by induction, what greedy decoding yields.
        """
        rows = self.logits(prompt + answer)[len(prompt) - 1 : -1].clone()
        return [int(bend(row, answer[:i]).argmax()) for i, row in enumerate(rows)]

    def written(self, prompt: list[int], tokens: int) -> str:
        """The text that greedy decoding continues the prompt with."""
        out = self.model.generate(torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False)
        return self.tokenizer.decode(out[0, len(prompt) :], skip_special_tokens=True)
