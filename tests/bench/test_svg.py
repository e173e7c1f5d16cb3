"""A small writer of SVG."""

from __future__ import annotations

from xml.etree import ElementTree

from stretto.bench.svg import Svg

SVG = "{http://www.w3.org/2000/svg}"


def test_shapes_are_where_they_were_put() -> None:
    svg = Svg(200, 100)
    svg.rect(10, 20.5, 30, 40, "#112233", "plan 7")
    svg.text(5, 6, "device", middle=True)
    root = ElementTree.fromstring(svg.done())
    assert root.get("viewBox") == "0 0 200 100"
    _, rect = root.findall(f"{SVG}rect")
    assert [rect.get(name) for name in ("x", "y", "width", "height")] == ["10.00", "20.50", "30.00", "40.00"]
    assert (rect.get("fill"), rect.get("stroke"), rect.findtext(f"{SVG}title")) == ("#112233", None, "plan 7")
    text = root.find(f"{SVG}text")
    assert text is not None
    assert (text.text, text.get("x"), text.get("text-anchor")) == ("device", "5.00", "middle")


def test_a_faint_rectangle_has_a_frame() -> None:
    svg = Svg(10, 10)
    svg.rect(0, 0, 1, 1, "#112233", "", faint=True)
    rect = ElementTree.fromstring(svg.done()).findall(f"{SVG}rect")[1]
    assert (rect.get("stroke"), rect.get("fill-opacity")) == ("#112233", "0.25")


def test_words_may_hold_anything() -> None:
    svg = Svg(10, 10)
    svg.text(0, 0, 'a<b>&"')
    svg.rect(0, 0, 1, 1, "#000000", "scheduler.0>executor.0")
    root = ElementTree.fromstring(svg.done())
    assert (root.findtext(f"{SVG}text"), root.findtext(f"{SVG}rect/{SVG}title")) == (
        'a<b>&"',
        "scheduler.0>executor.0",
    )


def test_lines_lie_behind_and_arrows_before() -> None:
    svg = Svg(10, 10)
    svg.rect(0, 0, 1, 1, "#000000", "")
    svg.line(0, 1, 2, 3, "#445566")
    svg.arrow(4, 5, 6, 7)
    root = ElementTree.fromstring(svg.done())
    ground, *shapes = (child for child in root if child.tag != f"{SVG}defs")
    assert [child.tag.removeprefix(SVG) for child in (ground, *shapes)] == ["rect", "line", "rect", "line"]
    assert shapes[0].get("stroke") == "#445566"
    assert (shapes[2].get("x2"), shapes[2].get("marker-end")) == ("6.00", "url(#head)")
