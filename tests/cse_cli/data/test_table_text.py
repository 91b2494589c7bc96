"""Tables in `.txt` files are refused, prose is not."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from cse_cli.data.files import open_files
from cse_cli.data.table_text import refuse_table
from registry.resources import catalog
from tests.support.errors import refuses

TABLES = {
    "two columns": "id,text\n1,A man sings.\n2,A dog runs.\n",
    "quoted cells": 'sentence,score\n"A man, who sings.",3\n"A ""dog"", it runs.",4\n"x",5\n',
    "quoted header": '"id","text"\n1,a\n2,b\n3,c\n',
    "line break in a cell": 'id,text\n1,a\n2,"b\n c"\n3,d\n4,e\n',
    "names of two words": "sentence one,sentence two,score\na b,c d,1\ne,f,2\n",
}
PROSE = {
    "commas after spaces": "Well, yes.\nNo, never.\nOh, fine.\n",
    "different numbers of commas": "red,green\none,two,three\nfour\n",
    "one word per line": "one\ntwo\nthree\n",
    "two lines": "a,b\nc,d\n",
    "a list in the first line": "apples,pears and the other fruit\nx, y\nz, w\n",
    "equal names": "ha,ha\nno,no\nso,so\n",
    "a single TAB": "a\tb\nc d\ne f\n",
    "blank lines": "\n\n\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_csv_in_a_text_file_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "own.txt"
    file.write_text(TABLES[name])
    header = TABLES[name].partition("\n")[0]
    with refuses("data.table_in_text", f"{file}:1: ", "commas", header, "own.csv", "data.column"):
        open_files([file], None)


def test_a_tsv_in_a_packed_text_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.txt.gz"
    file.write_bytes(gzip.compress(b"A man.\tEin Mann.\nA dog.\tEin Hund.\nA cat.\tEine Katze.\n"))
    with refuses("data.table_in_text", "3 lines", "2 cells", "TABs", "own.tsv.gz"):
        open_files([file], None)


@pytest.mark.parametrize("name", PROSE)
def test_prose_is_not_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "own.txt"
    file.write_text(PROSE[name])
    refuse_table(file)


def test_no_part_of_the_english_text_of_the_package_is_refused(tmp_path: Path) -> None:
    """Also without the space after commas in a tenth of the lines."""
    generator = random.Random(0)
    rows = [row[0] for row in catalog.locate("tatoeba_open", "train").rows()]
    file = tmp_path / "own.txt"
    for start in range(0, len(rows), 500):
        some = [row.replace(", ", ",") if generator.random() < 0.1 else row for row in rows[start : start + 20]]
        file.write_text("\n".join(some), encoding="utf-8")
        refuse_table(file)
