import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from registry.augmenters.mask_tokens import MaskTokens
from registry.encoders.transformer import TransformerEncoder
from registry.errors import MissingError
from registry.losses import masked_language_modeling as module
from registry.losses.masked_language_modeling import LanguageHead, MaskedLanguageModeling
from registry.resources.models import load_language_model
from registry.tokens import Encoded, Tokens
from tests.registry.losses.decoder import token_cost
from tests.support.errors import refuses
from tests.support.fakes import FakeEncoder
from tests.support.tiny import (
    sentences,
    tiny_albert,
    tiny_bert,
    tiny_gpt2,
    tiny_llama,
    tiny_roberta,
    with_prediction_head,
)
from tests.support.versions import needs


def encoder_of(folder, **params):
    return TransformerEncoder(str(folder), **{"dropout": 0.0, **params})


def hidden_view(encoder, rate=0.5, count=3, seed=0):
    """Return a view with some tokens replaced by [MASK], encoded."""
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(sentences(count, seed), 32))
    generator = torch.Generator().manual_seed(seed)
    special = torch.isin(tokens.ids, torch.tensor(sorted(encoder.vocabulary.specials)))
    chosen = (torch.rand(tokens.ids.shape, generator=generator) < rate) & (tokens.mask == 1) & ~special
    targets = torch.where(chosen, tokens.ids, -100)
    tokens = replace(tokens, ids=tokens.ids.masked_fill(chosen, encoder.vocabulary.mask), targets=targets)
    return encoder.encode(tokens, encoder.embed(tokens))


