"""A page with one of everything, and what a browser would see of a page."""

from __future__ import annotations

from html.parser import HTMLParser

from cse_cli.analysis.pages import Code, Facts, Page, Picture, Remarks, Section, Words
from cse_cli.core.tables import Cell, Row, Table

EVIL = 'a|b <script>alert("x")</script> *c* `d` [e](f) _g_ $h$ snake_case &lt;'
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="237.6pt" height="100pt"></svg>'


def page() -> Page:
    table = Table(EVIL, ("n", EVIL), (Row(EVIL, (Cell("3"), Cell(EVIL, strong=True)), "ours"),), (EVIL,))
    parts = (
        Words(EVIL),
        Remarks((EVIL, "1. one", "- two")),
        Facts({"name": EVIL}),
        Code(f"x = 1\n```\n{EVIL}", "toml", folded=EVIL),
        Code("cse run x", "console"),
        table,
        Picture("curve", EVIL, SVG),
        Picture("wide one", "second", SVG.replace(b"237.6", b"475.2")),
    )
    return Page(EVIL, "of a run", (Section(EVIL, parts),))


class Seen(HTMLParser):
    """Reads a page: its visible text, what it loads, and whether every element is closed."""

    VOID = ("meta", "link", "img", "br", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.alts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = dict(attrs)
        self.loads += [found[name] for name in ("src", "href") if name in found]
        self.alts += [found["alt"]] if "alt" in found else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
