"""Negation of a sentence in almost the same words."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from random import Random
from string import punctuation
from typing import Literal

from registry import AUGMENTERS
from registry.augmenters.replace_antonyms import WORD
from registry.lexicons.verbs import shipped
from registry.tokens import Sample
from registry.types import Augmenter

Rule = Literal["removed", "auxiliary", "verb", "front"]

BE = frozenset("am is are was were be been being".split())  # noqa: SIM905 - easier to read
HAVE = frozenset(("have", "has", "had"))
DO = frozenset(("do", "does", "did"))
MODALS = frozenset("will would can could may might must shall should ca wo sha".split())  # noqa: SIM905
DETERMINERS = frozenset("a an the his her its their my our your".split())  # noqa: SIM905
PLURAL_SUBJECTS = frozenset("i you we they who".split())  # noqa: SIM905
SINGULAR_SUBJECTS = frozenset("he she it who which that there".split())  # noqa: SIM905
CLAUSES = frozenset(("and", "but", "or", "so", "to", "that", "which", "who", "whom", "whose", "what", "when", "where"))
CLAUSES |= {"while", "because", "as", "if", "after", "before", "since", "until", "although", "though"}
CLAUSES |= {"it", "he", "she", "they"}
"""Words that begin another clause: an auxiliary after a finite verb and one of them does not belong to the verb."""
NEAR = 2
"""Number of words after a form of have or do that can be its participle or verb."""


@AUGMENTERS.register("negate")
class Negate(Augmenter):
    """Negate each sentence by the first of five rules that applies.

    A sentence that does not end in ASCII punctuation, such as a heading, is negated by rule 5, as in the authors' code.

    1. If the sentence contains "not" or "cannot", the first "not" is removed. 2., 3. After the first auxiliary, modal
    verb or form of be, "not" is inserted, unless it follows a finite verb and, between them, a word that begins a
    clause, such as "and" or "that". Forms of have and do are auxiliaries if one of the next two words is a participle
    or a verb, without a determiner before it. 4. A finite verb is replaced by do, does or did, "not" and its
    base form. 5. "Not" is inserted at the beginning. Other spaces do not change.

    Words are looked up in lists, without a parser. The verb of rule 4 is the first lower-case word after the first word
    that is a past form not preceded by a determiner, or a present form preceded by a pronoun. For have and do, the
    preceding word does not matter. Verbs and their irregular forms come from WordNet.

    Args:
        rules_for_all: Whether rules 1 to 4 also apply to sentences that do not end in ASCII punctuation.

    Shapes: (B,) sentences → (B,) sentences. The run records the share of sentences for rule 1 (`removed`), 2 or 3
    (`auxiliary`), 4 (`verb`) and 5 (`front`).

    Source: SNCSE (Wang et al. 2022) and its code (Sense-GVT/SNCSE @faa013e generate_soft_negative_samples.py:9-54 and
    SNCSE/train_SNCSE.py:511-514), which parses with spaCy. Doubtful and settled in methods/sncse.md: removal of "not"
    (SN5), spacing (SN6), differences between word lists and a parser (SN8), sentences without final punctuation (SN10,
    `rules_for_all`).

    Example:
        [views.negated]
        encoder = "online"
        augment = [{ name = "negate" }]
    """

    def __init__(self, rules_for_all: bool = False) -> None:
        self.rules_for_all = rules_for_all
        self.verbs = shipped()
        self.seen: Counter[Rule] = Counter()

    def on_text(self, samples: list[Sample], rng: Random) -> list[Sample]:  # noqa: ARG002 - the hook's form
        """Return the samples with negated first segments."""
        made = []
        for sample in samples:
            text, rule = self.negated(sample.text)
            self.seen[rule] += 1
            made.append(Sample(text, sample.pair, sample.label, sample.joint))
        return made

    def report(self) -> dict[str, float]:
        """Return the share of sentences for each rule that was applied."""
        total = self.seen.total()
        return {rule: count / total for rule, count in sorted(self.seen.items())}

    def negated(self, text: str) -> tuple[str, Rule]:
        """Return the negation of a sentence, and the rule that was applied."""
        by_rules = self.rules_for_all or text.strip()[-1:] in punctuation
        return self._by_rules(text) if by_rules else (f"Not {text}", "front")

    def _by_rules(self, text: str) -> tuple[str, Rule]:
        spans = [(found.start(), found.end()) for found in WORD.finditer(text)]
        words = [text[start:end] for start, end in spans]
        lower = [word.lower() for word in words]
        for word, (start, end) in zip(lower, spans, strict=True):
            if word == "not":
                return (text[:start].removesuffix(" ") + text[end:]).removeprefix(" "), "removed"
            if word == "cannot":
                return text[: end - len("not")] + text[end:], "removed"
        finite = (
            place for place, word in enumerate(words) if place and word.islower() and self._unfolded(lower, place)
        )
        verb = next(finite, len(words))
        for place, (_, end) in enumerate(spans):
            if self._is_auxiliary(lower, place) and not CLAUSES.intersection(lower[verb + 1 : place]):
                return f"{text[:end]} not{text[end:]}", "auxiliary"
        if verb == len(words):
            return f"Not {text}", "front"
        start, end = spans[verb]
        return f"{text[:start]}{self._unfolded(lower, verb)}{text[end:]}", "verb"

    def _is_auxiliary(self, words: list[str], place: int) -> bool:
        word = words[place].removesuffix("n't")
        behind = list(takewhile(lambda each: each not in DETERMINERS, words[place + 1 : place + 1 + NEAR]))
        if word in BE or word in MODALS or (word != words[place] and word in HAVE | DO):
            return True
        if word in HAVE:
            return any(self.verbs.past(each) for each in behind)
        return word in DO and any(each in self.verbs.irregular for each in behind)

    def _unfolded(self, words: list[str], place: int) -> str | None:
        """Return the negated form of a finite verb, such as "did not see" for "saw", or None for other words."""
        word, before = words[place], words[place - 1]
        main = word in HAVE | DO
        if (verb := self.verbs.past(word)) and before not in DETERMINERS:
            return f"did not {verb}"
        if (verb := self.verbs.third_person(word)) and (main or before in SINGULAR_SUBJECTS):
            return f"does not {verb}"
        return f"do not {word}" if word in self.verbs.irregular and (main or before in PLURAL_SUBJECTS) else None
