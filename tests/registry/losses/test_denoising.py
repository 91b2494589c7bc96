from dataclasses import replace

import pytest
import torch

from registry.encoders.transformer import TransformerEncoder
from registry.heads.projection import Projection
from registry.losses.denoising import Denoising
from tests.registry.encoders.vectors import encoded
from tests.registry.losses.decoder import literal
from tests.support.errors import refuses
from tests.support.tiny import tiny_bert, with_prediction_head

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    model = with_prediction_head(tiny_bert(tmp_path_factory.mktemp("model")))
    return TransformerEncoder(str(model), "mask", template="the {text} {mask} .", dropout=0.0).double()


def made(encoder, **given):
    torch.manual_seed(0)
    values = {"layers": 2, "noise": 0.0, "dropout": 0.0, "feed_forward": 24, **given}
    return Denoising(encoder, **values).double()


def by_hand(loss, encoder, anchor, target, text_alone=False):
    tokens = target.tokens
    views = (target.embeddings, tokens.ids, tokens.mask, tokens.text, anchor.sentence)
    with torch.no_grad():
        return literal(loss, encoder.backbone.embeddings.word_embeddings.weight, views, text_alone)


@pytest.mark.parametrize("given", [{}, {"attention_heads": 4, "layers": 1}, {"places": "text"}])
def test_matches_a_decoder_by_hand(encoder, given):
    view, loss = encoded(encoder), made(encoder, **given)
    expected = by_hand(loss, encoder, view, view, given.get("places") == "text")
    assert loss(view, view).item() == pytest.approx(expected, abs=1e-9)


def test_the_target_is_rebuilt_from_the_anchor_s_vector_with_noise_in_training_alone(encoder):
    anchor, target = encoded(encoder, 2), encoded(encoder, 4)
    target = target.rows(2, 4, replace(target.tokens, **{
        name: getattr(target.tokens, name)[2:] for name in ("ids", "mask", "types", "positions", "text")
    }))  # fmt: skip
    loss = made(encoder)
    assert loss(anchor, target).item() == pytest.approx(by_hand(loss, encoder, anchor, target), abs=1e-9)
    assert loss(anchor, target).item() != pytest.approx(loss(target, target).item(), abs=1e-6)
    view, loss = encoded(encoder), made(encoder, noise=0.825)
    assert loss(view, view).item() != loss(view, view).item()
    loss.eval()
    assert loss(view, view).item() == pytest.approx(by_hand(loss, encoder, view, view), abs=1e-9)


def test_the_decoder_starts_as_in_the_authors_code(tmp_path):
    """DN9, `model.py:19-43`: dense layers from N(0, 0.02²), biases 0; query, key and value as torch starts them."""
    wide = TransformerEncoder(str(tiny_bert(tmp_path, width=64)), "mean")
    first, second = Denoising(wide, layers=2, feed_forward=1024).decoder.layers
    for block in (first, second):
        for part in (block.self_attn.out_proj, block.multihead_attn.out_proj, block.linear1, block.linear2):
            assert part.weight.pow(2).mean().sqrt().item() == pytest.approx(0.02, rel=0.05)
            assert not part.bias.any()
        for attention in (block.self_attn, block.multihead_attn):  # Xavier: ±√(6/(64 + 3·64))
            assert attention.in_proj_weight.abs().max().item() == pytest.approx((6 / 256) ** 0.5, rel=1e-2)
            assert not attention.in_proj_bias.any()
    assert torch.equal(first.self_attn.in_proj_weight, second.self_attn.in_proj_weight)
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_what_does_not_fit_is_refused(encoder, tmp_path):
    plain = TransformerEncoder(str(tiny_bert(tmp_path)), "mean")
    view = encoded(plain)
    with refuses("losses.no_template", 'places = "all"'):
        Denoising(plain, layers=1, places="text")(view, view)
    with refuses("losses.indivisible_width", "attention_heads = 3", 16):
        Denoising(plain, attention_heads=3)
    assert "no prediction head" in Denoising(plain).notices()[0]
    plain.attach({"projection": Projection(width=8)})
    with refuses("losses.width_mismatch", 8, 16):
        Denoising(plain)
