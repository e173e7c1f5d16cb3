"""What a scheduler goes on with that starts in another's place, and what is known of an output already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from stretto.roles import messages as m
from stretto.roles.scheduler.pages import Ints

MAX_KEPT_BYTES = 1 << 20
"""Of a request that a detokenizer keeps: a larger one would crowd the ring. Its gateway submits it again."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(m.Request)


def kept(request: m.Request) -> bytes:
    """The request as a detokenizer keeps it, for `requests_of`; nothing where it is too large."""
    data = _encoder.encode(request)
    return data if len(data) <= MAX_KEPT_BYTES else b""


def requests_of(streams: Iterable[m.Held]) -> Iterator[tuple[m.Request, list[int]]]:
    """Requests and those of their uids that live, in the order in which they first arrived.

    A choice of a beam search brings the whole search, which starts again and tells the same.
    """
    found: dict[int, tuple[m.Request, list[int]]] = {}
    for held in streams:
        request = _decoder.decode(held.request)
        if request.beams is None:
            request = msgspec.structs.replace(request, generated=held.generated)
        found.setdefault(request.uid, (request, []))[1].append(held.uid)
    for request, uids in sorted(found.values(), key=lambda entry: (entry[0].arrived, entry[0].uid)):
        yield request, sorted(uids)


def untold(request: m.Request) -> m.Request:
    """As it may be taken from a gateway: log-probabilities of tokens known already are known to nobody."""
    if request.generated and scored(request):
        return msgspec.structs.replace(request, generated=b"")
    return request


def scored(request: m.Request) -> bool:
    """Whether log-probabilities are told, or added up, for its reader."""
    return request.sampling.logprobs is not None or request.sampling.prompt_logprobs is not None


def known_output(request: m.Request, room: int) -> Ints:
    """Tokens of the output that need not be sampled again, of at most `room`.

    The one that ends an output is never among them, so that its end is found as it always is.
    """
    ids = np.frombuffer(request.generated, np.int32)[: max(room - 1, 0)]
    stops = np.flatnonzero(np.isin(ids, request.stop_ids))
    return ids[: stops[0]] if len(stops) else ids
