"""A model whose logits are written in a file, so that what a server does with them can be tested exactly.

`scripts.json` is a list of scripts, and a prompt's first token id, modulo their number, selects one. A script
is a list of steps; step p has the logits after the token at position p, and the last step repeats. A step is
a token id, which gets logit 0, or an object {"id": logit, ...}; all other tokens get -1e9. A script whose
first entry is {"prompt": L} begins after the last token of a prompt of L tokens instead.

The pool holds each token's id as its key, and as its value a digest of the sequence up to there. Every step
reads both back through the block table. A sequence that does not find its own tokens there, in order, gets
logits that are not numbers.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch

from stretto.roles.executor.kv import KVCache
from stretto.roles.executor.models.interface import Context, Logits
from stretto.roles.executor.models.loader import Loader
from stretto.roles.executor.weights.errors import ModelError
from stretto.roles.executor.weights.layout import SCRIPTS
from stretto.roles.executor.weights.model_config import ModelConfig

Step = int | dict[str, float]

UNLIKELY = -1e9
"""The logit of tokens that a step does not name."""
MODULUS = (1 << 24) - 3
"""Prime, and float32 holds every number below it."""


class Script(msgspec.Struct):
    """Where a script's steps are among all steps, and the position that the first of them belongs to."""

    first: int
    count: int
    position: int

    def row(self, positions: torch.Tensor) -> torch.Tensor:
        """The rows of the table for these positions, int64 [n]."""
        return self.first + (positions - self.position).clamp(0, self.count - 1)


class Scripted:
    """See `interface.Model`, and the module."""

    kv_windows: tuple[int, ...] = (0,)
    state_pages = 0
    kv_layers = kv_heads = head_dim = 1
    dtype = kv_dtype = torch.float32

    def __init__(self, config: ModelConfig, load: Loader, max_len: int) -> None:
        if load.kv_dtype is not load.dtype:
            raise ModelError(
                "a scripted model keeps token ids as KV, in full; "
                "leave out --kv-cache-dtype and --quantization"
            )
        self.vocab_size = config.vocab_size
        self._scripts: list[Script] = []
        steps: list[Step] = []
        for position, script in read_scripts(load.model_dir / SCRIPTS):
            self._scripts.append(Script(len(steps), len(script), position))
            steps += script
        rows = [_logits(step, self.vocab_size) for step in steps]
        broken = torch.full((self.vocab_size,), float("nan"))
        self._table = torch.stack([*rows, broken]).to(load.place)
        random = torch.Generator().manual_seed(0)
        self._weights = torch.randint(1, 1 << 20, (max_len,), generator=random).to(load.place)

    def __call__(self, ids: torch.Tensor, context: Context, cache: KVCache) -> Logits:
        cache.keys.view(-1)[context.cells] = ids.float()
        steps = torch.empty(len(ids), dtype=torch.int64, device=ids.device)
        starts = context.query_starts.tolist()
        for index, length in enumerate(context.kv_lengths.tolist()):
            fed = slice(starts[index], starts[index + 1])
            pages = context.block_tables[index, : -(-length // cache.keys.shape[2])].long()
            steps[fed] = self._play(context, cache, fed, pages, length)
        return lambda rows: self._table[steps[rows]]

    def _play(
        self, context: Context, cache: KVCache, fed: slice, pages: torch.Tensor, length: int
    ) -> torch.Tensor:
        """Rows of the table for one sequence's part of the step; the last where its past is not its own."""
        past = cache.keys[0, pages].flatten()[:length].nan_to_num().long()
        digests = self._digests(past)
        cache.values.view(-1)[context.cells[fed]] = digests[length - (fed.stop - fed.start) :]
        if not torch.equal(cache.values[0, pages].flatten()[:length], digests):
            return torch.full_like(context.cells[fed], len(self._table) - 1)
        script = self._scripts[int(past[0]) % len(self._scripts)]
        return script.row(context.positions[fed].long())

    def _digests(self, ids: torch.Tensor) -> torch.Tensor:
        """A number for every prefix of `ids`, as float32."""
        terms = (ids + 1) * self._weights[: len(ids)] % MODULUS
        return (terms.cumsum(0) % MODULUS).float()


def read_scripts(path: Path) -> list[tuple[int, list[Step]]]:
    """Each script's first position and its steps; raises `ModelError` when they are missing or malformed."""
    try:
        scripts = msgspec.json.decode(path.read_bytes(), type=list[list[Step]])
    except (OSError, msgspec.DecodeError) as error:
        raise ModelError(f"cannot read {path}: {error}") from None
    found = [_begin(script) for script in scripts]
    if not found or not all(steps for _, steps in found):
        raise ModelError(f"{path} needs at least one script, and each of them a step")
    return found


def _begin(script: list[Step]) -> tuple[int, list[Step]]:
    match script:
        case [{"prompt": length}, *steps]:
            return int(length) - 1, steps
        case _:
            return 0, script


def _logits(step: Step, size: int) -> torch.Tensor:
    named = {step: 0.0} if isinstance(step, int) else {int(token): value for token, value in step.items()}
    if any(not 0 <= token < size for token in named):
        raise ModelError(f"{SCRIPTS}: step {step} names a token that is not among the {size} of the model")
    row = torch.full((size,), UNLIKELY)
    row[list(named)] = torch.tensor(list(named.values()), dtype=torch.float32)
    return row
