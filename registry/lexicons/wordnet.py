"""English antonyms, read from WordNet's files or from the table in the package.

The table is made by

    python -m registry.lexicons.wordnet /usr/share/wordnet > registry/lexicons/antonyms_en.tsv
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from registry.errors import CseError, MissingError

TABLE = Path(__file__).with_name("antonyms_en.tsv")
FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "r": "data.adv"}
WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*")
"""Pattern of accepted lemmas: single lower-case words, without names and phrases."""

Antonyms = Mapping[str, tuple[str, ...]]
"""Word → its antonyms of all parts of speech, sorted."""


@cache
def shipped() -> Antonyms:
    """Return the table in the package, made from WordNet 3.0."""
    with TABLE.open(encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file)
        return {word: tuple(opposites.split(" ")) for word, opposites in rows}


def installed(folder: Path) -> Antonyms:
    """Return the antonyms of an installed WordNet."""
    missing = [name for name in FILES.values() if not (folder / name).is_file()]
    if missing:
        raise MissingError(
            f"no WordNet in '{folder}': {', '.join(missing)} missing",
            "give the directory of data.noun, on Debian /usr/share/wordnet after `apt install wordnet-base`",
            code="lexicons.missing_file",
        )
    files = {part: (folder / name).read_bytes() for part, name in FILES.items()}
    found: defaultdict[str, set[str]] = defaultdict(set)
    try:
        for word, opposite in _pairs(files):
            if WORD.fullmatch(word) and WORD.fullmatch(opposite) and word != opposite:
                found[word].add(opposite)
                found[opposite].add(word)
    except (ValueError, IndexError, KeyError) as error:
        raise CseError(
            f"files in '{folder}' are not in WordNet's format: {error}",
            "install WordNet again: `man 5 wndb` describes the format",
            code="lexicons.invalid_format",
        ) from error
    return {word: tuple(sorted(opposites)) for word, opposites in sorted(found.items())}


def _pairs(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield both words of every antonym pointer. A pointer links a word of one synset to a word of another."""
    for content in files.values():
        for line in content.split(b"\n"):
            if b" ! " not in line or line.startswith(b"  "):  # the license at the top is indented
                continue
            words, rest = _words(line)
            for at in range(1, 4 * int(rest[0]), 4):
                symbol, offset, part, ends = rest[at : at + 4]
                if symbol == "!":
                    start = int(offset)
                    there, _ = _words(files[part][start : files[part].index(b"\n", start)])
                    yield words[int(ends[:2], 16) - 1], there[int(ends[2:], 16) - 1]


def _words(line: bytes) -> tuple[list[str], list[str]]:
    """Return the words of a synset without markers, and the fields from the number of pointers."""
    fields = line.decode().partition(" | ")[0].split(" ")
    end = 4 + 2 * int(fields[3], 16)
    return [word.partition("(")[0] for word in fields[4:end:2]], fields[end:]


if __name__ == "__main__":
    sys.stdout.writelines(f"{word}\t{' '.join(found)}\n" for word, found in installed(Path(sys.argv[1])).items())
