"""A small writer of SVG pictures."""

from __future__ import annotations

from xml.sax.saxutils import escape


class Svg:
    """Collects shapes; sizes are pixels, y grows downwards. What is drawn `behind` lies under all others."""

    def __init__(self, width: int, height: int) -> None:
        self._size = width, height
        self._behind: list[str] = []
        self._shapes: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, color: str, title: str, faint: bool = False
    ) -> None:
        """A filled rectangle; `title` shows under the pointer. A faint one has a frame of its color."""
        look = f'fill="{color}"' + (f' fill-opacity="0.25" stroke="{color}"' if faint else "")
        self._shapes.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" rx="2" {look}>'
            f"<title>{escape(title)}</title></rect>"
        )

    def text(
        self, x: float, y: float, words: str, color: str = "#1f2328", size: int = 12, middle: bool = False
    ) -> None:
        """A line of text whose baseline is at y; x is its beginning or its middle."""
        anchor = ' text-anchor="middle"' if middle else ""
        self._shapes.append(
            f'<text x="{x:.2f}" y="{y:.2f}" font-size="{size}" fill="{color}"{anchor}>{escape(words)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str, behind: bool = True) -> None:
        """A thin line."""
        place = self._behind if behind else self._shapes
        place.append(f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="{color}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, color: str = "#57606a") -> None:
        """A thin line with a head at its end."""
        self._shapes.append(
            f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="{color}" '
            'stroke-width="0.8" marker-end="url(#head)"/>'
        )

    def done(self) -> str:
        """The picture, on white, so that it can be read on any page."""
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="system-ui, sans-serif">',
            '<defs><marker id="head" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" '
            'orient="auto"><path d="M0 0L6 3L0 6z" fill="#57606a"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        )
        return "\n".join((*head, *self._behind, *self._shapes, "</svg>\n"))
