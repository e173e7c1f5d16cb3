"""How attention on the GPU is cut up into programs.

How decoding gets the memory's bandwidth (reckoned for an H200: 132 multiprocessors, 4.8 TB/s, some 0.8 us
from a load to its data, so that 29 KB must be on their way to each multiprocessor at all times):

* a program of 4 warps has two tiles on their way by asynchronous copies of 16 bytes, each 16 KB of keys and
  16 KB of values. Page numbers come as far ahead of the keys that they lead to, which is why it takes 5
  stages: with 4, the compiler keeps one tile. That is 72 KB of shared memory and under 170 registers, so
  three programs fit a multiprocessor, and one starts while the others stream.
* all query heads of a KV head share what is loaded, in one product of 16 rows on the tensor cores: padding to
  16 rows costs nothing that memory would not wait for.
* a split of 512 positions is 256 KB of keys and values for a head of 128 in 16 bits: 7 us of one
  multiprocessor's share, against 1 us to start. 64 sequences of 4,096 tokens and 8 KV heads are 4,096
  programs, 10 rounds of 396. Partial results are 0.8 % of the bytes.

How a short chunk over a long context gets the GPU at all: 16 rows with 4 query heads for each of 8 KV heads
are 8 programs, and 100,000 keys and values of 128 elements in 16 bits are 51 MB for each. A multiprocessor
takes in some 80 GB/s with two tiles on their way: 640 us, while 124 others are idle.

* a split of 2,048 positions is 1 MB. Of those, 49 x 8 programs are three rounds of 132: some 40 us, or the
  85 us that the memory needs for 410 MB if that is longer. 16,000 positions give 64 programs, half a round.
* parts of 64 query vectors are 33 KB, written and read once, in the cache as a rule: 6 % of the keys' bytes.
* a program that does all splits of its rows begins every one with an empty pipeline and adds up by way of
  the cache, 64 KB there and back: 2 us, and a split's products take 25: 8 % of the attention of a prefill
  beyond 2,048 positions. Shorter ones have one split, and lose nothing.
* from 33 blocks on (512 programs, halved), programs fill two rounds, and nothing is shared.
"""

from __future__ import annotations

from typing import NamedTuple

SPLIT = 512
"""Positions of a split. Part of what a decode computes, so the same for every GPU and batch."""

PROGRAMS = 4096
"""Decode programs a launch has, at the most, if that many share the splits of long sequences."""

CHUNK_SPLIT = 2048
"""Positions of a split of a prompt chunk's keys. Part of what is computed, like SPLIT."""

CHUNK_PROGRAMS = 512
"""Programs that a launch over prompt chunks is filled up to by sharing the splits of its blocks."""

SCRATCH_LIMIT = 1 << 25
"""Floats of scratch (128 MiB) beyond which decodes take several launches, and chunks are not split."""

MERGED = 8
"""Splits that `merge_kernel` adds at once, all of them up to 4,096 positions, and `join_kernel` reads."""

JOINED = 8
"""Query vectors of a program of `join_kernel`."""


class Tiles(NamedTuple):
    """The work of a program."""

    rows: int
    """Query vectors: rows times heads of a group."""
    elements: int
    """Of a tile of keys, and of one of values."""
    warps: int
    stages: int

    def options(self, dim_block: int) -> dict[str, int]:
        """Keyword arguments of a launch."""
        tile = max(16, min(64, self.elements // dim_block))
        return {"TILE": tile, "num_warps": self.warps, "num_stages": self.stages}


DECODE = {
    80: {
        1: Tiles(16, 8 << 10, warps=4, stages=5),
        2: Tiles(16, 8 << 10, warps=4, stages=5),
        4: Tiles(16, 4 << 10, warps=4, stages=5),
    }
}
"""By bytes of an element of the cache; see the top of this file."""

EXTEND = {
    80: {
        1: Tiles(128, 4 << 10, warps=8, stages=5),
        2: Tiles(128, 4 << 10, warps=8, stages=5),
        4: Tiles(16, 2 << 10, warps=4, stages=2),
    },
    90: {
        1: Tiles(128, 8 << 10, warps=8, stages=5),
        2: Tiles(128, 8 << 10, warps=8, stages=5),
        4: Tiles(16, 2 << 10, warps=4, stages=2),
    },
    100: {
        1: Tiles(128, 8 << 10, warps=8, stages=5),
        2: Tiles(128, 8 << 10, warps=8, stages=5),
        4: Tiles(16, 2 << 10, warps=4, stages=3),
    },
}
"""128 query vectors feed the asynchronous tensor cores of compute capability 9.0 from two warp groups; heads
of more than 128 elements have half as many. Compute capability 8.0 keeps more in registers, and has smaller
tiles. No tensor core keeps float32 whole, and the operands of plain products fill the registers sooner.
"""


def count_splits(positions: int, window: int = 0, split: int = SPLIT) -> int:
    """Splits that one row may have in block tables with room for so many positions.

    window: positions seen, those of all rows together where there are several, 0 for all.
    """
    splits = -(-positions // split)
    return min(splits, -(-window // split) + 1) if window else splits


def chunk_units(blocks: int, kv_heads: int, floats: int, splits: int) -> int:
    """Parts that scratch has room for: at least one for each block, and 0 where blocks have one split.

    blocks: of rows, at the most. floats: of a part of one KV head. splits: of a block, at the most.
    """
    shared = min(blocks, CHUNK_PROGRAMS // kv_heads // 2)
    room = min(shared * splits, SCRATCH_LIMIT // (floats * kv_heads))
    return max(blocks, room) if splits > 1 else 0


def at_once(sequences: int, q_heads: int, head_dim: int, splits: int) -> int:
    """Sequences that one launch decodes, at least one."""
    return max(1, min(sequences, SCRATCH_LIMIT // (q_heads * max(1, splits) * (head_dim + 2))))


def scratch_size(sequences: int, q_heads: int, head_dim: int, positions: int, window: int = 0) -> int:
    """Floats for the partial results of decoding: 0 where rows have one split, and nothing is merged.

    positions: what the block tables have room for, their width times the page size.
    """
    splits = count_splits(positions, window)
    if splits < 2:
        return 0
    return at_once(sequences, q_heads, head_dim, splits) * q_heads * splits * (head_dim + 2)
