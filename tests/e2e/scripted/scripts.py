"""Scripts with what they are asked and what must come of it, and the model that holds several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scripted import make_model

Step = int | Mapping[int, float]
"""A token, which is certain, or logits."""

UNLIKELY = -1e9


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """A request to a model that wants to say `says`, and the answer that is right."""

    name: str
    says: Sequence[Step]
    """After the prompt's last token; the last step repeats."""
    prompt: Sequence[int] = b"ab"
    """Without its first token, which tells the model which script is meant."""
    hears: Sequence[Step] = ()
    """What the model would have said before each of the prompt's tokens but the first."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    """Without the prompt, also where the request asks for that."""
    ids: Sequence[int] = b""
    finish: str = "stop"
    stop: str | int | None = None
    key: int | None = None
    """The prompt's first token; None: any."""

    @property
    def script(self) -> list[Step | dict[str, int]]:
        """What the model reads."""
        if self.hears:
            assert len(self.hears) == len(self.prompt)
            return [*self.hears, *self.says]
        return [{"prompt": 1 + len(self.prompt)}, *self.says]

    def step(self, position: int) -> Step:
        """What the model says after the token at a position of prompt and answer together."""
        steps = [*(self.hears or [self.says[0]] * len(self.prompt)), *self.says]
        return steps[min(position, len(steps) - 1)]


class Shelf:
    """Cases of one model, each with a first token that tells it from the others."""

    def __init__(self, cases: Sequence[Case], first_key: int, raw: Sequence[bytes], **model: Any) -> None:
        """Keys go up from `first_key`; `raw` has each token's bytes, `model` what `make_model` wants."""
        self.cases, self.raw, self._model = cases, raw, model
        taken = {case.key for case in cases}
        free = (key for key in range(first_key, 1 << 20) if key not in taken)
        self._keys = {case: next(free) if case.key is None else case.key for case in cases}
        self._size = next(
            n for n in range(len(cases), 1 << 20) if len({k % n for k in self.keys}) == len(cases)
        )

    @property
    def keys(self) -> list[int]:
        """The prompts' first tokens."""
        return list(self._keys.values())

    def prompt(self, case: Case) -> list[int]:
        """The whole prompt of a case."""
        return [self._keys[case], *case.prompt]

    def write(self, path: Path) -> Path:
        """Make the model's directory; returns it."""
        scripts: list[Any] = [[0]] * self._size
        for case, key in self._keys.items():
            scripts[key % self._size] = case.script
        return make_model(path, scripts, **self._model)


def logprobs_of(step: Step, size: int) -> np.ndarray:
    """The model's own distribution, as natural logarithms: float32 [size]."""
    logits = np.full(size, UNLIKELY, np.float32)
    for token, logit in step.items() if isinstance(step, Mapping) else [(step, 0.0)]:
        logits[token] = logit
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum(dtype=np.float32))
