"""A guess at the languages of a text, from its most frequent words and its scripts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from registry.words import words

UNKNOWN = "unknown"
"""Language of a sentence without a word of the lists."""

_FREQUENT = {
    "en": "the of and to is in it that for was with are this he you they from his her at an be have not",
    "de": "der die und das ist nicht ein eine zu den mit von im ich sie auf für er sich dem wir auch es wurde",
    "fr": "le la les et des est une du dans que pas il pour qui je sur avec ce au elle nous vous sont",
    "es": "el los las y una es del que por con se para su lo como más pero no muy fue está son",
    "it": "il di che è e gli una per non della del sono con si le nel anche più ha alla questo",
    "pt": "o os e de uma um não da do em para com que foi mais são ele ela ao na no por está",
    "nl": "de het een en van is dat niet op te zijn met voor ik hij aan er was ook maar werd",
    "ru": "и в не на что он с я как это по его она к но у из за от мы вы был",
}
_LETTERS = {
    "yue": re.compile("[嘅咗哋喺唔嚟咁啲睇冇]"),
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "zh": re.compile("[\u4e00-\u9fff]"),
}
"""Letters that only this language and those below it have."""

_LANGUAGES = {word: [language for language, known in _FREQUENT.items() if word in known.split()] for word in {
    word for known in _FREQUENT.values() for word in known.split()
}}  # fmt: skip


def guess_language(sentence: str) -> str:
    """Return the language of a sentence, or `UNKNOWN`.

    It is the first language in `_LETTERS` with a letter in the sentence, or else the language with the most of its
    frequent words in it. The lists contain about 20 words of 8 languages, so the guess for one short sentence is often
    wrong.
    """
    for language, letter in _LETTERS.items():
        if letter.search(sentence):
            return language
    counted = Counter(language for word in words(sentence) for language in _LANGUAGES.get(word, ()))
    return max(_FREQUENT, key=counted.__getitem__) if counted else UNKNOWN


def guess_languages(sentences: Iterable[str]) -> dict[str, float]:
    """Return language → share of the sentences, the most frequent first."""
    counted = Counter(map(guess_language, sentences))
    return {language: number / counted.total() for language, number in counted.most_common()}
