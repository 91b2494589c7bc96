import pytest

from registry.errors import UnknownNameError
from registry.generators.joined_lines import JoinedLines
from registry.resources import catalog

JOINED = """
[generator]
name = "joined_lines"
params = { sources = ["lines/train"], lines = 10 }
[splits.train]
rows = 2
"""


@pytest.mark.slow
def test_by_hand():
    """Three lines each, in order; of 12,000 nothing is left, of 7 in a text one is."""
    lines = [row["text"] for row in catalog.open_text("tatoeba_open")]
    texts = [row["text"] for row in JoinedLines(["tatoeba_open/train"], lines=3).rows("train")]
    assert texts[0] == f"{lines[0]} {lines[1]} {lines[2]}"
    assert texts[1].startswith(lines[3])
    assert len(texts) == 4000
    assert sum(1 for _ in JoinedLines(["tatoeba_open"], lines=7).rows("train")) == 1714 == 12000 // 7


def test_the_catalog_expects_whole_texts_only():
    about = catalog.entry("wiki1m_joined")
    assert about.generator.sources == (("wiki1m_prefix", "train"),)
    lines = catalog.entry("wiki1m_prefix").split("train").rows
    assert about.split("train").rows == lines // about.generator.params["lines"]
    assert sum(1 for _ in catalog.open_text("wiki1m_joined")) == 1191


def test_unknown_sources_are_named():
    with pytest.raises(UnknownNameError, match="'tatoeba_open'"):
        next(JoinedLines(["tatoeba_opne"]).rows("train"))
