"""What a command line refuses before anything is done."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from stretto.roles.client.flags import NewFile, ServerUrl


def test_a_url_stays_as_it_was_typed() -> None:
    assert ServerUrl().convert("localhost:9/v1", None, None) == "localhost:9/v1"


def test_what_is_no_url_is_a_mistake_of_usage() -> None:
    with pytest.raises(click.BadParameter, match=r"give it as http://127\.0\.0\.1:8000"):
        ServerUrl().convert("ftp://example.com", None, None)


def test_a_file_is_refused_where_it_could_not_be_made(tmp_path: Path) -> None:
    assert NewFile().convert(str(tmp_path / "a.json"), None, None) == tmp_path / "a.json"
    with pytest.raises(click.BadParameter, match="no file can be made in"):
        NewFile().convert(str(tmp_path / "none" / "a.json"), None, None)
    with pytest.raises(click.BadParameter, match="is a directory"):
        NewFile().convert(str(tmp_path), None, None)
