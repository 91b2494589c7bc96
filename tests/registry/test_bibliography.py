"""`references.bib`: it is BibTeX, and methods, data sets and models name all of its entries."""

from __future__ import annotations

import re
from itertools import chain

from registry.papers import bibliography
from registry.papers.audits import audits
from registry.papers.bibliography import TOOL, reference, references
from registry.resources import catalog
from registry.resources.models import known_models
from tests.support.errors import refuses


def test_the_file_is_bibtex():
    text = bibliography._FILE.read_text(encoding="utf-8")
    rest = text
    for entry in references().values():
        rest = rest.replace(f"{entry.bibtex}\n", "")
        lines = [f"  {field} = {{{value}}}" for field, value in entry.fields.items()]
        assert entry.bibtex == f"@{entry.type}{{{entry.key},\n" + ",\n".join(lines) + "\n}"
        depth = 0
        for brace in re.findall(r"(?<!\\)[{}]", entry.bibtex):
            depth += 1 if brace == "{" else -1
            assert depth >= 0, entry.key
        assert depth == 0, entry.key
    assert [line for line in rest.splitlines() if line and not line.startswith("%")] == []
    assert list(references()) == sorted(references())
    assert text.count("\n@") == len(references())


def test_every_entry_has_the_fields_of_its_type():
    place = {"inproceedings": "booktitle", "article": "journal"}
    for entry in references().values():
        assert entry.type in ("inproceedings", "article", "misc", "software")
        required = {"author", "title", *([place[entry.type], "year"] if entry.type in place else ["url"])}
        assert entry.key == TOOL or required <= set(entry.fields), entry.key
        if "year" in entry.fields:
            assert re.fullmatch(r"(19|20)\d\d", entry.fields["year"])
        assert re.fullmatch(r"https?://\S+", entry.fields.get("url", "https://none")), entry.key


def test_every_key_exists_and_every_entry_is_named():
    of_methods = chain.from_iterable((audit.cite, *audit.cite_for.values()) for audit in audits().values())
    of_data = (catalog.entry(name).cite for name in catalog.names())
    of_models = (about.cite for about in known_models().values())
    named = set(chain.from_iterable(chain(of_methods, of_data, of_models)))
    assert named | {TOOL} == set(references())


def test_every_method_data_set_and_model_has_an_entry():
    assert [page for page, audit in audits().items() if not (audit.cite or audit.cite_for)] == []
    assert [name for name in catalog.names() if not catalog.entry(name).cite] == []
    own = {id for id, about in known_models().items() if not about.cite}
    assert own == {"cse/mini_zh", "cse/mini_yue"}  # of this project


def test_a_key_with_a_typo():
    with refuses("cite.unknown_key", "gao2021simcs", "Did you mean 'gao2021simcse'"):
        reference("gao2021simcs")
