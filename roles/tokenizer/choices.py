"""One request with several choices as several requests, which the rest of the graph need not tell apart."""

from __future__ import annotations

from msgspec.structs import replace

from stretto.roles.messages import Request, SamplingParams
from stretto.roles.tokenizer.sampling import SEED_MASK

_GOLDEN = 0x9E3779B97F4A7C15


def choice_count(params: SamplingParams) -> int:
    """Requests that these parameters make; a beam search is one, whatever its width."""
    return 1 if params.use_beam_search else params.width


def split(request: Request, count: int) -> list[Request]:
    """The request and its followers: uid + 1, uid + 2 ..., each with a seed of its own.

    Each tells of the prompt what was asked for, as any of them may be the one that is returned. So each that
    is to score the prompt computes it, too.
    """
    return [request, *(_follower(request, i) for i in range(1, count))]


def choice_seed(seed: int, choice: int) -> int:
    """The first choice has the request's seed, so that it is what a request for one would get.

    The others have splitmix64 (Steele et al., OOPSLA 2014) of it.
    """
    if choice == 0:
        return seed
    z = (seed + choice * _GOLDEN) & SEED_MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & SEED_MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & SEED_MASK
    return z ^ (z >> 31)


def _follower(request: Request, choice: int) -> Request:
    seed = choice_seed(request.sampling.seed, choice)
    sampling = replace(request.sampling, seed=seed)
    return replace(request, uid=request.uid + choice, leader=request.uid, sampling=sampling)
