"""The body of OpenAI's Responses API, and what it asks of the model."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from stretto.roles.gateway.bodies import Count, Top
from stretto.roles.gateway.checks import check_only
from stretto.roles.gateway.faults import refusal, unknown_model
from stretto.roles.gateway.intake import temperature_of
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.unsupported import Only
from stretto.roles.messages import SamplingParams

Turn = dict[str, Any]
"""A message as chat templates expect it."""


class InputText(Struct, tag_field="type", tag="input_text", forbid_unknown_fields=True):
    """Text of a user, or for the model."""

    text: str


class OutputText(Struct, tag_field="type", tag="output_text", forbid_unknown_fields=True):
    """Text of the model, as an answer had it."""

    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class Item(Struct, forbid_unknown_fields=True):
    """A message, as a client makes it or as an answer's `output` has it."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[InputText | OutputText]
    type: Literal["message"] = "message"
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class TextFormat(Struct, forbid_unknown_fields=True):
    """Plain text, the only format there is."""

    type: Literal["text"]


class TextConfig(Struct, forbid_unknown_fields=True):
    """What the text is like."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class Reasoning(Struct, forbid_unknown_fields=True):
    """There is none apart from the text."""

    effort: Literal["none"] | None = None
    summary: None = None
    generate_summary: None = None


class ResponsesStreamOptions(Struct, forbid_unknown_fields=True):
    """How a stream reports."""

    include_obfuscation: bool | None = None
    """Of no use here: nothing is padded."""


class ResponsesBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/responses`. None always means the default."""

    model: str | None = None
    input: str | Annotated[list[Item], Meta(min_length=1)]
    instructions: str | None = None
    """A system message before all others; the next response does not inherit it."""
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_logprobs: Top | None = None
    include: list[Literal["message.output_text.logprobs"]] | None = None
    metadata: (
        Annotated[
            dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
            Meta(max_length=16),
        ]
        | None
    ) = None
    previous_response_id: str | None = None
    store: bool | None = None
    """Keep the response, so that it can be fetched and continued; true by default."""
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    background: bool | None = None
    """Answer at once; the response is fetched later."""

    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: Literal["auto", "default"] | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["disabled"] | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    tools: list[Any] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    conversation: None = None
    prompt: None = None
    max_tool_calls: None = None
    moderation: None = None
    context_management: list[Any] | None = None

    only: ClassVar[Only] = {"tools": (None, []), "context_management": (None, [])}


def check(body: ResponsesBody, model: str) -> None:
    """Refuse what this server cannot do. Raises `Refused`."""
    if body.model not in (None, model):
        raise unknown_model(body.model, model)
    check_only(body)
    if body.background and body.store is False:
        raise refusal("background: what runs in the background is stored; store must not be false.", "store")
    if body.stream_options is not None and not body.stream:
        raise refusal("stream_options: allowed only where stream is true.", "stream_options")


def turns(body: ResponsesBody) -> list[Turn]:
    """The body's own messages, without the instructions."""
    if isinstance(body.input, str):
        return [{"role": "user", "content": body.input}]
    return [
        {"role": "system" if item.role == "developer" else item.role, "content": _text(item)}
        for item in body.input
    ]


def items(body: ResponsesBody, id: str) -> list[dict[str, Any]]:
    """The same as a list of input items shows them; `id` goes into the names of those that have none."""
    given = [Item("user", body.input)] if isinstance(body.input, str) else body.input
    return [
        {
            "id": item.id or f"msg_{id}_{i}",
            "type": "message",
            "status": "completed",
            "role": item.role,
            "content": _parts(item),
        }
        for i, item in enumerate(given)
    ]


def job(body: ResponsesBody, id: str, earlier: list[Turn]) -> Job:
    """What to generate, after the turns of an `earlier` conversation."""
    system = [{"role": "system", "content": body.instructions}] if body.instructions else []
    return Job(
        params=SamplingParams(
            max_tokens=body.max_output_tokens,
            temperature=temperature_of(body.temperature),
            top_p=1.0 if body.top_p is None else body.top_p,
            logprobs=(body.top_logprobs or 0) if wants_logprobs(body) else None,
        ),
        messages=[*system, *earlier, *turns(body)],
        stream=bool(body.stream),
        request_id=id,
    )


def wants_logprobs(body: ResponsesBody) -> bool:
    """Whether the text comes with log-probabilities."""
    return bool(body.include or body.top_logprobs)


def _text(item: Item) -> str:
    content = item.content
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _parts(item: Item) -> list[dict[str, Any]]:
    if isinstance(item.content, str):
        kind = "output_text" if item.role == "assistant" else "input_text"
        texts = [(kind, item.content)]
    else:
        texts = [
            ("output_text" if isinstance(part, OutputText) else "input_text", part.text)
            for part in item.content
        ]
    return [
        {"type": kind, "text": text} | ({"annotations": []} if kind == "output_text" else {})
        for kind, text in texts
    ]
