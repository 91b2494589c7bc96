"""One self-contained page: every cell, nothing fetched, names escaped, headings that sort."""

import re

from cse_cli.analysis.leaderboard_view import to_html, write_page
from tests.cse_cli.analysis.leaderboard_runs import mini, planned, result, tables
from tests.cse_cli.analysis.report_runs import Seen
from tests.support.errors import refuses

SHOWN = tables(planned([result(seed, 71.0 + seed / 10) for seed in range(3)]))


def test_every_cell_is_there_at_full_precision():
    (block,) = SHOWN
    found = Seen(to_html(SHOWN)).rows
    assert len(found) == len(block.rows)
    for row, cells in zip(block.rows, found, strict=True):
        means = [repr(row.scores[column].mean) if column in row.scores else "" for column in block.columns]
        assert cells[3:] == means


def test_nothing_is_fetched():
    text = to_html(SHOWN)
    seen = Seen(text)
    links = [of["href"] for tag, of in seen.attributes if tag == "link"]
    assert seen.values("src", "srcset", "action", "data") == []
    assert links == ["data:,"]
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", text)
    assert all(of["href"].startswith("#") for tag, of in seen.attributes if tag == "a")


def test_names_are_escaped():
    name = "<script>alert(1)</script>\"&'"
    text = to_html(tables([mini(recipe=name)]))
    assert "<script>alert" not in text
    assert Seen(text).rows[1][0] == name
    placeholder = to_html(tables([mini(recipe="{{ legend }}")]))
    assert Seen(placeholder).rows[1][0] == "{{ legend }}"


def test_headings_are_buttons_in_a_real_table():
    reader = Seen(to_html(SHOWN))
    (block,) = SHOWN
    assert [of["scope"] for of in reader.headings] == ["col"] * (3 + len(block.columns))
    assert sum(tag == "button" for tag, _ in reader.attributes) == len(reader.headings)
    assert any(tag == "th" and of.get("scope") == "row" for tag, of in reader.attributes)
    assert "aria-sort" in to_html(SHOWN)


def test_only_a_significant_difference_is_strong():
    text = to_html(SHOWN)
    strong = re.findall(r"<strong[^>]*>(.*?)</strong>", text)
    assert strong
    assert all(re.fullmatch(r"[+−]\d+\.\d+[▲▼]", cell) for cell in strong)
    assert "<strong" not in to_html(tables([result()]))


def test_a_measured_row_names_its_reference():
    rows = {cells[0]: cells[1] for cells in Seen(to_html(SHOWN)).rows}
    assert rows["ifcl_en"] == "your runs, compared to IFCL-BERT base"
    table = Seen(to_html(tables([result(0), result(1)], table="ifcl/1"))).rows
    assert ["IFCL-BERT base · your runs: ifcl_en, bert-base-uncased", "your runs, compared to IFCL-BERT base"] in [
        cells[:2] for cells in table
    ]


def test_ids_are_unique_and_notes_lead_to_theirs():
    found = Seen(to_html([*SHOWN, *tables([mini()])])).attributes
    ids = [of["id"] for _, of in found if "id" in of]
    assert len(ids) == len(set(ids))
    assert {of["href"].removeprefix("#") for tag, of in found if tag == "a"} <= set(ids)


def test_without_runs_the_page_says_so():
    assert "cse run quickstart" in to_html([])


def test_writing_replaces_the_file_as_a_whole(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    write_page(SHOWN, path)
    assert path.read_text(encoding="utf-8") == to_html(SHOWN)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_does_not_exist_is_told(tmp_path):
    with refuses("leaderboard.cannot_write", "No such file"):
        write_page(SHOWN, tmp_path / "none" / "page.html")
