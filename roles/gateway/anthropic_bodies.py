"""The bodies of Anthropic's Messages API, and what they ask of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from stretto.roles.gateway.bodies import INT32_MAX, MAX_STOPS, Count, Text
from stretto.roles.gateway.checks import check_only
from stretto.roles.gateway.faults import unknown_model
from stretto.roles.gateway.intake import temperature_of
from stretto.roles.gateway.job import Job
from stretto.roles.gateway.unsupported import Only
from stretto.roles.messages import SamplingParams


class TextBlock(Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    """A piece of text, the only kind of content there is."""

    text: str
    cache_control: Any = None
    """Prefixes are cached without being asked."""
    citations: list[Any] | None = None

    only: ClassVar[Only] = {"citations": (None, [])}


class Turn(Struct, forbid_unknown_fields=True):
    """One turn. Consecutive turns of one role are one."""

    role: Literal["user", "assistant", "system"]
    content: str | list[TextBlock]


class Metadata(Struct, forbid_unknown_fields=True):
    """About the request."""

    user_id: str | None = None


class Thinking(Struct, forbid_unknown_fields=True):
    """There is none."""

    type: str

    only: ClassVar[Only] = {"type": ("disabled",)}


class CountBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/messages/count_tokens`."""

    model: str
    messages: Annotated[list[Turn], Meta(min_length=1)]
    system: str | list[TextBlock] | None = None
    thinking: Thinking | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    cache_control: Any = None

    only: ClassVar[Only] = {"tools": (None, []), "tool_choice": (None,)}


class MessagesBody(CountBody):
    """`POST /v1/messages`. With an answer as the last turn, the model continues it."""

    max_tokens: Count
    stop_sequences: Annotated[list[Text], Meta(max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None


def check(body: CountBody, model: str) -> None:
    """Refuse what this server cannot do. Raises `Refused`."""
    if body.model != model:
        raise unknown_model(body.model, model)
    check_only(body)
    if body.thinking is not None:
        check_only(body.thinking, "thinking.")
    for i, turn in enumerate(body.messages):
        for j, block in enumerate(turn.content if isinstance(turn.content, list) else []):
            check_only(block, f"messages[{i}].content[{j}].")


def conversation(body: CountBody) -> list[dict[str, Any]]:
    """The system prompt and the turns, as chat templates expect them."""
    turns: list[dict[str, Any]] = []
    if body.system:
        turns.append({"role": "system", "content": _text(body.system)})
    for turn in body.messages:
        if turns and turns[-1]["role"] == turn.role:
            turns[-1]["content"] += "\n" + _text(turn.content)
        else:
            turns.append({"role": turn.role, "content": _text(turn.content)})
    return turns


def continues(body: CountBody) -> bool:
    """Whether the last turn is the beginning of the answer."""
    return body.messages[-1].role == "assistant"


def job(body: MessagesBody) -> Job:
    """What to generate."""
    return Job(
        params=SamplingParams(
            max_tokens=body.max_tokens,
            temperature=temperature_of(body.temperature),
            top_p=1.0 if body.top_p is None else body.top_p,
            top_k=body.top_k or 0,
            stop=tuple(body.stop_sequences or ()),
        ),
        messages=conversation(body),
        add_generation_prompt=not continues(body),
        continue_final_message=continues(body),
        stream=bool(body.stream),
    )


def _text(content: str | Sequence[TextBlock]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)
