import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from registry.encoders.transformer import TransformerEncoder
from registry.losses.reconstruction import Reconstruction
from tests.registry.encoders.vectors import encoded
from tests.support.errors import refuses
from tests.support.fakes import FakeEncoder
from tests.support.tiny import tiny_albert, tiny_bert, tiny_roberta, with_prediction_head


def parts(folder, make=tiny_bert, **params):
    model = str(with_prediction_head(make(folder)))
    encoder = TransformerEncoder(model, dropout=0.0).double()
    loss = Reconstruction(encoder, **params).double().eval()
    for parameter in loss.cross.parameters():  # so that the vector matters
        torch.nn.init.normal_(parameter, std=0.3)
    return encoder, loss


def as_transformers(encoder, loss):
    """Return transformers' own decoder with the encoder's weights and the loss's cross-attention."""
    model = (
        AutoModelForCausalLM.from_pretrained(encoder.model, is_decoder=True, add_cross_attention=True).double().eval()
    )
    for block, cross in zip(model.base_model.encoder.layer, loss.cross, strict=True):
        block.crossattention.load_state_dict(cross.state_dict())
    return model


def literal(model, damaged, whole):
    """Sentence by sentence, without padding."""
    total, count = 0.0, 0
    for row in range(whole.tokens.rows):
        ids = whole.tokens.ids[row][whole.tokens.mask[row] == 1].tolist()
        found = model(torch.tensor([ids[:-1]]), encoder_hidden_states=damaged.sentence[row].view(1, 1, -1))
        for scores, target in zip(found.logits[0].tolist(), ids[1:], strict=True):
            total += math.log(sum(map(math.exp, scores))) - scores[target]
            count += 1
    return total / count


@pytest.mark.slow
@pytest.mark.parametrize(("make", "count"), [(tiny_bert, 3), (tiny_roberta, 1)])
def test_is_transformers_own_decoder(tmp_path, make, count):
    encoder, loss = parts(tmp_path, make)
    damaged, whole = encoded(encoder, count, 1), encoded(encoder, count, 2)
    expected = literal(as_transformers(encoder, loss), damaged, whole)
    assert loss(damaged, whole).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_a_token_sees_none_that_comes_later_and_only_encoder_and_cross_attention_are_trained(tmp_path):
    encoder, loss = parts(tmp_path)
    whole = encoded(encoder, 2)
    states = loss._decoded(whole.embeddings, whole.sentence)
    other = whole.embeddings.clone()
    other[:, 3:] += 1.0
    assert torch.equal(loss._decoded(other, whole.sentence)[:, :3], states[:, :3])
    assert not torch.allclose(loss._decoded(whole.embeddings, whole.sentence + 1.0), states, atol=1e-2)
    view = encoded(encoder)
    loss(view, view).backward()
    assert {name.partition(".")[0] for name, _ in loss.named_parameters()} == {"cross", "predict"}
    assert all(bool(p.grad.any()) for p in loss.cross[0].output.parameters())
    assert bool(encoder.backbone.encoder.layer[0].attention.self.key.weight.grad.any())


@pytest.mark.slow
def test_gradient_is_exact(tmp_path):
    encoder, loss = parts(tmp_path)
    damaged, whole = encoded(encoder, 2, 1), encoded(encoder, 2, 2)
    inputs = [part.detach().requires_grad_() for part in (damaged.sentence, whole.embeddings)]

    def value(sentence, embeddings):
        return loss(replace(damaged, sentence=sentence), replace(whole, embeddings=embeddings))

    assert torch.autograd.gradcheck(value, inputs, fast_mode=True)


def test_dropout_follows_the_loss(tmp_path):
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)))
    loss = Reconstruction(encoder, initial="fresh").eval()
    view = encoded(encoder)
    assert torch.equal(loss(view, view), loss(view, view))
    assert encoder.backbone.encoder.training
    loss.train()
    assert not torch.equal(loss(view, view), loss(view, view))


@pytest.mark.slow
def test_what_does_not_fit_is_refused(tmp_path):
    with refuses("losses.no_transformer_blocks", "FakeEncoder"):
        Reconstruction(FakeEncoder(4))
    with refuses("losses.no_transformer_blocks", "TransformerEncoder"):
        Reconstruction(TransformerEncoder(str(tiny_albert(tmp_path))))
    encoder, loss = parts(tmp_path)
    view = encoded(encoder)
    with refuses("losses.width_mismatch", 8, 16):
        loss(replace(view, sentence=view.sentence[:, :8]), view)
