import pytest
import torch
from transformers import AutoModel

from cse_cli.training.checkpoint import method_state
from cse_cli.training.method import BoundView, Method, Term
from registry import LOSSES
from registry.encoders.frozen_copy import FrozenCopy
from registry.encoders.transformer import TransformerEncoder
from registry.heads.mlp import Mlp
from tests.registry.encoders.vectors import tokens_of
from tests.support.errors import refuses
from tests.support.fakes import FakeEncoder
from tests.support.tiny import tiny_bert

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_bert(tmp_path_factory.mktemp("models"), layers=3))


def online_of(model, **options):
    encoder = TransformerEncoder(model, **options)
    encoder.attach({"mlp": Mlp()})
    return encoder


def encode(encoder, tokens):
    return encoder.encode(tokens, encoder.embed(tokens))


@torch.no_grad()
def of_transformers(model, tokens, layer, pooling):
    """What transformers itself says of a layer, averaged sentence by sentence."""
    network = AutoModel.from_pretrained(model).eval()
    states = network(tokens.ids, tokens.mask, output_hidden_states=True).hidden_states[layer]
    lengths = tokens.mask.sum(1).tolist()
    return torch.stack([s[0] if pooling == "cls" else s[:n].mean(0) for s, n in zip(states, lengths, strict=True)])


@pytest.mark.parametrize(("pooling", "layers"), [("mean", None), ("cls", [3]), ("mean", [2, 0])])
def test_layers_are_those_of_transformers(model, pooling, layers):
    frozen = FrozenCopy(online_of(model), layers, pooling).train()
    tokens = tokens_of(frozen)
    made = encode(frozen, tokens)
    wanted = range(4) if layers is None else layers
    expected = torch.stack([of_transformers(model, tokens, layer, pooling) for layer in wanted], dim=1)
    assert made.layers.shape == (8, len(wanted), 16)
    assert torch.allclose(made.layers, expected, atol=1e-6)
    assert torch.allclose(made.sentence, of_transformers(model, tokens, 3, pooling), atol=1e-6)
    assert torch.allclose(frozen.encode_for_eval(tokens), made.sentence, atol=1e-6)


def test_it_stays_as_it_was_and_lets_no_gradient_through(model):
    online = online_of(model)
    frozen = FrozenCopy(online)
    tokens = tokens_of(frozen)
    before = encode(frozen, tokens)
    with torch.no_grad():
        for parameter in online.parameters():
            parameter += 0.5
    after = encode(frozen, tokens)
    assert torch.equal(after.layers, before.layers)
    assert not after.layers.requires_grad
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert not any(name.startswith("target.heads") for name, _ in frozen.named_parameters())


@pytest.mark.parametrize(("dropout", "drops"), [(False, False), (True, True)])
def test_dropout_only_where_it_is_wanted(model, dropout, drops):
    frozen = FrozenCopy(online_of(model), dropout=dropout).train()
    tokens = tokens_of(frozen)
    assert torch.equal(encode(frozen, tokens).layers, encode(frozen, tokens).layers) is not drops
    assert torch.equal(frozen.encode_for_eval(tokens), frozen.encode_for_eval(tokens))
    frozen.eval()
    assert torch.equal(encode(frozen, tokens).layers, encode(frozen, tokens).layers)


def test_checkpoints_leave_it_out(model):
    online = online_of(model)
    entry = LOSSES["self_guided"]
    term = Term(entry, 1.0, {"anchor": "anchor", "frozen": "frozen"}, True)
    views = {"anchor": BoundView("online", []), "frozen": BoundView("frozen", [])}
    encoders = {"online": online, "frozen": FrozenCopy(online)}
    method = Method(encoders, views, None, {"self_guided": entry.build({}, encoders)}, {"self_guided": term})
    assert {name.split(".")[1] for name in method_state(method)} == {"online"}


def test_layers_that_are_not_there_are_refused(model):
    for layers in ([4], [-1], []):
        with refuses("encoders.unknown_layer", f"layers = {layers}", "0 to 3"):
            FrozenCopy(online_of(model), layers)
    with refuses("encoders.no_layers", "FakeEncoder"):
        FrozenCopy(FakeEncoder())
