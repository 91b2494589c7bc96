"""A report with hostile texts in every place, and a parser for what a browser shows of a page."""

from __future__ import annotations

from html.parser import HTMLParser
from types import SimpleNamespace

from cse_cli.analysis.pages import Report, SavedFigure
from cse_cli.core.tables import Cell, Row, Table
from tests.support.records import result

EVIL = 'a|b <script>alert("x")</script> *c* `d` [e](f) _g_ $h$ snake_case &lt; {{ title }}'
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="237.6pt" height="100pt"></svg>'
FIGURE = SavedFigure("wide one", EVIL, SVG)


def evil_report() -> Report:
    table = Table(EVIL, ("n", EVIL), (Row(EVIL, (Cell("3"), Cell(EVIL, strong=True))),), (EVIL,))
    study = SimpleNamespace(name=EVIL, title=EVIL, description=EVIL, recipe=EVIL, seed_list=[0])
    values = {
        "study": study,
        "runs": SimpleNamespace(cells=[1], missing=list, unchosen_rows=list),
        "finished": 1,
        "paper": EVIL,
        "sources": [(EVIL, f"x = 1\n```\n{EVIL}")],
        "first": EVIL,
        "recipe": EVIL,
        "scores": [table, (EVIL, "1. one", "- two")],
        "reproduces": True,
        "choices": [EVIL, table],
        "gains": [table, (EVIL,)],
        "differences": [EVIL, table, (EVIL,)],
        "figures": [FIGURE],
        "cells": table,
        "cost": EVIL,
        "results": [result(device=EVIL, precision="")],
        "noted": {"packages": [EVIL]},
        "settings": {},
        "fingerprints": {EVIL: "d"},
        "commands": "cse run x",
    }
    return Report(EVIL, "report_study.md.j2", values, [FIGURE])


class Seen(HTMLParser):
    """Reads a page: its visible text, attributes, and whether every element is closed."""

    VOID = ("meta", "link", "img", "br", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.attributes]

    def values(self, *names: str) -> list[str | None]:
        return [of[name] for _, of in self.attributes for name in names if name in of]

    def handle_starttag(self, tag, attrs):
        self.attributes.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
