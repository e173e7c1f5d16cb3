"""What the gateway asks a tokenizer and waits for: texts to split, ids to join."""

from __future__ import annotations

import asyncio

from stretto.roles import messages as m
from stretto.roles.gateway.faults import Refused

Reply = m.Tokenized | m.Detokenized


class Questions:
    """Open questions, by uid. Each is settled by a reply, by a refusal, or by its tokenizer's death."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, asyncio.Future[Reply]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def wait(self, uid: int, tokenizer: int) -> Reply:
        """The reply to a question that has just been sent. Raises `Refused`; forgets it in any case."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._open[uid] = tokenizer, future
        try:
            return await future
        finally:
            del self._open[uid]

    def settle(self, uid: int, reply: Reply | m.Fault) -> bool:
        """Hand over what came; False where nobody asked, or nobody waits any more."""
        if uid not in self._open:
            return False
        _, future = self._open[uid]
        if not future.done():
            _resolve(future, reply)
        return True

    def lose(self, tokenizer: int | None, fault: m.Fault) -> None:
        """Fail what this tokenizer was asked; None: all that is open."""
        for asked, future in self._open.values():
            if tokenizer in (asked, None) and not future.done():
                _resolve(future, fault)


def _resolve(future: asyncio.Future[Reply], reply: Reply | m.Fault) -> None:
    if isinstance(reply, m.Fault):
        future.set_exception(Refused(reply))
    else:
        future.set_result(reply)
