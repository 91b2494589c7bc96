"""The texts that come with cse, chosen from the catalogue's larger sets.

    CSE_DATA=FOLDER python -m registry.texts.selection registry/texts

writes the files that are shipped, and says on stderr how many sentences were left out.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from registry import catalogue

PAIRS = 12_000
"""Training pairs that are shipped, of 58,763."""

OPEN = ("answers-forums", "answer-answer", "images", "track5.en-en")
"""Files of STS-B whose texts are CC BY-SA: questions and answers of Stack Exchange, captions of images."""

Row = Sequence[str]


def open_pairs(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of STS-B (subset, score, two sentences) whose texts are free to copy, in their order."""
    return [row for row in rows if row[0] in OPEN]


def training_pairs(rows: Iterable[Row], evaluated: Collection[str], count: int = PAIRS) -> tuple[list[Row], int]:
    """Return `count` of the rows (text, translation), in their order, and how many were refused.

    Those whose text has the smallest SHA-256 are taken: a sample that anybody draws again. Sentences that are
    evaluated on are refused first.

    Args:
        rows: Of the whole set.
        evaluated: Sentences of the evaluation sets, as `plain` writes them.
        count: How many to take.
    """
    every = list(rows)
    kept = [row for row in every if plain(row[0]) not in evaluated]
    drawn = sorted(range(len(kept)), key=lambda place: hashlib.sha256(kept[place][0].encode()).digest())[:count]
    return [kept[place] for place in sorted(drawn)], len(every) - len(kept)


def plain(sentence: str) -> str:
    """Return a sentence in lower case and without punctuation: what makes two of them equal."""
    letters = (letter if letter.isalnum() else " " for letter in sentence.lower())
    return " ".join("".join(letters).split())


def main(folder: Path) -> None:
    """Write the files below `folder`."""
    scored = {split: open_pairs(catalogue.locate("stsb", split).rows()) for split in ("dev", "test")}
    for split, rows in scored.items():
        write(folder / f"stsb_open_{split}.tsv", catalogue.PAIR_COLUMNS, rows)
    evaluated = {plain(sentence) for rows in scored.values() for row in rows for sentence in row[2:]}
    rows, refused = training_pairs(catalogue.locate("tatoeba_en_de", "train").rows(), evaluated)
    write(folder / "tatoeba_open.tsv.gz", ("text", "translation"), rows)
    sys.stderr.write(f"tatoeba_open: {refused} sentences left out that are evaluated on\n")


def write(path: Path, columns: Row, rows: Iterable[Row]) -> None:
    """Write a table with a header; the same rows are the same bytes, packed or not."""
    content = "".join("\t".join(row) + "\n" for row in (columns, *rows)).encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
