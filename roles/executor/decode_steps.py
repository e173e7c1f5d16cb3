"""Steps of decodes alone: padded to a few sizes, run launch by launch at first, then replayed from graphs.

A bucket's work always reads and writes the same memory: a step's numbers are copied to where it looks for
them, its rows are made there, its tokens are copied from where it leaves them. So the work can be captured,
and whether it was makes no difference to any token.

It is in two parts, a graph each. *Forward* ends with the logits. *Sample* makes tokens of them, and serves
steps whose rows are all plain. A step with controls or log-probabilities replays the first, by far the
longer, and samples its own rows launch by launch: what those rows want differs in number and in shape from
step to step, and kernels that look for it in every row would cost every step.

Padded rows are of the spare slot and of no position: they write no key and read none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from stretto.kernels.prepare_step import Deltas, SlotState, StepInputs, prepare_step
from stretto.roles.executor.batch import Rows
from stretto.roles.executor.buckets import MOST, bucket_of, width_of
from stretto.roles.executor.delta_batch import DeltaBatch, Layout
from stretto.roles.executor.device import Device
from stretto.roles.executor.kv import KVCache
from stretto.roles.executor.models.interface import Context, Model
from stretto.roles.executor.sampler import Sampler
from stretto.roles.executor.scorer import Scorer

NO_CHUNKS = (0, 0)
EAGER = 2
"""How often work runs launch by launch: the first time loads its kernels, which a capture may not."""


def new_inputs(rows: int, sequences: int, samples: int, width: int, place: torch.device) -> StepInputs:
    """Room for a step; `width`: columns of its block tables."""

    def whole(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.int32, device=place)

    def long(count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.int64, device=place)

    return StepInputs(
        ids=whole(rows),
        positions=whole(rows),
        cells=long(rows),
        slots=long(sequences),
        query_starts=whole(sequences + 1),
        kv_lengths=whole(sequences),
        block_tables=whole(sequences, width),
        sampled_rows=long(samples),
        sampled_slots=long(samples),
        sampled_positions=long(samples),
    )


def context_of(inputs: StepInputs, width: int, chunks: tuple[int, int]) -> Context:
    """What the model needs to know; width: columns of the block tables that are looked at."""
    tables = inputs.block_tables[:, :width]
    sequences = (inputs.query_starts, inputs.kv_lengths)
    return Context(inputs.positions, inputs.cells, tables, *sequences, chunks=chunks)


def rows_of(inputs: StepInputs, samples: int) -> Rows[torch.Tensor]:
    """The inputs as the rows of a batch, of which so many are sampled."""
    first = inputs[:4]
    sampled = (part[:samples] for part in inputs[-3:])
    return Rows(*first, inputs.query_starts, inputs.kv_lengths, *sampled)


class Part:
    """Work that is captured once it has been done often enough, and replayed from then on."""

    def __init__(self, work: Callable[[], None], device: Device, graphs: bool) -> None:
        self._launch, self._device, self._left = work, device, EAGER if graphs else None
        self.captured = False

    def __call__(self) -> None:
        if self._left == 0 and not self.captured:
            self._launch, self.captured = self._device.capture(self._launch), True
        elif self._left:
            self._left -= 1
        self._launch()


@dataclass
class Bucket:
    """Where the work of steps of one size finds and leaves things."""

    deltas: Deltas[torch.Tensor]
    inputs: StepInputs
    width: int
    """Columns of the block tables that are looked at."""
    logits: torch.Tensor
    """[bucket, V]: where the forward part leaves them."""


class Parts(NamedTuple):
    """A bucket and its work."""

    bucket: Bucket
    forward: Part
    sample: Part


class DecodeSteps:
    """For work on the compute stream. graphs: whether to capture at all."""

    def __init__(
        self,
        device: Device,
        model: Model,
        cache: KVCache,
        state: SlotState,
        sampler: Sampler,
        graphs: bool,
    ) -> None:
        self._device, self._model, self._cache, self._state = device, model, cache, state
        self._sampler, self._graphs = sampler, graphs
        slots, self._table_width = state.table.shape
        most, place = bucket_of(min(slots - 1, MOST)), device.torch_device
        self._packed = torch.zeros(Layout(0, most, 0, 0, most).starts[-1], dtype=torch.int32, device=place)
        self._inputs = new_inputs(most, most, most, self._table_width, place)
        self._tokens = torch.zeros(most, dtype=torch.int32, device=place)
        self._parts: dict[tuple[int, int], Parts] = {}

    def __call__(self, batch: DeltaBatch[torch.Tensor], tokens: torch.Tensor, scorer: Scorer | None) -> None:
        """Run a step that has a bucket; tokens: int32 [decodes], written."""
        bucket, forward, sample = self._parts_of(batch)
        self._packed[: len(batch.packed)].copy_(batch.packed)
        forward()
        if batch.controlled is None and scorer is None:
            sample()
            tokens.copy_(self._tokens[: len(tokens)])
        else:
            whole = batch.with_rows(rows_of(bucket.inputs, len(tokens)))
            self._sampler(lambda rows: bucket.logits[: len(rows)], whole, tokens, scorer)

    def _parts_of(self, batch: DeltaBatch[torch.Tensor]) -> Parts:
        size = bucket_of(batch.sizes.decodes)
        width = width_of(batch.sizes.width, self._table_width)
        if (size, width) not in self._parts:
            bucket = self._new_bucket(size, width, batch.layout)
            works = partial(self._forward, bucket), partial(self._sample, bucket)
            self._parts[size, width] = Parts(
                bucket, *(Part(work, self._device, self._graphs) for work in works)
            )
        return self._parts[size, width]

    def _new_bucket(self, size: int, width: int, layout: Layout) -> Bucket:
        fixed = self._inputs
        inputs = StepInputs(*(part[:size] for part in fixed))
        inputs = inputs._replace(query_starts=fixed.query_starts[: size + 1])
        return Bucket(layout.unpack(self._packed), inputs, width, torch.empty(0))

    def _forward(self, bucket: Bucket) -> None:
        inputs = bucket.inputs
        prepare_step(self._state, bucket.deltas, inputs, self._cache.keys.shape[2])
        logits = self._model(inputs.ids, context_of(inputs, bucket.width, NO_CHUNKS), self._cache)
        bucket.logits = logits(inputs.sampled_rows)

    def _sample(self, bucket: Bucket) -> None:
        inputs = bucket.inputs
        tokens = self._tokens[: len(inputs.sampled_slots)]
        self._sampler.sample(bucket.logits, inputs.sampled_slots, inputs.sampled_positions, tokens)
