from dataclasses import replace

import pytest
import torch

from registry.augmenters.mask_tokens import MaskTokens
from registry.tokens import Tokens
from registry.types import Step
from tests.support.errors import refuses
from tests.support.fakes import FakeEncoder, WordVocabulary

STEP: Step = None  # type: ignore[assignment]  # this augmenter does not read it
PAD, CLS, SEP, MASK, SIZE = 0, 1, 2, 3, 40


class Vocabulary(WordVocabulary):
    size = SIZE
    specials = frozenset({PAD, CLS, SEP, MASK})
    mask = MASK


def bound(kind=MaskTokens, vocabulary=Vocabulary, **shares):
    encoder = FakeEncoder()
    encoder.vocabulary = vocabulary()
    augmenter = kind(**shares)
    augmenter.bind(encoder)
    return augmenter


def tokens(rows):
    length = max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD] * (length - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    return Tokens(ids, mask, torch.zeros_like(ids), torch.arange(length).expand(ids.shape))


def test_by_hand():
    given = tokens([[CLS, 10, 11, SEP], [CLS, 12, SEP]])
    found = bound(rate=1.0, mask_share=1.0, random_share=0.0).on_tokens(given, STEP)
    assert found.ids.tolist() == [[CLS, MASK, MASK, SEP], [CLS, MASK, SEP, PAD]]
    assert found.targets.tolist() == [[-100, 10, 11, -100], [-100, 12, -100, -100]]
    assert torch.equal(found.mask, given.mask)
    assert given.targets is None
    given = tokens([[CLS, 10, 11, SEP]])
    found = bound(rate=1.0, mask_share=0.0, random_share=0.0).on_tokens(given, STEP)
    assert found.ids.tolist() == given.ids.tolist()
    assert found.targets.tolist() == [[-100, 10, 11, -100]]
    before = replace(given, ids=torch.tensor([[CLS, 30, 11, SEP]]), targets=torch.tensor([[-100, 10, -100, -100]]))
    found = bound(rate=1.0, mask_share=1.0, random_share=0.0).on_tokens(before, STEP)
    assert found.ids.tolist() == [[CLS, MASK, MASK, SEP]]
    assert found.targets.tolist() == [[-100, 10, 11, -100]]


@pytest.mark.parametrize(
    ("rate", "mask_share", "random_share", "rows"),
    [(0.15, 0.8, 0.1, 1), (0.6, 0.0, 1.0, 5), (0.6, 0.3, 0.3, 5)],
)
def test_matches_the_description_place_by_place(rate, mask_share, random_share, rows):
    given = tokens([[CLS, *range(5, 5 + 3 * row), SEP] for row in range(1, rows + 1)])
    augmenter = bound(rate=rate, mask_share=mask_share, random_share=random_share)
    torch.manual_seed(7)
    chances, choices = torch.rand(given.ids.shape), torch.rand(given.ids.shape)
    others = torch.randint_like(given.ids, SIZE)
    torch.manual_seed(7)
    found = augmenter.on_tokens(given, STEP)
    for row in range(given.rows):
        for place in range(given.length):
            token = int(given.ids[row, place])
            hidden = given.mask[row, place] == 1 and token not in Vocabulary.specials and chances[row, place] < rate
            assert found.targets[row, place] == (token if hidden else -100)
            expected = token
            if hidden and choices[row, place] < mask_share:
                expected = MASK
            elif hidden and choices[row, place] < mask_share + random_share:
                expected = int(others[row, place])
            assert found.ids[row, place] == expected


def test_shares_are_berts():
    given = tokens([[10] * 200] * 200)
    torch.manual_seed(0)
    found = bound().on_tokens(given, STEP)
    hidden = found.targets == 10
    count = int(hidden.sum())
    assert count == pytest.approx(0.15 * 40_000, abs=4 * (40_000 * 0.15 * 0.85) ** 0.5)
    masked, same = (found.ids[hidden] == MASK).sum() / count, (found.ids[hidden] == 10).sum() / count
    assert float(masked) == pytest.approx(0.8 + 0.1 / SIZE, abs=0.02)
    assert float(same) == pytest.approx(0.1 + 0.1 / SIZE, abs=0.02)


def test_what_does_not_fit_is_refused():
    with refuses("masking.no_mask", "mask_tokens"):
        MaskTokens().bind(FakeEncoder())
    with refuses("masking.invalid_shares", "mask_share = 0.8", "random_share = 0.3"):
        bound(mask_share=0.8, random_share=0.3)
    with refuses("augmenters.not_bound", "mask_tokens"):
        MaskTokens().on_tokens(tokens([[CLS, 10]]), STEP)
