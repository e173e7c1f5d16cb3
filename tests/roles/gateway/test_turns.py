"""Conversations as chat templates expect them."""

from __future__ import annotations

import pytest

from stretto.roles.gateway.bodies import Message, TextPart
from stretto.roles.gateway.faults import Refused
from stretto.roles.gateway.turns import turns


def test_parts_are_joined_and_names_kept() -> None:
    message = Message("user", [TextPart("a"), TextPart("b")], name="Ann", tool_call_id="1")
    assert turns([message]) == [{"role": "user", "content": "a\nb", "name": "Ann", "tool_call_id": "1"}]


def test_a_developer_is_a_system() -> None:
    assert turns([Message("developer", "Be brief.")]) == [{"role": "system", "content": "Be brief."}]


def test_what_a_message_may_not_have_is_refused_by_its_place() -> None:
    with pytest.raises(Refused) as refused:
        turns([Message("user", "Hi"), Message("assistant", "", tool_calls=[{}])])
    assert refused.value.fault.param == "messages[1].tool_calls"
