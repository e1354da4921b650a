"""Reads HTML as a browser does: its elements and its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = ("br", "hr", "img", "input", "link", "meta")


@dataclass
class Element:
    """One element of a page."""

    tag: str
    attributes: dict[str, str | None]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """All text in it, in order."""

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, tag: str = "") -> list[Element]:
        """The elements in it with this tag, or all of them."""
        found = [self] if tag in ("", self.tag) else []
        return [*found, *(one for child in self.children for one in child.all(tag))]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} is there twice"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            if all(one.tag != "style" for one in self.open) or element.tag == "style":
                element.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    handle_decl = handle_pi = unknown_decl = handle_comment


def parse(html: str) -> Element:
    """The page, as an element without a tag. AssertionError if an element is not closed, or closed in another."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    assert len(parser.open) == 1, f"<{parser.open[-1].tag}> is not closed"
    return parser.open[0]
