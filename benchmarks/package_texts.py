"""Selection of the texts in the package from larger data sets of the catalog.

The files are made by

    CSE_DATA=DIRECTORY python -m benchmarks.package_texts registry/texts

which also reports on stderr how many sentences were excluded.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from registry.resources import catalog

PAIRS = 12_000
"""Number of training pairs in the package, of 58,763."""

OPEN = ("answers-forums", "answer-answer", "images", "track5.en-en")
"""Files of STS-B with the license CC BY-SA: questions and answers of Stack Exchange, and image captions."""

Row = Sequence[str]


def open_pairs(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of STS-B (subset, score, two sentences) with an open license, in order."""
    return [row for row in rows if row[0] in OPEN]


def training_pairs(rows: Iterable[Row], evaluated: Collection[str], count: int = PAIRS) -> tuple[list[Row], int]:
    """Return the selected rows (text, translation) in order, and the number of excluded rows.

    Evaluated sentences are excluded first. Of the others, those with the smallest SHA-256 are selected, which is a
    reproducible sample.

    Args:
        rows: Rows of the whole set.
        evaluated: Sentences of the evaluation sets, normalized by `plain`.
        count: Number of rows to select.
    """
    every = list(rows)
    kept = [row for row in every if plain(row[0]) not in evaluated]
    drawn = sorted(range(len(kept)), key=lambda place: hashlib.sha256(kept[place][0].encode()).digest())[:count]
    return [kept[place] for place in sorted(drawn)], len(every) - len(kept)


def plain(sentence: str) -> str:
    """Return a sentence in lower case and without punctuation, for comparison."""
    letters = (letter if letter.isalnum() else " " for letter in sentence.lower())
    return " ".join("".join(letters).split())


def main(folder: Path) -> None:
    """Write the files to a directory."""
    scored = {split: open_pairs(catalog.locate("stsb", split).rows()) for split in ("dev", "test")}
    for split, rows in scored.items():
        write(folder / f"stsb_open_{split}.tsv", catalog.PAIR_COLUMNS, rows)
    evaluated = {plain(sentence) for rows in scored.values() for row in rows for sentence in row[2:]}
    rows, refused = training_pairs(catalog.locate("tatoeba_en_de", "train").rows(), evaluated)
    write(folder / "tatoeba_open.tsv.gz", ("text", "translation"), rows)
    sys.stderr.write(f"tatoeba_open: {refused} sentences excluded because they are evaluated\n")


def write(path: Path, columns: Row, rows: Iterable[Row]) -> None:
    """Write a table with a header. The same rows give the same bytes, also with gzip."""
    content = "".join("\t".join(row) + "\n" for row in (columns, *rows)).encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
