"""What a job looks like to the tokenizers: a `Submit` for each of its prompts."""

from __future__ import annotations

import secrets

from stretto.roles.gateway.job import Job
from stretto.roles.messages import Submit


class Uids:
    """63-bit names of one gateway's sequences: its index, 24 random bits per boot, a counter."""

    def __init__(self, index: int) -> None:
        self._next = index << 56 | secrets.randbits(24) << 32

    def take(self, count: int = 1) -> int:
        """The first of `count` consecutive fresh names."""
        first = self._next
        self._next += count
        return first


def submits(job: Job, uid: int, gateway: int, arrived: float) -> list[Submit]:
    """The messages for a job whose first sequence is `uid`; a conversation is one prompt."""
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
        )
        for place, prompt in enumerate(prompts)
    ]
