"""Log-probabilities on their way from the rows of a step to the requests that asked for them."""

from __future__ import annotations

from collections.abc import Iterable

from stretto.roles import messages as m
from stretto.roles.scheduler.table import Slots


def of_tokens(
    rows: Iterable[m.RowLogprobs], sampling: Slots, kept: Slots, uids: Slots
) -> list[m.TokenLogprobs]:
    """Those of the tokens that were kept.

    `sampling` has the slot of each row of the step, `kept` the slots whose tokens are wanted, `uids` the
    request of each slot.
    """
    wanted = set(kept.tolist())
    return [
        m.TokenLogprobs(int(uids[slot]), row.logprob, row.rank, row.top_ids, row.top)
        for row in rows
        if (slot := int(sampling[row.row])) in wanted
    ]


def of_prompt(uid: int, known: int, first: int, part: m.ChunkLogprobs) -> m.PromptLogprobs | None:
    """Those of a chunk that are news, None where there are none.

    The chunk's entries are for the prompt's tokens from `first` on; those before `known` were had already,
    from an earlier run of the same positions.
    """
    entries, skip = len(part.logprobs) // 4, known - first
    if skip < 0:
        raise AssertionError(f"request {uid}: log-probabilities [{known}, {first}) of the prompt are missing")
    if skip >= entries:
        return None
    row = len(part.top_ids) // entries
    return m.PromptLogprobs(
        uid,
        known,
        part.logprobs[4 * skip :],
        part.ranks[4 * skip :],
        part.top_ids[row * skip :],
        part.top[row * skip :],
    )