def test_value_by_hand():
    # h = (3, −1), W = 1: gelu gives a larger and a smaller number, the norm makes them 1 and −1. Words (1, 0), (0, 1),
    # (0, 0) score 1, −1, 0; the second place has word 2 hidden: log(e + 1/e + 1) − 1 and log(e + 1/e + 1) − 0.
    head = LanguageHead(2, (3, 2), "gelu", 0.0)
    with torch.no_grad():
        head.dense.weight.copy_(torch.eye(2))
    states = torch.tensor([[3.0, -1.0], [3.0, -1.0]])
    scores = head(states, torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    assert scores.tolist() == [pytest.approx([1.0, -1.0, 0.0], abs=1e-5)] * 2
    loss = bare(head, torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    view = view_of(states.unsqueeze(0), torch.tensor([[0, 2]]))
    every = math.log(math.e + 1 / math.e + 1)
    assert loss(view).item() == pytest.approx(((every - 1) + every) / 2, abs=1e-5)


def bare(head, words):
    """The loss around a head and a matrix of words, without an encoder."""
    loss = MaskedLanguageModeling.__new__(MaskedLanguageModeling)
    nn.Module.__init__(loss)
    embedding = nn.Embedding.from_pretrained(words)
    loss._words, loss.decoder, loss.head, loss.shift = (embedding,), None, head, 0
    return loss


def view_of(hidden, targets):
    ids = targets.clamp(min=0)
    tokens = Tokens(ids, torch.ones_like(ids), torch.zeros_like(ids), torch.zeros_like(ids), targets=targets)
    return Encoded(hidden.mean(dim=1), hidden, hidden, tokens)


@pytest.mark.parametrize(("rows", "rate"), [(1, 0.3), (2, 1.0), (5, 0.3)])
def test_matches_the_equation(tmp_path, rows, rate):
    encoder = encoder_of(tiny_bert(tmp_path)).eval()
    loss = MaskedLanguageModeling(encoder, initial="fresh")
    nn.init.normal_(loss.head.bias)
    view, words = hidden_view(encoder, rate, rows, seed=rows), encoder.backbone.embeddings.word_embeddings.weight
    places = (view.tokens.targets >= 0).nonzero().tolist()
    costs = [token_cost(loss.head, words, view.hidden[r, p], int(view.tokens.targets[r, p])) for r, p in places]
    assert loss(view).item() == pytest.approx(sum(costs) / len(costs), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("make", [tiny_bert, tiny_roberta])
def test_is_transformers_own_loss_with_the_checkpoints_head(tmp_path, make):
    folder = with_prediction_head(make(tmp_path))
    encoder = encoder_of(folder).eval()
    view = hidden_view(encoder)
    loss = MaskedLanguageModeling(encoder, initial="checkpoint")
    assert torch.equal(loss.head.dense.weight, MaskedLanguageModeling(encoder).head.dense.weight)
    assert not torch.equal(loss.head.dense.weight, MaskedLanguageModeling(encoder, initial="fresh").head.dense.weight)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    expected = model(input_ids=view.tokens.ids, attention_mask=view.tokens.mask, labels=view.tokens.targets).loss
    assert loss(view).item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_head_narrows_to_the_word_width_and_the_first_token_has_no_state_before_it(tmp_path):
    encoder = encoder_of(tiny_albert(tmp_path)).eval()
    loss = MaskedLanguageModeling(encoder, initial="fresh")
    assert loss.head.dense.weight.shape == (8, 16)
    assert torch.isfinite(loss(hidden_view(encoder)))
    loss = bare(module.LinearHead(), torch.eye(3))
    loss.shift = 1
    states = torch.tensor([[[9.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    # The third token, hidden, is predicted from the second state; the first, hidden too, from nothing.
    view = view_of(states, torch.tensor([[2, -100, 1]]))
    assert loss(view).item() == pytest.approx(math.log(2 + math.e) - 1, abs=1e-6)


@pytest.mark.slow
def test_words_are_tied_and_stay_the_encoders(tmp_path):
    encoder = encoder_of(tiny_bert(tmp_path))
    loss = MaskedLanguageModeling(encoder)
    words = encoder.backbone.embeddings.word_embeddings.weight
    assert all(parameter is not words for parameter in loss.parameters())
    assert not any("words" in key for key in loss.state_dict())
    # Words that occur nowhere get gradient too: from the decoder.
    loss(hidden_view(encoder)).backward()
    assert words.grad.abs().sum(dim=1).gt(0).all()
    assert all(parameter.grad is not None for parameter in loss.parameters())
    encoder.eval()
    tied, untied = (MaskedLanguageModeling(encoder, initial="fresh", tied=t) for t in (True, False))
    untied.head = tied.head
    view = hidden_view(encoder)
    assert tied(view).item() == untied(view).item()
    with torch.no_grad():
        words.mul_(2)
    assert tied(view).item() != untied(view).item()
    assert any(parameter is untied.decoder for parameter in untied.parameters())


@pytest.mark.slow
def test_nothing_hidden_costs_nothing_and_has_no_gradient(tmp_path):
    encoder = encoder_of(tiny_bert(tmp_path))
    view = hidden_view(encoder, rate=0.0)
    value = MaskedLanguageModeling(encoder)(view)
    value.backward()
    assert value.item() == 0.0
    gradients = [p.grad for p in encoder.parameters() if p.grad is not None]
    assert gradients
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.slow
def test_several_views_are_one_longer_view(tmp_path):
    encoder = encoder_of(tiny_bert(tmp_path)).eval()
    loss = MaskedLanguageModeling(encoder)
    views = [hidden_view(encoder, rate, seed=seed) for seed, rate in enumerate((0.3, 0.8, 0.5))]
    counts = [int((view.tokens.targets >= 0).sum()) for view in views]
    for n in (2, 3):
        expected = sum(count * loss(view) for count, view in zip(counts[:n], views[:n], strict=True)) / sum(counts[:n])
        assert loss(views[0], tuple(views[1:n])).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.slow
def test_devices_with_unlike_counts_average_to_the_whole_batch(tmp_path, monkeypatch):
    encoder = encoder_of(tiny_bert(tmp_path)).eval()
    loss = MaskedLanguageModeling(encoder)
    one, other = hidden_view(encoder, 0.2, seed=1), hidden_view(encoder, 0.9, seed=2)
    whole = loss(one, (other,)).item()
    counts = [int((view.tokens.targets >= 0).sum()) for view in (one, other)]
    assert counts[0] != counts[1]
    monkeypatch.setattr(module, "world_size", lambda: 2)
    monkeypatch.setattr(module, "sum_devices", lambda _: torch.tensor(sum(counts)))
    assert (loss(one) + loss(other)).item() / 2 == pytest.approx(whole, rel=1e-5)


@pytest.mark.slow
def test_a_checkpoint_without_head_or_weights_is_said_or_refused(tmp_path):
    encoder = encoder_of(tiny_bert(tmp_path))
    loss = MaskedLanguageModeling(encoder)
    assert "has no prediction head" in loss.notices()[0]
    assert loss.notices() == []
    assert MaskedLanguageModeling(encoder, initial="fresh").notices() == []
    with refuses("losses.no_prediction_head", 'initial = "checkpoint"'):
        MaskedLanguageModeling(encoder, initial="checkpoint")
    from safetensors.torch import load_file, save_file

    folder = tiny_bert(tmp_path)
    file = folder / "model.safetensors"
    weights = load_file(file)
    lost = next(key for key in weights if "layer.0" in key)
    save_file({key: value for key, value in weights.items() if key != lost}, file, {"format": "pt"})
    with pytest.raises(MissingError, match=r"layer.0"):
        load_language_model(str(folder))


@pytest.mark.slow
def test_a_view_that_hides_nothing_and_an_encoder_without_words_are_refused(tmp_path):
    encoder = encoder_of(tiny_bert(tmp_path))
    view = hidden_view(encoder)
    with refuses("losses.no_masked_tokens", "mask_tokens"):
        MaskedLanguageModeling(encoder)(replace(view, tokens=replace(view.tokens, targets=None)))
    with refuses("losses.no_word_embeddings", "FakeEncoder"):
        MaskedLanguageModeling(FakeEncoder())


def masked_decoder_view(encoder, rate=0.4):
    """Return a view with some tokens behind "_", which the decoder encodes."""
    augmenter = MaskTokens(rate=rate, token="_")
    augmenter.bind(encoder)
    torch.manual_seed(0)
    tokens = augmenter.on_tokens(encoder.vocabulary.pad(encoder.vocabulary.ids(sentences(6), 32)), None)
    assert (tokens.ids == encoder.vocabulary.id_of("_")).any()
    return encoder.encode(tokens, encoder.embed(tokens))


def causal_model(folder, tied):
    """Save a random decoder with its prediction head, whose matrix is its input embedding or another one."""
    model = AutoModelForCausalLM.from_pretrained(folder, tie_word_embeddings=tied)
    torch.manual_seed(5)
    if not tied:
        nn.init.normal_(model.get_output_embeddings().weight)
    model.save_pretrained(folder)  # over the file from which the weights are mapped into memory
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "tied", "attention"),
    [(tiny_llama, False, "bidirectional"), (tiny_llama, True, "causal"), (tiny_gpt2, True, "bidirectional")],
)
def test_shift_1_equals_the_next_token_loss_at_masked_places(tmp_path, make, tied, attention):
    if attention == "bidirectional":
        needs("bidirectional attention of decoders")
    folder = make(tmp_path)
    model = causal_model(folder, tied)
    encoder = TransformerEncoder(str(folder), "mean", attention=attention).eval()
    view = masked_decoder_view(encoder)
    loss = MaskedLanguageModeling(encoder, initial="checkpoint", shift=1)
    assert (loss.decoder is None) is tied
    mask = view.tokens.mask
    if attention == "bidirectional":  # padding alone is hidden
        hidden = mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1) == 0
        mask = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)
    expected = model(input_ids=view.tokens.ids, attention_mask=mask, labels=view.tokens.targets).loss
    assert loss(view).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.slow
def test_a_decoder_without_head_predicts_with_its_words(tmp_path):
    encoder = TransformerEncoder(str(tiny_llama(tmp_path)), "mean")
    loss = MaskedLanguageModeling(encoder, shift=1)
    assert loss.decoder is None
    assert "has no prediction head" in loss.notices()[0]
    loss(masked_decoder_view(encoder)).backward()
    assert encoder.backbone.get_input_embeddings().weight.grad.abs().sum(dim=1).gt(0).all()
    with refuses("losses.no_prediction_head", 'initial = "checkpoint"'):
        MaskedLanguageModeling(encoder, initial="checkpoint", shift=1)
