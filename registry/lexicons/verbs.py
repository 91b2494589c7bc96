"""English verbs and their irregular forms, from the table in the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

TABLE = Path(__file__).with_name("verbs_en.tsv")


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
            forms = self.irregular.get(verb)
            # A verb whose past does not end in -ed has no such form: "seed" is not a form of "see".
            if word.endswith(ending) and forms is not None and all(f.endswith(("ed", "ing", "s")) for f in forms):
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


@cache
def shipped() -> Verbs:
    """Return the table in the package, made from WordNet 3.0."""
    with TABLE.open(encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file)
        return Verbs({verb: tuple(forms.split()) for verb, forms in rows})
