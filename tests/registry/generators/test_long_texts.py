import pytest

from registry.generators.long_texts import LongTexts
from tests.support.tiny import tiny_bert


@pytest.fixture
def model(tmp_path):
    return str(tiny_bert(tmp_path))


@pytest.mark.slow
def test_by_hand(model):
    made = LongTexts(model, tokens=4).make(["a  cat\tsees a dog", "a cat sees dog", "", "A CAT sees a dog"])
    assert made == ["a cat sees a dog", "", "", "A CAT sees a dog"]  # five words, four words
    assert LongTexts(model, tokens=4, lower=True).make(["A CAT sees a dog"]) == ["a cat sees a dog"]
    assert LongTexts(model, tokens=900).make(["cat " * 901]) == [("cat " * 901).strip()]
    assert LongTexts(model, tokens=901).make(["cat " * 901]) == [""]


def test_the_identity_follows_tokenizer_and_parameters(model, tmp_path):
    one = LongTexts(model, tokens=4).identity()
    assert LongTexts(str(tiny_bert(tmp_path / "other")), tokens=4).identity() == one
    assert len({one, LongTexts(model, tokens=5).identity(), LongTexts(model, tokens=4, lower=True).identity()}) == 3
