"""A report as Markdown and as HTML: everything is in it, and no text is markup."""

from __future__ import annotations

import re
from base64 import b64decode

from cse_cli.analysis.pages import html, markdown
from cse_cli.analysis.table_view import write_page
from cse_cli.core.tables import escape_markdown
from tests.cse_cli.analysis.leaderboard_runs import mini, planned, result, tables
from tests.cse_cli.analysis.report_runs import EVIL, SVG, Seen, evil_report
from tests.support.errors import refuses


def test_html_shows_texts_as_they_are_and_loads_nothing():
    text = html(evil_report())
    seen = Seen(text)
    shown = "".join(seen.text)
    # <title>, h1, subtitle, 4 properties, summary and 3 code blocks, summary of the first cell,
    # 5 tables of a heading, a label, a cell and a note, 5 lines, 1 of the environment, 1 of the data, 1 of the cost
    assert shown.count(EVIL) == 40
    assert seen.tags.count("script") == 1
    assert seen.values("alt") == [EVIL]
    assert all(address.startswith("data:") for address in seen.values("src", "href"))
    assert not re.search(r"url\(|@import|<link[^>]+stylesheet", text)
    images = [address for address in seen.values("src", "href") if address.startswith("data:image/svg+xml;base64,")]
    assert [b64decode(image.partition(",")[2]) for image in images] == [SVG]


def test_the_page_of_the_leaderboard_has_every_number_and_loads_nothing(tmp_path):
    name = "<script>alert(1)</script>\"&'"
    shown = tables([*planned([result(seed, 71.0 + seed / 10) for seed in range(3)]), mini(recipe=name)])
    path = tmp_path / "page.html"
    path.write_text("old")
    write_page(shown, path)
    assert list(tmp_path.iterdir()) == [path]
    text = path.read_text(encoding="utf-8")
    seen = Seen(text)
    assert {score.text() for table in shown for row in table.rows for score in row.scores.values()} <= {
        one.strip() for one in seen.text
    }
    assert seen.values("src", "href") == ["data:,"]
    assert not re.search(r"@import|url\(|fetch\(|<script>alert", text)
    assert name in "".join(seen.text)
    strong = re.findall(r"<strong>(.*?)</strong>", text)
    assert strong
    assert all(re.fullmatch(r"[+−]\d+\.\d+[▲▼]", cell) for cell in strong)
    with refuses("leaderboard.cannot_write", "No such file"):
        write_page([], tmp_path / "none" / "page.html")


def test_markdown_has_everything():
    text = markdown(evil_report(), "my figures")
    assert "(my%20figures/wide%20one.svg)" in text
    assert "\n- 1\\. one\n- \\- two\n" in text
    assert "\n````toml\nx = 1\n```\n" in text
    assert "<summary>a|b &lt;script&gt;alert(&quot;x&quot;)" in text
    assert f"**{escape_markdown(EVIL)}**" in text
    fences = re.sub(r"^(````?)\w+\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "<script" not in fences
    rows = [line for line in text.partition("## Cells")[2].split("\n") if line.startswith("| ")][:3]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}  # a cell for each heading
