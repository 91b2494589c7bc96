"""Translations of test sentences, for augmenters that read a second column. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from registry.catalogue import File, Source
from registry.catalogue.find import data_folder, own_file
from registry.catalogue.pairs import ROWS
from registry.errors import CseError, MissingError


class Translations:
    """Sentence → translation, from a `.tsv` with a header.

    Args:
        file: Path; a relative one counts from the current folder, then from $CSE_DATA.
        column: The column that holds the translations; sentences stand in `text`.

    Raises:
        MissingError: There is no such file.
    """

    def __init__(self, file: str, column: str) -> None:
        self.source = Source(("text", column), (File(_found(file)),))

    def of(self, sentences: Sequence[str]) -> list[str]:
        """Return the translation of each sentence, whose white space is single blanks.

        Raises:
            CseError: A sentence has none.
        """
        missing = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self._table]
        if missing:
            raise CseError(
                f"{self.source.where}: no translation of {len(missing)} of {len(set(sentences))} sentences, the first "
                f"of them {missing[0]!r}",
                "translate those too: `cse data translate` writes such a file from a .txt with one sentence a line",
            )
        return [self._table[sentence] for sentence in sentences]

    def fingerprints(self) -> dict[str, str]:
        """Return "file/column" → digest of its content."""
        return {f"{self.source.paths[0].name}/{self.source.columns[1]}": ROWS + self.source.digest}

    @cached_property
    def _table(self) -> dict[str, str]:
        return {" ".join(text.split()): other for text, other in self.source.rows()}


def _found(file: str) -> Path:
    found, folder = own_file(file), data_folder()
    if found is not None:
        return found
    looked = " here" if folder is None else f" here or below CSE_DATA ({folder})"
    raise MissingError(
        f"augmentation_quality: no translations at {file}{'' if Path(file).expanduser().is_absolute() else looked}",
        "make the file with `cse data translate`: a .tsv with columns text and translation",
    )
