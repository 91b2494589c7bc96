"""The one table: every writer shows all of it, and nothing in it is markup."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import pytest
from rich.console import Console

from cse_cli.core.console import UNBOUND, stdout_console, write_json
from cse_cli.core.tables import (
    Cell,
    Row,
    Table,
    as_csv,
    as_latex,
    as_markdown,
    as_rich,
    as_rich_parts,
    as_tsv,
    plain_table,
)

SCORES = Table(
    caption="50 % of [x]",
    headings=("n", "sts_b"),
    rows=(
        Row("ours [1]", (Cell("3"), Cell("61.20▲", strong=True)), "measured"),
        Row("±", (Cell(), Cell("0.31")), "spread", below=True),
        Row("a|b [red]", (Cell("1"), Cell("60.00"))),
    ),
    notes=("50 % of it",),
)


def printed(table: Table, width: int = 60, **options) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(as_rich(table, **options))
    return [line.rstrip() for line in console.file.getvalue().split("\n")[:-1]]


def test_every_writer(snapshot):
    """On a terminal, with a rule too, in Markdown, in LaTeX and for other programs."""
    terminal = "\n".join([*printed(SCORES), "", *printed(SCORES, ruled=True, gap=1)])
    others = (as_markdown(SCORES), as_latex(SCORES, ["p < 0.05"]), as_csv(SCORES.texts))
    assert "\n\n".join((terminal, *others)) == snapshot
    assert as_tsv(plain_table(("a", "b"), [("1", "2")])) == "a\tb\n1\t2\n"


def test_long_words_wrap_and_numbers_stay():
    table = plain_table(("name", "title", "rows"), [("a", "word " * 30, "12,345")], align="lpr")
    lines = printed(table, width=40)
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).count("word") == 30
    assert "12,345" in lines[1]


def test_stdout_that_is_no_terminal_is_plain_and_unwrapped(capsys: pytest.CaptureFixture[str]):
    with stdout_console() as console:
        assert console.width == UNBOUND
        console.print("[bold]x[/bold]   ")
        console.print("y " * 300)
    assert capsys.readouterr().out == "x\n" + ("y " * 300).rstrip() + "\n"


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]):
    write_json({"a": (math.nan, {"b": math.inf}), "c": 1.5})
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "a": [None, {"b": None}], "c": 1.5}


HOSTILE = (
    "<img src=x onerror=alert(1)>", "=HYPERLINK(\"http://x\")", "+cmd|'/c calc'!A0", "-2+3+cmd()", "@SUM(A1)",
    "\tx\n=1+1", "\x1b]0;title\x07\x1b[2J", "a | b\n# c", "\\input{/etc/passwd}", "x\n\n\\end{table}", "\x9b31m",
)  # fmt: skip


@pytest.fixture(params=HOSTILE)
def hostile(request):
    text = request.param
    return Table(text, (text,), (Row(text, (Cell(text, strong=True),)),), (text,), label=text)


def test_no_text_is_markup_in_markdown(hostile):
    head, rule, row, *notes = as_markdown(hostile).split("\n")
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in (head, row)] == [3, 3]
    assert rule == "| --- | ---: |"
    assert len(notes) == 2
    assert not re.search(r"<|[\x00-\x09\x0b-\x1f\x7f-\x9f]", as_markdown(hostile))


def test_no_text_is_a_command_in_latex(hostile):
    text = as_latex(hostile)
    ours = {"begin", "centering", "small", "caption", "toprule", "midrule", "bottomrule", "end", "par", "medskip",
            "footnotesize", "raggedright", "textbf", "textbackslash", "textless", "textgreater", "textbar"}  # fmt: skip
    assert set(re.findall(r"\\([a-zA-Z]+)", text)) <= ours
    assert text.count(r"\end{table}") == 1
    assert "\n\n" not in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_no_text_is_a_formula_in_csv(hostile):
    for line in csv.reader(io.StringIO(as_csv(hostile.texts))):
        for cell in line:
            assert not cell.lstrip().startswith(("=", "+", "-", "@"))
            assert cell.removeprefix("'") == hostile.label


@pytest.mark.parametrize(
    "text", ["-1.5", "+0.30", "-1e-05", "+0.10 … +0.30", "-inf", "−0.30", "76.16 ± 0.12", "<0.001", ""]
)
def test_numbers_stay_numbers_in_csv(text):
    assert as_csv([["a"], [text]]) == f"a\n{text}\n" if text else 'a\n""\n'
    assert as_csv([[-1.5, None, "x"]]) == "-1.5,,x\n"


def test_a_row_is_one_line_of_tabs(hostile):
    text = as_tsv(hostile)
    assert (text.count("\n"), text.count("\t")) == (2, 2)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (80, ["mini/sif_en [studies/open/wiki/SIF-w]  Focal-InfoNCE  65.26 ± 0.11"]),
        (52, ["mini/sif_en              Focal-InfoNCE  65.26 ± 0.11", "[studies/open/wiki/SIF-", "w]"]),
        (40, ["mini/sif_en        Focal-   65.26 ± 0.11", "[studies/          InfoNCE", "open/wiki/", "SIF-w]"]),
    ],
)
def test_long_words_break_between_their_parts(width, lines):
    cells = Cell("Focal-InfoNCE"), Cell("65.26 ± 0.11")
    table = Table("", ("paper", "score"), (Row("mini/sif_en [studies/open/wiki/SIF-w]", cells),), align="ppr")
    out = io.StringIO()
    for part in as_rich_parts(table, width):
        Console(file=out, width=width).print(part)
    assert [line.rstrip() for line in out.getvalue().split("\n")[1:-1]] == lines
