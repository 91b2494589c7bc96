"""The guess at the language of a sentence."""

from __future__ import annotations

import pytest

from cse_cli.inspection.language import UNKNOWN, guess_language, guess_languages


@pytest.mark.parametrize(
    ("sentence", "language"),
    [
        ("The weather is nice in the north of England.", "en"),
        ("Das Wetter ist im Norden von England nicht schön.", "de"),
        ("Il ne fait pas beau dans le nord de la France.", "fr"),
        ("El tiempo es bueno en el norte de España.", "es"),
        ("Il tempo è bello nel nord della Francia.", "it"),
        ("O tempo está bom no norte de Portugal.", "pt"),
        ("Het weer is mooi in het noorden van Nederland.", "nl"),
        ("Он был в городе и не знал, что это.", "ru"),
        ("北方的天气很好。", "zh"),
        ("北方嘅天氣好好。", "yue"),
        ("北の天気はいいです。", "ja"),
        ("북쪽 날씨가 좋다.", "ko"),
        ("Zyx 42!", UNKNOWN),
    ],
)
def test_a_sentence(sentence, language):
    assert guess_language(sentence) == language


def test_shares_are_in_order():
    sentences = ["the cat is in the house"] * 3 + ["die Katze ist im Haus"]
    assert guess_languages(sentences) == {"en": 0.75, "de": 0.25}
    assert list(guess_languages(sentences)) == ["en", "de"]
