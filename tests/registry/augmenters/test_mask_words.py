import torch

from registry.augmenters.mask_words import MaskWords
from registry.vocabulary import HubVocabulary
from tests.registry.augmenters.test_mask_tokens import CLS, SEP, SIZE, STEP, bound, tokens
from tests.registry.augmenters.test_mask_tokens import Vocabulary as TokenVocabulary
from tests.support.errors import refuses
from tests.support.tiny import tiny_bert

CONTINUED = 20


class Vocabulary(TokenVocabulary):
    continued = frozenset(range(CONTINUED, SIZE))


def test_words_are_selected_by_their_first_sub_word():
    """A random cell of a row is selected if the draw of its word's first sub-word is below the rate."""
    rows = [[CLS, 5, 20, 21, 6, 7, 22, SEP], [CLS, 20, 21, 5, SEP], [CLS, 6, SEP]]  # 20 and more continue a word
    given, augmenter = tokens(rows), bound(MaskWords, Vocabulary, rate=0.5, mask_share=1.0, random_share=0.0)
    selected = 0
    for seed in range(20):
        torch.manual_seed(seed)
        draws = torch.rand(given.ids.shape)
        torch.manual_seed(seed)
        found = augmenter.on_tokens(given, STEP)
        for row, ids in enumerate(rows):
            first = 0
            for place, token in enumerate(ids):
                first = first if token >= CONTINUED else place
                hidden = token not in Vocabulary.specials and bool(draws[row, first] < 0.5)
                assert found.targets[row, place] == (token if hidden else -100)
                selected += hidden
    assert 0.3 < selected / (20 * 10) < 0.7


def test_a_tokenizer_without_marked_sub_words_is_refused(monkeypatch):
    monkeypatch.setattr(Vocabulary, "continued", frozenset())
    with refuses("masking.no_words", "mask_words", "WordPiece"):
        bound(MaskWords, Vocabulary)


def test_words_of_a_real_tokenizer(tmp_path):
    vocabulary = HubVocabulary(str(tiny_bert(tmp_path)))
    marked = {vocabulary.tokenizer.convert_ids_to_tokens(number) for number in vocabulary.continued}
    assert marked == {token for token in vocabulary.tokenizer.get_vocab() if token.startswith("##")} != set()
