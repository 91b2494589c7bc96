"""Antonyms and verbs: read from WordNet's own files, and the tables that are shipped."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from registry.lexicons import verbs
from registry.lexicons.wordnet import TABLE, installed, shipped
from tests.registry.wordnet import FILES, write_wordnet
from tests.support.errors import refuses

HAND = {
    "big": ("little", "small"),
    "cold": ("hot",),
    "down": ("up",),
    "fall": ("rise",),
    "hot": ("cold",),
    "large": ("small",),
    "little": ("big",),
    "man": ("woman",),
    "rise": ("fall",),
    "small": ("big", "large"),
    "up": ("down",),
    "woman": ("man",),
}
"""Without adult_male, which is two words, and Arctic, which is a name; rise – fall is pointed at from one side only."""


def test_reads_what_the_pointers_say(tmp_path):
    assert installed(write_wordnet(tmp_path)) == HAND


@pytest.mark.process
def test_writes_the_table_that_is_shipped(tmp_path):
    command = [sys.executable, "-m", "registry.lexicons.wordnet", str(write_wordnet(tmp_path))]
    out = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    assert out == "".join(f"{word}\t{' '.join(found)}\n" for word, found in HAND.items())


def test_the_shipped_tables_are_sorted_and_licensed():
    table = shipped()
    assert len(table) == 6143
    assert list(table) == sorted(table)
    for word, opposites in table.items():
        assert re.fullmatch(r"[a-z]+(['-][a-z]+)*", word)
        assert list(opposites) == sorted(set(opposites) - {word})
        assert all(word in table[opposite] for opposite in opposites)
    license = TABLE.with_name("LICENSE.wordnet").read_text(encoding="utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in license
    assert "use, copy, modify and distribute this software and\ndatabase and its documentation" in license
    table = verbs.shipped().irregular
    assert len(table) == 8696
    assert list(table) == sorted(table)
    assert table["write"] == ("written", "wrote")


@pytest.mark.parametrize("line", ["nonsense ! x", "00000000 00 n 01 hot 0 001 ! 99999999 n 0101 | x", "ÿ ! \n"])
def test_another_format_is_refused(tmp_path, line):
    write_wordnet(tmp_path)
    (tmp_path / FILES["n"]).write_bytes(line.encode("latin-1"))
    with refuses("lexicons.invalid_format", "WordNet"):
        installed(tmp_path)


@pytest.mark.skipif(not Path("/usr/share/wordnet/data.noun").is_file(), reason="Debian's wordnet-base is not installed")
def test_the_shipped_table_is_wordnets():
    assert installed(Path("/usr/share/wordnet")) == shipped()


def test_forms_of_verbs_by_hand():
    found = verbs.Verbs({"bake": (), "be": ("was",), "see": ("saw", "seen"), "stop": ("stopped",), "try": ()})
    past = {word: found.past(word) for word in ("saw", "seed", "stopped", "tried", "baked", "bakes", "went")}
    assert past == {
        "saw": "see", "seed": None, "stopped": "stop", "tried": "try", "baked": "bake", "bakes": None, "went": None,
    }  # fmt: skip
    assert [found.third_person(word) for word in ("bakes", "tries", "bus", "sees")] == ["bake", "try", None, "see"]
