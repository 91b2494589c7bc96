"""A report as Markdown and as HTML: everything is in it, and nothing of it is markup."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest

from cse_cli.analysis import leaderboard_view as board
from cse_cli.analysis.pages import Page, Section, Words, html, markdown
from cse_cli.core.tables import escape_markdown
from tests.cse_cli.analysis.report_runs import EVIL, SVG, Seen, page


def test_html_shows_texts_as_they_are():
    seen = Seen(html(page()))
    shown = "".join(seen.text)
    # title, h1, h2, paragraph, remark, fact, summary, code, heading, label, cell, note
    assert shown.count(EVIL) == 12
    assert seen.tags.count("script") == 1
    assert seen.alts == [EVIL, "second"]


def test_html_loads_nothing():
    text = html(page())
    seen = Seen(text)
    assert all(address.startswith("data:") for address in seen.loads)
    assert not re.search(r"url\(|@import|<link[^>]+stylesheet", text)
    images = [address for address in seen.loads if address.startswith("data:image/svg+xml;base64,")]
    assert b64decode(images[0].partition(",")[2]) == SVG


def test_html_has_the_leaderboards_looks():
    text = html(page())
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style
    assert style.count("{") == style.count("}")
    ours = re.search(r"--ours: (#\w+)", board.page([]))
    assert ours is not None
    assert ours[0] in style


def test_figures_that_follow_each_other_stand_side_by_side():
    text = html(page())
    assert text.count('<div class="figures">') == 1
    assert ['class="column" style="width: 345px"' in text, 'class="wide" style="width: 689px"' in text] == [True, True]


def test_a_placeholder_in_a_text_is_a_text():
    text = html(Page("{{ sections }}", "", (Section("s", (Words("{{ title }} <b>"),)),)))
    assert "{{ title }} &lt;b&gt;" in text


@pytest.mark.parametrize(
    ("plain", "written"),
    [
        ("a|b", r"a\|b"),
        ("snake_case", "snake_case"),
        ("_x_", r"\_x\_"),
        ("<b>", "&lt;b>"),
        ("&lt; & x", "&amp;lt; & x"),
        ("[1] $x$ ~y~", r"\[1\] \$x\$ \~y\~"),
        ("two\nlines", "two lines"),
        ("61.17", "61.17"),
    ],
)
def test_markdown_escapes(plain, written):
    assert escape_markdown(plain) == written


def test_markdown_has_everything():
    text = markdown(page(), "my figures")
    assert "![second](my%20figures/wide%20one.svg)" in text
    assert "\n- 1\\. one\n- \\- two\n" in text
    assert "\n````toml\nx = 1\n```\n" in text
    assert "<summary>a|b &lt;script&gt;alert(&quot;x&quot;)" in text
    assert f"**{escape_markdown(EVIL)}**" in text
    assert "<script" not in text.replace(f"```\n{EVIL}", "")


def test_markdown_tables_have_a_cell_for_each_heading():
    rows = [line for line in markdown(page(), "f").split("\n") if line.startswith("| ")]
    counts = {len(re.findall(r"(?<!\\)\|", row)) for row in rows[-3:]}
    assert counts == {4}
