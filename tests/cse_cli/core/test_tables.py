"""The one table: every writer shows all of it, and nothing in it is markup."""

from __future__ import annotations

import csv
import io
import json
import math

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
    as_tsv,
    escape_latex,
    fits,
    plain_table,
)

SCORES = Table(
    caption="50 % of [x]",
    headings=("n", "sts_b"),
    rows=(
        Row("ours [1]", (Cell("3"), Cell("61.20▲", strong=True)), "ours"),
        Row("±", (Cell(), Cell("0.31")), "spread", below=True),
        Row("a|b [red]", (Cell("1"), Cell("60.00"))),
    ),
    notes=("50 % of it",),
)


def printed(table: Table, width: int = 60, **options) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(as_rich(table, **options))
    return [line.rstrip() for line in console.file.getvalue().split("\n")[:-1]]


def test_terminal():
    assert printed(SCORES) == [
        "           n   sts_b",
        "ours [1]   3  61.20▲",
        "  ±             0.31",
        "a|b [red]  1   60.00",
    ]
    ruled = printed(SCORES, ruled=True, gap=1)
    assert ruled[1] == "─" * 18
    assert [line.split() for line in ruled if "─" not in line] == [line.split() for line in printed(SCORES)]


def test_long_words_wrap_and_numbers_stay():
    table = plain_table(("name", "title", "rows"), [("a", "word " * 30, "12,345")], align="lpr")
    lines = printed(table, width=40)
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).count("word") == 30
    assert "12,345" in lines[1]
    assert not fits(as_rich(table), 40)
    assert fits(as_rich(table), 200)


def test_markdown():
    assert as_markdown(SCORES).split("\n") == [
        "|  | n | sts_b |",
        "| --- | ---: | ---: |",
        r"| ours \[1\] | 3 | **61.20▲** |",
        "| &emsp;± |  | 0.31 |",
        r"| a\|b \[red\] | 1 | 60.00 |",
        "",
        r"\[1\] 50 % of it",
    ]


def test_latex():
    lines = as_latex(SCORES, ["p < 0.05"]).split("\n")
    assert lines[2] == r"\caption{50 \% of [x]}"
    assert lines[3] == r"\begin{tabular}{lrr}"
    assert lines[5] == r"{} & n & sts\_b \\"
    assert lines[7] == r"{}ours [1] & 3 & \textbf{61.20$^\uparrow$} \\"
    assert lines[8] == r"\quad{}$\pm$ &  & 0.31 \\"
    assert lines[-3:] == [r"\par [1] 50 \% of it", r"\par p \textless{} 0.05", r"\end{table}"]
    assert escape_latex("中") == r"\texttt{U+4E2D}"


def test_values_for_other_programs():
    assert list(csv.reader(io.StringIO(as_csv(SCORES))))[3] == ["a|b [red]", "1", "60.00"]
    assert as_tsv(plain_table(("a", "b"), [("1", "2")])) == "a\tb\n1\t2\n"


def test_stdout_that_is_no_terminal_is_plain_and_unwrapped(capsys: pytest.CaptureFixture[str]):
    with stdout_console() as console:
        assert console.width == UNBOUND
        console.print("[bold]x[/bold]   ")
        console.print("y " * 300)
    assert capsys.readouterr().out == "x\n" + ("y " * 300).rstrip() + "\n"


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]):
    write_json({"a": (math.nan, {"b": math.inf}), "c": 1.5})
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "a": [None, {"b": None}], "c": 1.5}
