"""The docs page needs nothing but itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from stretto.roles.gateway.docs import page
from stretto.roles.gateway.openapi import document
from stretto.tests.roles.gateway.house import MODEL, House

VOID = {"meta", "br", "link", "img"}


class Outline(HTMLParser):
    """Collects tags, ids and links; refuses tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids |= {value for name, value in attrs if name == "id" and value}
        self.links |= {value for name, value in attrs if name in ("href", "src") and value}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html() -> str:
    return page(document(MODEL))


@pytest.fixture(scope="module")
def outline(html: str) -> Outline:
    parser = Outline()
    parser.feed(html)
    assert parser.open == []
    return parser


def test_it_is_served_without_a_key(house: House, html: str) -> None:
    answer = house.http.get("/docs")
    assert (answer.headers["content-type"], answer.text) == ("text/html; charset=utf-8", html)


def test_it_needs_no_script_and_no_network(outline: Outline) -> None:
    assert not outline.tags & {"script", "link", "img", "iframe"}
    assert {link for link in outline.links if not link.startswith("#")} == {"openapi.json"}


def test_every_link_leads_somewhere(outline: Outline) -> None:
    assert {link[1:] for link in outline.links if link.startswith("#")} <= outline.ids


def test_it_lists_every_path_and_every_schema(html: str, outline: Outline) -> None:
    made = document(MODEL)
    for path in made["paths"]:
        assert f"<code>{path}</code>" in html
    assert outline.ids == set(made["components"]["schemas"])


def test_types_are_told_in_words(html: str) -> None:
    row = re.search(r"<tr><td><code>top_p\?</code></td>(.*?)</tr>", html)
    assert row is not None
    assert row[1] == "<td>number (above 0, up to 1) or null</td><td></td>"


def test_what_a_document_says_cannot_become_markup() -> None:
    made = document("<script>alert(1)</script>")
    assert "<script>" not in page(made)
