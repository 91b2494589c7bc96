"""The catalogue of named data sets: what they are, where they lie or come from, and their rows, read and checked.

Importing this package imports neither torch, datasets, pyarrow nor the hub's client.
"""

from __future__ import annotations

from registry.catalogue.entries import PAIR_COLUMNS, DatasetEntry, Kind, Split, entry, names
from registry.catalogue.find import Origin, SplitState, fetch, find, locate, roots, state
from registry.catalogue.pairs import Pair, PairFile, fingerprint, open_text, read_pairs, require_one
from registry.catalogue.readers import Column, File, names_a_file
from registry.catalogue.sources import Source, own_source

__all__ = [
    "PAIR_COLUMNS",
    "Column",
    "DatasetEntry",
    "File",
    "Kind",
    "Origin",
    "Pair",
    "PairFile",
    "Source",
    "Split",
    "SplitState",
    "entry",
    "fetch",
    "find",
    "fingerprint",
    "locate",
    "names",
    "names_a_file",
    "open_text",
    "own_source",
    "read_pairs",
    "require_one",
    "roots",
    "state",
]  # fmt: skip
