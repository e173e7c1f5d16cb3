"""Log-probabilities of a step: which rows want them, where they land, and the messages they become.

All of it is known to the host when it launches the step, except the numbers. Those land in one int32 buffer,
n rows with k alternatives each: values (float32 bits) [n], ranks [n], ids [n, k], values (float32 bits)
[n, k]. Sampled rows come first, then the rows of scored chunks. k is the largest number that any row wants:
the alternatives are in order, so a row that wants fewer has them in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from stretto.roles import messages as m
from stretto.roles.executor.slots import NONE, HostSlots

A = TypeVar("A")


class ScoredRows(NamedTuple, Generic[A]):
    """The rows of a step whose logits are asked for their log-probabilities."""

    sampled: A
    """int64 [s]: numbers of sampled rows, whose tokens are those that the step samples."""
    rows: A
    """int64 [r]: rows of the step."""
    labels: A
    """int32 [r]: the token after each of them."""


class Row(NamedTuple):
    """A sampled row and the alternatives that it wants."""

    row: int
    width: int


class Chunk(NamedTuple):
    """A scored chunk, how many of its rows are scored, and the alternatives that each wants."""

    chunk: int
    rows: int
    width: int


class Columns(NamedTuple, Generic[A]):
    """A buffer's parts, as in `kernels.logprobs`."""

    values: A
    ranks: A
    top_ids: A
    top: A


@dataclass(frozen=True)
class Scores:
    """What a step reports beside its tokens."""

    sampled: list[Row]
    chunks: list[Chunk]
    width: int

    @property
    def rows(self) -> int:
        """n"""
        return len(self.sampled) + sum(chunk.rows for chunk in self.chunks)

    @property
    def size(self) -> int:
        """Numbers in the buffer."""
        return self.rows * (2 + 2 * self.width)

    def columns(self, buffer: A, float32: Any) -> Columns[A]:
        """The parts of an int32 buffer, an array or a tensor; float32 is the type's name in its library."""
        data: Any = buffer
        rows, ids_end = self.rows, self.rows * (2 + self.width)
        return Columns(
            values=data[:rows].view(float32),
            ranks=data[rows : 2 * rows],
            top_ids=data[2 * rows : ids_end].reshape(rows, self.width),
            top=data[ids_end : self.size].view(float32).reshape(rows, self.width),
        )

    def messages(self, buffer: np.ndarray) -> tuple[list[m.RowLogprobs], list[m.ChunkLogprobs]]:
        """What has landed in the buffer, for the scheduler."""
        columns = self.columns(buffer, np.float32)
        rows = [_row(columns, index, *row) for index, row in enumerate(self.sampled)]
        chunks, at = [], len(rows)
        for chunk in self.chunks:
            chunks.append(_chunk(columns, slice(at, at + chunk.rows), chunk))
            at += chunk.rows
        return rows, chunks


def scores_of(
    plan: m.Plan, slots: HostSlots, sampled_slots: np.ndarray, vocabulary: int
) -> tuple[Scores, ScoredRows[np.ndarray]] | tuple[None, None]:
    """The log-probabilities that a plan's step reports, if any; sampled_slots: int64 [S]."""
    widths = slots.logprobs[sampled_slots]
    sampled = np.flatnonzero(widths != NONE)
    if not len(sampled) and not plan.scored:
        return None, None
    widths = np.minimum(widths[sampled], vocabulary)
    chunks, rows, labels = _chunks(plan, slots.prompt_logprobs, vocabulary)
    width = max([0, *widths.tolist(), *(chunk.width for chunk in chunks)])
    rows_wanted = [Row(*pair) for pair in zip(sampled.tolist(), widths.tolist(), strict=True)]
    return Scores(rows_wanted, chunks, width), ScoredRows(sampled, rows, labels)


def _chunks(plan: m.Plan, wanted: np.ndarray, vocabulary: int) -> tuple[list[Chunk], np.ndarray, np.ndarray]:
    """The scored chunks, their rows of the step, int64 [r], and the tokens after those, int32 [r]."""
    table = np.frombuffer(plan.chunks, np.int32).reshape(-1, 3)
    starts = np.concatenate([[0], np.cumsum(table[:, 1])])
    ids = np.frombuffer(plan.chunk_ids, np.int32)
    chunks, rows, labels = [], [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for index, label in np.frombuffer(plan.scored, np.int32).reshape(-1, 2).tolist():
        begin, end = starts[index], starts[index + 1]
        following = np.append(ids[begin + 1 : end], [label] if label >= 0 else []).astype(np.int32)
        width = min(max(0, int(wanted[table[index, 0]])), vocabulary)
        chunks.append(Chunk(index, len(following), width))
        rows.append(np.arange(begin, begin + len(following)))
        labels.append(following)
    return chunks, np.concatenate(rows), np.concatenate(labels)


def _row(columns: Columns[np.ndarray], index: int, row: int, width: int) -> m.RowLogprobs:
    return m.RowLogprobs(
        row=row,
        logprob=float(columns.values[index]),
        rank=int(columns.ranks[index]),
        top_ids=columns.top_ids[index, :width].tobytes(),
        top=columns.top[index, :width].tobytes(),
    )


def _chunk(columns: Columns[np.ndarray], rows: slice, chunk: Chunk) -> m.ChunkLogprobs:
    return m.ChunkLogprobs(
        chunk=chunk.chunk,
        logprobs=columns.values[rows].tobytes(),
        ranks=columns.ranks[rows].tobytes(),
        top_ids=columns.top_ids[rows, : chunk.width].tobytes(),
        top=columns.top[rows, : chunk.width].tobytes(),
    )
