"""Docstrings as Markdown, with superscripts, separate lines for equations, and links of doubtful points."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

METHODS = Path(__file__).parent / "methods"
_ANCHOR = re.compile(r'<a id="([a-z]+\d+)">')
_KEPT = re.compile(r"(```.*?```|`[^`\n]*`|\[[^\]]*\]\([^)\s]*\)|<a id[^>]*></a>[A-Z]+\d+|<[^>\s]+>)", re.DOTALL)
_CITED = re.compile(r"\b(?:methods/(\w+)\.md)|\b([A-Z]{1,2}\d+)\b")
_EQUATION = re.compile(r"^(\w\S{0,17}|MI\(h, h\*\)) (=|←|~) .*[,;.)]$")


@cache
def doubtful_points() -> dict[str, str]:
    """Return a point such as "A13" → the method page that has it."""
    pages = sorted(METHODS.glob("*.md"))
    found = [(code.upper(), page.name) for page in pages for code in _ANCHOR.findall(page.read_text(encoding="utf-8"))]
    if len(dict(found)) != len(found):
        raise ValueError("a doubtful point is on two pages")
    return dict(found)


@cache
def _title(page: str) -> str:
    """Return a method page's heading."""
    return (METHODS / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def link_points(text: str, methods: str = "../methods") -> str:
    """Return a page with links to the doubtful points and method pages that it names.

    Args:
        text: Markdown. Code and links do not change.
        methods: Path from the page to the directory of the method pages.
    """

    def link(found: re.Match[str]) -> str:
        page, code = found.groups()
        if page:
            return f"[{_title(page)}]({methods}/{page}.md)"
        where = doubtful_points().get(code)
        return f"[{code}]({methods}/{where}#{code.lower()})" if where else code

    parts = _KEPT.split(text)
    return "".join(part if place % 2 else _CITED.sub(link, part) for place, part in enumerate(parts))


def paragraph(text: str) -> str:
    """Return a paragraph of a docstring with its plain-text mathematics in Markdown."""
    lines = [f"{line}  " if _EQUATION.match(line) else line for line in text.split("\n")]
    parts = _KEPT.split("\n".join(lines))
    return "".join(part if place % 2 else _mathematics(part) for place, part in enumerate(parts))


def _mathematics(text: str) -> str:
    text = re.sub(r"(?<=\w)\*", r"\\*", text)
    return _scripts(_scripts(text, "^", "sup"), "_", "sub")


def _scripts(text: str, sign: str, tag: str) -> str:
    """Return a text with `^{…}` as an element."""
    out = ""
    while (start := text.find(sign + "{")) >= 0:
        depth, end = 1, start + 2
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        out += f"{text[:start]}<{tag}>{_scripts(text[start + 2 : end - 1], sign, tag)}</{tag}>"
        text = text[end:]
    return out + text
