"""Entries of `references.bib`, the one list of the works that methods, data sets and models come from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from registry.errors import UnknownNameError, suggestion

TOOL = "cse"
"""Key of this project."""

_FILE = Path(__file__).with_name("references.bib")
_ENTRY = re.compile(r"^@(\w+)\{([\w-]+),\n(.*?)\n\}$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (\w+) = \{(.*)\},?$", re.MULTILINE)


@dataclass(frozen=True)
class Reference:
    """One entry.

    Args:
        key: Name of the entry, such as "gao2021simcse".
        type: Type of the entry, such as "inproceedings".
        fields: Field → value, in LaTeX.
        bibtex: Text of the entry.
    """

    key: str
    type: str
    fields: dict[str, str]
    bibtex: str


@cache
def references() -> dict[str, Reference]:
    """Return all entries by key."""
    found = _ENTRY.finditer(_FILE.read_text(encoding="utf-8"))
    entries = (Reference(one[2], one[1], dict(_FIELD.findall(one[3])), one[0]) for one in found)
    return {entry.key: entry for entry in entries}


def reference(key: str) -> Reference:
    """Return the entry with this key."""
    if key not in references():
        raise UnknownNameError(
            f"no entry has the key '{key}'.{suggestion(key, references())}",
            f"correct `cite` of the file that names it, or add the entry to {_FILE}",
            code="cite.unknown_key",
        )
    return references()[key]
