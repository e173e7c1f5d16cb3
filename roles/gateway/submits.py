"""What a job looks like to the tokenizers: a `Submit` for each of its prompts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from msgspec.structs import replace

from stretto.roles.gateway.job import Job
from stretto.roles.messages import Submit


class Uids:
    """63-bit names of one gateway's sequences: its index, 24 random bits per boot, a counter."""

    def __init__(self, index: int) -> None:
        self._first = self._next = index << 56 | secrets.randbits(24) << 32

    def take(self, count: int = 1) -> int:
        """The first of `count` consecutive fresh names."""
        first = self._next
        self._next += count
        return first

    def may_be(self, uid: int) -> bool:
        """False for a uid that is still to be given out here."""
        return not self._next <= uid < self._first + (1 << 32)


def seeded(job: Job) -> Job:
    """The job with a seed, if it draws: so that it gives the same tokens however often it is submitted."""
    params = job.params
    if params.seed is not None or params.temperature == 0 or params.use_beam_search:
        return job
    return replace(job, params=replace(params, seed=secrets.randbits(63)))


def repeatable(job: Job) -> bool:
    """Whether a sequence can go on from its tokens; else it is computed from its first one again.

    What is reported of each token is not kept, sums of it neither.
    """
    params = job.params
    told = params.logprobs is not None or params.prompt_logprobs is not None
    return not (told or job.picks or params.use_beam_search)


def submits(
    job: Job, uid: int, gateway: int, arrived: float, generated: Mapping[int, bytes] | None = None
) -> list[Submit]:
    """The messages for a job whose first sequence is `uid`; a conversation is one prompt.

    `generated`: int32, by uid, the tokens that are known already.
    """
    known = generated or {}
    prompts: tuple[str | list[int] | None, ...] = job.prompts or (None,)
    return [
        Submit(
            uid=uid + place * job.width,
            gateway=gateway,
            arrived=arrived,
            params=job.params,
            prompt=prompt,
            messages=job.messages,
            template_kwargs=job.template_kwargs,
            add_generation_prompt=job.add_generation_prompt,
            stream=job.stream and not job.picks,
            echo_prompt_ids=job.return_token_ids,
            echo=job.echo,
            priority=job.priority,
            deadline=None if job.timeout is None else arrived + job.timeout,
            continue_final_message=job.continue_final_message,
            add_special_tokens=job.add_special_tokens,
            generated={
                one: known[one]
                for one in range(uid + place * job.width, uid + (place + 1) * job.width)
                if known.get(one)
            },
            retain=job.retain,
            key=job.key,
            cache_salt=job.cache_salt,
        )
        for place, prompt in enumerate(prompts)
    ]
