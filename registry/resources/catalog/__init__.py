"""Catalog of named data sets: metadata, sources, and checked rows.

Imports neither torch, datasets, pyarrow nor huggingface_hub.
"""

from __future__ import annotations

from registry.resources.catalog.entries import PAIR_COLUMNS, DatasetEntry, entry, names
from registry.resources.catalog.find import fetch, find, locate, roots, state
from registry.resources.catalog.pairs import Pair, PairFile, fingerprint, open_text, read_pairs, require_one
from registry.resources.catalog.readers import Column, File, Source, names_a_file, own_source

__all__ = [
    "PAIR_COLUMNS", "Column", "DatasetEntry", "File", "Pair", "PairFile", "Source", "entry", "fetch", "find",
    "fingerprint", "locate", "names", "names_a_file", "open_text", "own_source", "read_pairs", "require_one", "roots",
    "state",
]  # fmt: skip
