from dataclasses import replace

import pytest
import torch
from transformers import BertModel

from cse_cli.training.checkpoint import method_state
from cse_cli.training.method import BoundView, Method, Term
from registry import LOSSES
from registry.encoders.transformer import TransformerEncoder
from registry.losses.side_language_model import SideLanguageModel
from tests.registry.encoders.vectors import encoded
from tests.registry.losses.decoder import token_cost
from tests.support.errors import refuses
from tests.support.fakes import FakeEncoder
from tests.support.tiny import sentences, tiny_albert, tiny_bert, tiny_electra, with_prediction_head

pytestmark = pytest.mark.slow

EVERY = {"masking": 1.0, "mask_share": 1.0, "random_share": 0.0}
"""Every word becomes [MASK]: chance plays no part."""


def parts(folder, make=tiny_bert, dropout=0.0, **params):
    encoder = TransformerEncoder(str(make(folder)), dropout=dropout)
    settings = {"frozen_layers": 1, "trained_layers": 1, **EVERY, **params}
    return encoder, SideLanguageModel(encoder, **settings).eval()


def literal(folder, loss, views):
    """Row by row without padding, by transformers' own embedding layer and blocks, then number by number."""
    model = BertModel.from_pretrained(folder).to(loss.trained.dtype).eval()
    block = loss.trained.encoder.layer[0]
    total, count = 0.0, 0
    for view in views:
        for row in range(view.tokens.rows):
            length = int(view.tokens.mask[row].sum())
            ids = view.tokens.ids[row : row + 1, :length]
            special = (ids == 2) | (ids == 3)
            states = model.encoder.layer[0](model.embeddings(input_ids=torch.where(special, ids, 4))).clone()
            states[0, 0] = view.before_heads[row]
            made = block(states)[0]
            for place in (~special[0]).nonzero().flatten().tolist():
                total += token_cost(loss.restore.head, loss.restore.decoder, made[place], int(ids[0, place]))
                count += 1
    return total / count


@pytest.mark.parametrize("count", [1, 2, 4])
def test_matches_the_literal_version(tmp_path, count):
    encoder, loss = parts(tmp_path)
    encoder.double()
    loss.double()
    views = encoded(encoder, count, 1), encoded(encoder, count, 2)
    assert loss(*views).item() == pytest.approx(literal(tmp_path / "tiny", loss, views), abs=1e-9)


def test_no_frozen_layer_is_the_embedding_layer(tmp_path):
    encoder, loss = parts(tmp_path, frozen_layers=0)
    tokens = encoded(encoder).tokens
    real = tokens.mask == 1
    assert torch.equal(loss.frozen(tokens)[real], encoder.embed(tokens)[real])


def test_the_frozen_layers_stay_as_they_were_and_without_dropout(tmp_path):
    encoder, loss = parts(tmp_path)
    tokens = encoded(encoder).tokens
    before = loss.frozen(tokens)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(1.0)
    loss.train()
    assert torch.equal(loss.frozen(tokens), before)
    assert loss.trained.training


@pytest.mark.parametrize("drops", [True, False])
def test_the_frozen_layers_drop_out_in_the_large_model(tmp_path, drops):
    """IN7: transformers' own layers in training mode, or in evaluation mode with `--mlm_eval`."""
    encoder, loss = parts(tmp_path, dropout=0.2, frozen_dropout=drops)
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(sentences(1, 3), 32))
    config = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    model = BertModel.from_pretrained(tmp_path / "tiny", **config).train(drops)
    torch.manual_seed(7)
    expected = model.encoder.layer[0](model.embeddings(input_ids=tokens.ids))
    torch.manual_seed(7)
    found = loss.train().frozen(tokens)
    assert torch.allclose(found, expected, atol=1e-6)
    assert not found.requires_grad
    quiet = loss.eval().frozen(tokens)
    assert torch.allclose(quiet, found) != drops


def test_half_of_the_words_are_hidden_anew_in_each_copy(tmp_path):
    encoder, loss = parts(tmp_path, masking=0.5)
    seen = []
    loss.frozen.register_forward_pre_hook(lambda _, given: seen.append(given[0].ids))
    torch.manual_seed(0)
    view = encoded(encoder, 8)
    loss(view, view)
    first, second = (seen[0].chunk(2)[i] == encoder.vocabulary.mask for i in (0, 1))
    assert first.any()
    assert second.any()
    assert not torch.equal(first, second)
    assert not (first | second)[:, 0].any()


def test_gradient_reaches_the_encoder_only_by_the_embedding(tmp_path):
    encoder, loss = parts(tmp_path)
    view = encoded(encoder)
    cut = replace(view, sentence=view.sentence.detach())
    loss(cut, cut).backward()
    assert all(parameter.grad is None for parameter in encoder.parameters())
    assert all(p.grad is None and not p.requires_grad for p in loss.frozen.parameters())
    assert all(p.grad is not None and bool(p.grad.any()) for p in loss.trained.encoder.layer[0].output.parameters())
    loss(view, view).backward()
    assert bool(encoder.backbone.embeddings.word_embeddings.weight.grad.any())


def test_fresh_layers_are_not_the_encoders_and_heads_are_those_of_the_checkpoint(tmp_path):
    encoder, loss = parts(tmp_path, trained_layers=3)
    layers = loss.trained.encoder.layer
    assert len(layers) == 3
    weights = [layer.intermediate.dense.weight for layer in (*layers, encoder.backbone.encoder.layer[0])]
    assert all(not torch.equal(a, b) for i, a in enumerate(weights) for b in weights[:i])
    assert float(layers[0].intermediate.dense.weight.detach().std()) == pytest.approx(0.02, rel=0.2)
    encoder, loss = parts(tmp_path)
    assert "no prediction head" in loss.notices()[0]
    assert loss.notices() == []
    with_prediction_head(tmp_path / "tiny")
    assert SideLanguageModel(encoder, frozen_layers=1).notices() == []


def test_checkpoints_leave_the_frozen_layers_out(tmp_path):
    encoder, loss = parts(tmp_path)
    views = {name: BoundView("online", []) for name in ("anchor", "positive")}
    term = Term(LOSSES["side_language_model"], 1e-5, {name: name for name in views}, queue=False)
    state = method_state(Method({"online": encoder}, views, None, {"side": loss}, {"side": term}))
    assert not any("frozen" in key for key in state)
    assert any(key.startswith("losses.side.trained.encoder.layer.0") for key in state)


def test_other_architectures_work_and_what_does_not_fit_is_refused(tmp_path):
    encoder, loss = parts(tmp_path, tiny_electra)
    assert torch.isfinite(loss(encoded(encoder), encoded(encoder)))
    with refuses("losses.too_few_layers", "0 transformer layers"):
        parts(tmp_path, tiny_albert)
    with refuses("losses.too_few_layers", "frozen_layers = 3", 2):
        parts(tmp_path, frozen_layers=3)
    with refuses("losses.too_few_layers", "FakeEncoder"):
        SideLanguageModel(FakeEncoder(4))
    encoder, loss = parts(tmp_path)
    view = replace(encoded(encoder), sentence=torch.zeros(3, 8))
    with refuses("losses.width_mismatch", 8, 16):
        loss(view, view)
