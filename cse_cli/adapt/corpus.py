"""Documents of a corpus: read, checked, and divided into training, dev and test."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cse_cli.core.formatting import counted
from registry.errors import CseError, MissingError
from registry.resources import catalog

LEAST = 200
"""Minimum number of documents, and of those that are long enough. A quarter of these judge."""
PASSAGE = 10
"""Words of a passage."""
SHORTEST = 30
"""Minimum number of words of a document that is searched. Shorter texts do not show what helps a search."""
LONGEST = 96
"""Words of a document that are searched."""
TEST, DEV, TRAIN = 500, 300, 20_000
"""Maximum number of documents that judge, that choose, and that train: 300 steps read 19,200."""
PARAGRAPH = 100
"""Lines of a document, on average, above which blank lines are accidents in a file with a document in each line."""
TITLE = 20
"""Maximum number of words of a title."""


@dataclass(frozen=True)
class Document:
    """A document, with the title and the label that the corpus gives it, or ""."""

    text: str
    title: str = ""
    label: str = ""

    @property
    def pieces(self) -> list[str]:
        """Words, or the characters of a text without spaces."""
        words = self.text.split()
        return words if len(self.text) < 15 * len(words) else list(self.text)

    def passages(self, rng: random.Random) -> tuple[list[str], str]:
        """Return 1 to 3 random passages, at most half of the words, and the start of the document without them."""
        pieces = self.pieces
        count = max(1, min(3, len(pieces) // (2 * PASSAGE)))
        size = len(pieces) // count
        starts = [part * size + rng.randrange(size - PASSAGE + 1) for part in range(count)]
        taken = {at for start in starts for at in range(start, start + PASSAGE)}
        rest = [piece for at, piece in enumerate(pieces) if at not in taken][:LONGEST]
        return [self._joined(pieces[start : start + PASSAGE]) for start in starts], self._joined(rest)

    def _joined(self, pieces: Sequence[str]) -> str:
        return (" " if " " in self.text else "").join(pieces)


def read_documents(path: Path) -> list[Document]:
    """Read a corpus.

    A directory has one document in each .txt file, with the name of the directory that contains it as label. A .jsonl
    file has one in each line: `text`, and optionally `title` and `label`. In another file, blank lines divide
    documents, unless they are fewer than one in `PARAGRAPH` lines: then each line is one. The first line of several is
    the title if it is short and does not end like a sentence.

    Raises:
        MissingError: If the path does not exist.
        CseError: If a file is not UTF-8, or a line is not a JSON object with a text.
    """
    if not path.exists():
        raise MissingError(
            f"no file or directory '{path}'{catalog.similar_files(str(path))}",
            "give a text file, a .jsonl file or a directory of .txt files",
            code="adapt.no_corpus",
        )
    if path.is_dir():
        files = sorted(path.rglob("*.txt"))
        return [_titled(_read(file), file.parent.name if file.parent != path else "") for file in files]
    text = _read(path)
    lines = text.removesuffix("\n").split("\n")  # not `splitlines`, which also divides at U+2028 and others
    if path.suffix == ".jsonl":
        return [_parsed(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    parts = re.split(r"\n(?:[ \t]*\n)+", text.strip())
    divided = len(parts) > 1 and len(lines) < PARAGRAPH * len(parts)
    return [_titled(part) for part in parts] if divided else [Document(line) for line in lines]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        action = "convert it: iconv -f LATIN1 -t UTF-8"
        raise CseError(f"{path}: byte {error.start} is not UTF-8 text", action, code="adapt.not_text") from None


def _titled(text: str, label: str = "") -> Document:
    text = text.strip()
    first, _, rest = text.partition("\n")
    if rest.strip() and len(first.split()) <= TITLE and first.rstrip()[-1:] not in ".!?;,":
        return Document(rest, first.strip(), label)
    return Document(text, "", label)


def _parsed(line: str, place: str) -> Document:
    try:
        row = json.loads(line) if line.strip() else {"text": ""}
    except ValueError:
        row = None
    if not isinstance(row, Mapping) or not isinstance(row.get("text"), str):
        action = 'write one object in each line: {"text": "…", "title": "…"}'
        raise CseError(f"{place}: not a JSON object with a `text`", action, code="adapt.not_a_document")
    return Document(row["text"], str(row.get("title") or ""), str(row.get("label") or ""))


@dataclass(frozen=True)
class Corpus:
    """Documents of a corpus for each purpose, and notes on what was removed."""

    train: Sequence[Document]
    dev: Sequence[Document]
    test: Sequence[Document]
    notes: Sequence[str]


def divide(found: Sequence[Document], name: str, evaluated: frozenset[str]) -> Corpus:
    """Remove repetitions and evaluation sentences, and divide the documents. The same corpus is divided equally.

    Raises:
        CseError: If fewer than `LEAST` documents are long enough. `name` is the corpus in the message.
    """
    clean = [Document(" ".join(one.text.split()), " ".join(one.title.split()), one.label) for one in found]
    kept = {one.text: one for one in reversed(clean) if one.text and one.text not in evaluated}
    long = [one for one in kept.values() if len(one.pieces) >= SHORTEST]
    notes = []
    if blank := sum(not one.text for one in clean):
        notes.append(f"{counted(blank, 'document')} without text removed")
    if leaked := sum(one.text in evaluated for one in clean):
        notes.append(f"{counted(leaked, 'sentence')} of the evaluation data removed")
    if repeated := len(clean) - blank - leaked - len(kept):
        notes.append(f"{counted(repeated, 'repeated document')} removed")
    if len(kept) < LEAST:
        raise CseError(
            f"{name}: {counted(len(kept), 'different document')} of {len(clean):,}, and you need {LEAST}",
            "give it more text",
            code="adapt.too_few_documents",
        )
    if len(long) < LEAST:
        words = sorted(len(one.pieces) for one in kept.values())[len(kept) // 2]
        raise CseError(
            f"{name}: no answer without labels. {len(long)} of {len(kept):,} documents have {SHORTEST} words "
            f"or more (median: {words}), and shorter ones do not show what helps a search",
            "use longer documents, or compare recipes with labels: docs/tutorials/adapt.md",
            code="adapt.cannot_tell",
        )
    random.Random(0).shuffle(long)
    test, dev = min(TEST, len(long) // 4), min(DEV, len(long) // 8)
    held = {one.text for one in long[: test + dev]}
    train = [one for one in kept.values() if one.text not in held and len(one.pieces) >= 2 * PASSAGE]
    if len(train) > TRAIN:
        train = random.Random(0).sample(train, TRAIN)
    return Corpus(train, long[test : test + dev], long[:test], notes)
