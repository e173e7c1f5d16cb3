"""The progress bar of a batch: requests done, and tokens per second in and out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stretto.roles.client.frames import Usage

Advance = Callable[[Usage], None]


@contextmanager
def progress(total: int, use_tqdm: bool | Callable[..., Any]) -> Iterator[Advance]:
    """Yields what to call with each finished request's usage; `use_tqdm` may be a class like `tqdm`."""
    if not use_tqdm:
        yield lambda usage: None
        return
    began = time.monotonic()
    tokens_in = tokens_out = 0
    with _bar_class(use_tqdm)(total=total, desc="Requests", unit="req", dynamic_ncols=True) as bar:

        def advance(usage: Usage) -> None:
            nonlocal tokens_in, tokens_out
            tokens_in += usage.prompt_tokens
            tokens_out += usage.completion_tokens
            seconds = time.monotonic() - began
            bar.set_postfix_str(
                f"in {tokens_in / seconds:.0f}, out {tokens_out / seconds:.0f} tok/s", refresh=False
            )
            bar.update(1)

        yield advance


def _bar_class(use_tqdm: bool | Callable[..., Any]) -> Callable[..., Any]:
    if callable(use_tqdm):
        return use_tqdm
    from tqdm.auto import tqdm

    return tqdm
