"""Bodies that say what they may not."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest

from stretto.roles.gateway.checks import MAX_SEQUENCES, check_batch, check_only, check_packs
from stretto.roles.gateway.faults import Refused


class Shirt(msgspec.Struct, forbid_unknown_fields=True):
    size: int = 1
    color: str | None = None

    only: ClassVar[dict[str, tuple[Any, ...]]] = {"color": (None, "red")}


def test_only_listed_values_pass() -> None:
    check_only(Shirt(color="red"))
    with pytest.raises(Refused) as refused:
        check_only(Shirt(color="blue"), "shirts[0].")
    assert refused.value.fault.message == 'shirts[0].color: only null or "red" is supported.'
    assert refused.value.fault.param == "shirts[0].color"


def test_integers_must_fit_between_processes() -> None:
    check_packs({"a": [2**64 - 1]}, "kwargs")
    with pytest.raises(Refused) as refused:
        check_packs({"a": [2**64]}, "kwargs")
    assert refused.value.fault.param == "kwargs"


def test_a_request_has_so_many_sequences_and_no_more() -> None:
    check_batch(MAX_SEQUENCES // 4, 4)
    with pytest.raises(Refused) as refused:
        check_batch(MAX_SEQUENCES // 4 + 1, 4)
    assert refused.value.fault.param == "prompt"
