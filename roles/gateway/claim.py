"""What a client holds of a stream that it may come back for: an opaque word that only the server reads."""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Self

import msgspec
from msgspec.structs import replace

from stretto.roles.gateway.faults import NOT_FOUND, Refused
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.stream import Stream


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """Everything that another gateway cannot know of a stream whose request it is sent again."""

    uid: int
    key: int
    """63 random bits: the detokenizer gives the stream to nobody who does not know them."""
    seed: int | None
    arrived: float

    @classmethod
    def of(cls, stream: Stream) -> Self:
        """That of a stream which is retained."""
        job = stream.job
        return cls(stream.uid, job.key, job.params.seed, stream.arrived)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises `Refused` for what is none of ours."""
        try:
            claim = msgspec.msgpack.decode(base64.urlsafe_b64decode(text.encode()), type=cls)
        except (msgspec.DecodeError, binascii.Error, ValueError):
            raise Refused(NOT_FOUND) from None
        fits = 0 <= claim.uid < 1 << 62 and 0 < claim.key < 1 << 63 and claim.arrived > 0
        if not (fits and -(1 << 63) <= (claim.seed or 0) < 1 << 64):
            raise Refused(NOT_FOUND)
        return claim

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode()

    def fits(self, job: Job) -> bool:
        """Whether this is the key to a job, found out in a time that does not tell how much of it is."""
        return secrets.compare_digest(self.key.to_bytes(8), job.key.to_bytes(8))

    def job(self, job: Job) -> Job:
        """The job as it was submitted first."""
        params = job.params if self.seed is None else replace(job.params, seed=self.seed)
        return replace(job, params=params, key=self.key)


def retained(job: Job, seconds: float) -> Job:
    """A job whose stream outlives its connection by so many seconds."""
    return replace(job, retain=seconds, key=1 + secrets.randbelow((1 << 63) - 1))
