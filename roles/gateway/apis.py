"""The answers of the two completion APIs."""

from __future__ import annotations

from typing import Any

from stretto.roles.gateway.answers import Answer
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.logprobs import ChatLogprobs, TextLogprobs


class ChatAnswer(Answer):
    """`/v1/chat/completions`."""

    name, chunk_name, id_prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"
    logprobs_form = ChatLogprobs
    role = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'

    def content(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def no_content(self) -> dict[str, Any]:
        return {"delta": {}}

    def delta(self, text: bytes) -> bytes:
        return b'"delta":{"content":' + text + b"}"

    @staticmethod
    def prompt_home(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        return body


class TextAnswer(Answer):
    """`/v1/completions`."""

    name, chunk_name, id_prefix = "text_completion", "text_completion", "cmpl"
    logprobs_form = TextLogprobs

    def content(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def no_content(self) -> dict[str, Any]:
        return {"text": ""}

    def delta(self, text: bytes) -> bytes:
        return b'"text":' + text

    @staticmethod
    def prompt_home(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
        return choice


def answer_to(job: Job, uid: int, model: str) -> Answer:
    """The encoder for a job's answer: a chat's if it has messages."""
    return (TextAnswer if job.messages is None else ChatAnswer)(job, uid, model)
