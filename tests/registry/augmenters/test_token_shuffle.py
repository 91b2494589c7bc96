import pytest
import torch

from registry.augmenters.token_shuffle import TokenShuffle
from registry.encoders.transformer import TransformerEncoder
from tests.registry.augmenters.literal import SHAPES, STEP, batch, seeded
from tests.support.errors import refuses
from tests.support.tiny import tiny_bert, tiny_roberta


def shuffle(augmenter, tokens, seed=0):
    torch.manual_seed(seed)
    return augmenter.on_tokens(tokens, STEP)


def slow(tokens, scope):
    """As ConSERT's code: the indices of the places in scope, shuffled, then those of the rest."""
    noise = seeded(*tokens.ids.shape)
    out = []
    for row in range(tokens.rows):
        n = int(tokens.mask[row].sum()) if scope == "real" else tokens.length
        mixed = sorted(range(n), key=lambda place: noise[row][place])
        out.append([int(tokens.positions[row, place]) for place in [*mixed, *range(n, tokens.length)]])
    return torch.tensor(out)


def test_by_hand():
    """Three real tokens of five places: 0 1 2 in some order, then 3 4; ids and mask as they were."""
    tokens = batch([3, 5], 1).tokens
    after = shuffle(TokenShuffle(), tokens)
    assert sorted(after.positions[0, :3].tolist()) == [0, 1, 2]
    assert after.positions[0, 3:].tolist() == [3, 4]
    assert sorted(after.positions[1].tolist()) == [0, 1, 2, 3, 4]
    assert after.ids is tokens.ids
    assert after.mask is tokens.mask


@pytest.mark.parametrize(("lengths", "width"), SHAPES)
@pytest.mark.parametrize("scope", ["real", "all"])
def test_equals_the_slow_version(lengths, width, scope):
    tokens = batch(lengths, width, extra=3).tokens
    assert torch.equal(shuffle(TokenShuffle(scope), tokens).positions, slow(tokens, scope))


def test_one_order_for_the_whole_batch():
    """MoCoSE's code: position p of the batch's width goes to the place that one permutation says, in every sentence."""
    tokens = batch([2, 5, 3], 1, extra=1).tokens
    after = shuffle(TokenShuffle("all", "batch"), tokens)
    noise = seeded(1, tokens.length)[0]
    order = sorted(range(tokens.length), key=lambda place: noise[place])
    assert after.positions.tolist() == [order] * 3
    assert order != sorted(order)
    assert (after.ids is tokens.ids, after.mask is tokens.mask) == (True, True)
    with refuses("augmenters.wrong_scope", 'once_per = "batch"', 'scope = "all"'):
        TokenShuffle(once_per="batch")


@pytest.mark.parametrize(("model", "site"), [(tiny_bert, "layer"), (tiny_roberta, "word")])
def test_the_encoder_reads_the_new_positions(tmp_path, model, site):
    """A sentence of one repeated word is the same in any order; one of different words is not. Gradient passes."""
    encoder = TransformerEncoder(str(model(tmp_path)), pooling="mean", augment_at=site, dropout=0.0)
    ids = encoder.vocabulary.ids(["the cat sees a big green tree"], 32)
    alike = encoder.vocabulary.pad([[ids[0][1]] * 9])
    different = encoder.vocabulary.pad(ids)

    def sentence(tokens):
        return encoder.encode(tokens, encoder.embed(tokens)).sentence

    assert torch.allclose(sentence(alike), sentence(shuffle(TokenShuffle(), alike)), atol=1e-5)
    assert not torch.allclose(sentence(different), sentence(shuffle(TokenShuffle(), different)), atol=1e-4)
    (sentence(shuffle(TokenShuffle(), different)) @ torch.linspace(-1, 1, encoder.dim)).square().sum().backward()
    assert encoder.backbone.embeddings.position_embeddings.weight.grad.any()
