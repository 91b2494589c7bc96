"""A sentence made to say the opposite, in almost the same words."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from random import Random
from typing import Literal

from registry import AUGMENTERS
from registry.augmenters.replace_antonyms import WORD
from registry.lexicons.verbs import shipped
from registry.tokens import Sample
from registry.types import Augmenter

Rule = Literal["removed", "auxiliary", "verb", "front"]

BE = frozenset("am is are was were be been being".split())  # noqa: SIM905 - as one reads it
HAVE = frozenset(("have", "has", "had"))
DO = frozenset(("do", "does", "did"))
MODALS = frozenset("will would can could may might must shall should ca wo sha".split())  # noqa: SIM905
DETERMINERS = frozenset("a an the his her its their my our your".split())  # noqa: SIM905
PLURAL_SUBJECTS = frozenset("i you we they who".split())  # noqa: SIM905
SINGULAR_SUBJECTS = frozenset("he she it who which that there".split())  # noqa: SIM905
NEAR = 2
"""Words behind a form of have or do among which its participle or verb is looked for."""


@AUGMENTERS.register("negate")
class Negate(Augmenter):
    """Negate each sentence, by the first of five rules that applies.

    1. "not" stands in it: its first one is removed, as that of "cannot". 2., 3. It has an auxiliary, a modal verb or a
    form of be: "not" is put behind the first. Forms of have and do count where one of the next two words is a
    participle, or a verb, with no determiner before it. 4. It has a finite verb: do, does or did, "not" and the verb's
    base form take its place. 5. "Not" is put in front. The spacing of the sentence is kept.

    Nothing is parsed: words are looked up. The verb of rule 4 is the first lower-case word behind another that is a
    past form and stands behind no determiner, or a form of the present behind a pronoun; have and do anywhere. Verbs
    and their irregular forms are WordNet's.

    Shapes: (B,) sentences → (B,) sentences. The run's record has the shares of sentences so far that came to rule 1
    (`removed`), 2 or 3 (`auxiliary`), 4 (`verb`) and 5 (`front`).

    Source: SNCSE (Wang et al. 2022) and its code, which parses with spaCy. Doubtful and settled in methods/sncse.md:
    "not" is removed where it stands (SN5), spacing (SN6), what word lists decide otherwise than a parser (SN8).
    """

    def __init__(self) -> None:
        self.verbs = shipped()
        self.seen: Counter[Rule] = Counter()

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:  # noqa: ARG002 - the hook's form
        """Return the samples with their first segments negated."""
        made = []
        for sample in samples:
            text, rule = self.negated(sample.text)
            self.seen[rule] += 1
            made.append(Sample(text, sample.pair, sample.label, sample.joint))
        return made

    def report(self) -> dict[str, float]:
        """Return the share of sentences for each rule that was used."""
        total = self.seen.total()
        return {rule: count / total for rule, count in sorted(self.seen.items())}

    def negated(self, text: str) -> tuple[str, Rule]:
        """Return the negation of a text, and the rule it was made by."""
        spans = [(found.start(), found.end()) for found in WORD.finditer(text)]
        words = [text[start:end] for start, end in spans]
        lower = [word.lower() for word in words]
        for word, (start, end) in zip(lower, spans, strict=True):
            if word == "not":
                return (text[:start].removesuffix(" ") + text[end:]).removeprefix(" "), "removed"
            if word == "cannot":
                return text[: end - len("not")] + text[end:], "removed"
        for place, (_, end) in enumerate(spans):
            if self._is_auxiliary(lower, place):
                return f"{text[:end]} not{text[end:]}", "auxiliary"
        for place, (start, end) in enumerate(spans):
            if place and words[place].islower() and (instead := self._unfolded(lower, place)):
                return text[:start] + instead + text[end:], "verb"
        return f"Not {text}", "front"

    def _is_auxiliary(self, words: list[str], place: int) -> bool:
        word = words[place].removesuffix("n't")
        behind = list(takewhile(lambda each: each not in DETERMINERS, words[place + 1 : place + 1 + NEAR]))
        if word in BE or word in MODALS or (word != words[place] and word in HAVE | DO):
            return True
        if word in HAVE:
            return any(self.verbs.past(each) for each in behind)
        return word in DO and any(each in self.verbs.irregular for each in behind)

    def _unfolded(self, words: list[str], place: int) -> str | None:
        """Return a finite verb with "not": did not see, for "saw"; None where the word is none."""
        word, before = words[place], words[place - 1]
        main = word in HAVE | DO
        if (verb := self.verbs.past(word)) and before not in DETERMINERS:
            return f"did not {verb}"
        if (verb := self.verbs.third_person(word)) and (main or before in SINGULAR_SUBJECTS):
            return f"does not {verb}"
        return f"do not {word}" if word in self.verbs.irregular and (main or before in PLURAL_SUBJECTS) else None
