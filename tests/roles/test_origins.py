"""Origins as a user writes them."""

from __future__ import annotations

import pytest

from stretto.roles.actor import SetupError
from stretto.roles.origins import origins


def test_origins_are_as_browsers_write_them() -> None:
    assert origins("") == ()
    assert origins("*") == ("*",)
    assert origins("null") == ("null",)
    assert origins(" HTTP://Localhost:3000/, http://[::1]:8,") == ("http://localhost:3000", "http://[::1]:8")
    assert origins("chrome-extension://abc") == ("chrome-extension://abc",)


@pytest.mark.parametrize(
    "text",
    ["localhost", "localhost:3000", "http://a/b", '["*"]', "http://a http://b", "http://*.a", "http://a:x"],
)
def test_what_can_be_no_origin_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match=r"is no origin; give them as http://localhost:3000"):
        origins(f"http://fine,{text}")
