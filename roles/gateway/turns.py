"""Messages of a conversation, from the form of OpenAI's API to that of chat templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stretto.roles.gateway.bodies import Message
from stretto.roles.gateway.checks import check_only


def turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as chat templates expect them. Raises `Refused`."""
    for i, message in enumerate(messages):
        check_only(message, f"messages[{i}].")
    return [_turn(message) for message in messages]


def _turn(message: Message) -> dict[str, Any]:
    """Text parts are joined by newlines, and a developer is a system to models that know no developer."""
    content = message.content
    turn = {
        "role": "system" if message.role == "developer" else message.role,
        "content": content if isinstance(content, str) else "\n".join(part.text for part in content),
    }
    if message.name is not None:
        turn["name"] = message.name
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    return turn
