"""English verbs and their irregular forms, read from WordNet's files or from the table in the package.

The table is made by

    python -m registry.lexicons.verbs /usr/share/wordnet > registry/lexicons/verbs_en.tsv
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from registry.errors import CseError, MissingError
from registry.lexicons.wordnet import WORD

TABLE = Path(__file__).with_name("verbs_en.tsv")
FILES = ("index.verb", "verb.exc")


@dataclass(frozen=True)
class Verbs:
    """Verbs in their base form.

    Args:
        irregular: Verb → its irregular forms. Empty for regular verbs.
    """

    irregular: Mapping[str, tuple[str, ...]]

    def past(self, word: str) -> str | None:
        """Return the verb of a past form or past participle, or None."""
        if word in self._bases:
            return self._bases[word]
        for ending, base in (("ied", "y"), ("ed", "e"), ("ed", "")):
            verb = word.removesuffix(ending) + base
            if word.endswith(ending) and verb in self.irregular and not self._strong(verb):
                return verb
        return None

    def third_person(self, word: str) -> str | None:
        """Return the verb of a third-person form, or None."""
        if word == "has":
            return "have"
        for ending, base in (("ies", "y"), ("s", ""), ("es", "")):
            if word.endswith(ending) and (verb := word.removesuffix(ending) + base) in self.irregular:
                return verb
        return None

    @cached_property
    def _bases(self) -> dict[str, str]:
        forms = ((form, verb) for verb, irregular in self.irregular.items() for form in irregular)
        return {form: verb for form, verb in forms if not form.endswith(("ing", "s"))}

    def _strong(self, verb: str) -> bool:
        """Return whether the past of a verb does not end in -ed. For example, "seed" is not a form of "see"."""
        return any(not form.endswith(("ed", "ing", "s")) for form in self.irregular[verb])


@cache
def shipped() -> Verbs:
    """Return the table in the package, made from WordNet 3.0."""
    with TABLE.open(encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file)
        return Verbs({verb: tuple(forms.split()) for verb, forms in rows})


def installed(folder: Path) -> Verbs:
    """Return the verbs of an installed WordNet that are single lower-case words.

    Args:
        folder: Directory of `index.verb` and `verb.exc`.

    Raises:
        MissingError: If a file does not exist.
        CseError: If a file is not in WordNet's format.
    """
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise MissingError(
            f"no WordNet in '{folder}': {', '.join(missing)} missing",
            "give the directory of index.verb, on Debian /usr/share/wordnet after `apt install wordnet-base`",
            code="lexicons.missing_file",
        )
    found: dict[str, set[str]] = {verb: set() for verb, *_ in _fields(folder / "index.verb") if WORD.fullmatch(verb)}
    for form, *verbs in _fields(folder / "verb.exc"):
        if not verbs:
            raise CseError(
                f"{folder / 'verb.exc'}: no verb follows '{form}'",
                "install WordNet again: `man 5 wndb` describes the format",
                code="lexicons.invalid_format",
            )
        for verb in verbs:
            if verb in found and form != verb and WORD.fullmatch(form):
                found[verb].add(form)
    return Verbs({verb: tuple(sorted(forms)) for verb, forms in sorted(found.items())})


def _fields(file: Path) -> Iterator[list[str]]:
    """Yield the fields of each line. Lines of the license are indented and omitted."""
    with file.open(encoding="utf-8") as lines:
        yield from (line.split() for line in lines if line.strip() and not line.startswith("  "))


if __name__ == "__main__":
    table = installed(Path(sys.argv[1])).irregular
    sys.stdout.writelines(f"{verb}\t{' '.join(forms)}\n" for verb, forms in table.items())
