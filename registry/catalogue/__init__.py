"""The catalogue of named data sets: what they are, where they lie, and their rows, read and checked.

Importing this package imports neither torch nor datasets.
"""

from __future__ import annotations

from registry.catalogue.entries import PAIR_COLUMNS, DatasetEntry, Kind, Split, entry, names
from registry.catalogue.find import Origin, find, locate
from registry.catalogue.formats import file_format, header, names_a_file
from registry.catalogue.pair_files import PairFile, demand_one
from registry.catalogue.reading import Pair, fingerprint, open_text, read_pairs
from registry.catalogue.records import Column
from registry.catalogue.sources import FileSource, GeneratedSource, Scan, Source, checked

__all__ = [
    "PAIR_COLUMNS", "Column", "DatasetEntry", "FileSource", "GeneratedSource", "Kind", "Origin", "Pair", "PairFile",
    "Scan", "Source", "Split", "checked", "demand_one", "entry", "file_format", "find", "fingerprint", "header",
    "locate", "names", "names_a_file", "open_text", "read_pairs",
]  # fmt: skip
