import json
from functools import partial

import pytest
import torch

from registry.encoders.convolutional import ConvolutionalEncoder
from registry.encoders.saved import open_encoder
from tests.registry.encoders import vectors
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert

TEXTS = [*sentences(), "dog", " ".join(["the cat sees a dog"] * 2)]


def build(folder, make=tiny_bert, **values):
    torch.manual_seed(3)
    return ConvolutionalEncoder(model=str(make(folder)), **{"windows": [1, 3, 5], "channels": 4, **values})


tokens_of = partial(vectors.tokens_of, texts=TEXTS, length=12)


def features_of(encoder, states):
    """The features of one sentence, window by window: states (L, W), zero beyond its edges."""
    convolutions = encoder.convolutions
    edge = max(convolutions.windows) // 2
    around, rows = torch.nn.functional.pad(states, (0, 0, edge, edge)), []
    for place in range(len(states)):
        row = []
        for conv, size in zip(convolutions.convs, convolutions.windows, strict=True):
            window = around[place + edge - size // 2 : place + edge + size // 2 + 1]
            row += [(window.T * weight).sum() + bias for weight, bias in zip(conv.weight, conv.bias, strict=True)]
        rows.append(torch.stack(row))
    return torch.stack(rows).clamp(min=0) if convolutions.activation == "relu" else torch.stack(rows)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "none"])
def test_features_and_their_mean_by_hand(tmp_path, activation):
    encoder = build(tmp_path, activation=activation, dropout=0.0)
    tokens = tokens_of(encoder)
    made = encoder.encode(tokens, encoder.embed(tokens))
    whole = encoder.backbone(tokens.ids, attention_mask=tokens.mask).last_hidden_state
    assert encoder.dim == 12
    for row, length in enumerate(tokens.mask.sum(1).tolist()):
        expected = features_of(encoder, whole[row, :length])
        torch.testing.assert_close(made.hidden[row, :length], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(made.sentence[row], expected.mean(0), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(encoder.encode_for_eval(tokens)[row], expected.mean(0), atol=1e-5, rtol=1e-5)


def test_features_are_made_although_no_loss_reads_them(tmp_path):
    encoder = build(tmp_path, pooling="cls", dropout=0.0)
    encoder.expect(hidden_read=False, mini_batch_size=None)
    tokens = tokens_of(encoder)
    made = encoder.encode(tokens, encoder.embed(tokens))
    assert made.hidden.shape == (*tokens.ids.shape, 12)
    assert torch.equal(made.sentence, made.hidden[:, 0])


@pytest.mark.slow
def test_the_layout_of_an_export_and_windows_without_a_middle(tmp_path):
    build(tmp_path).export(tmp_path / "model", 12)
    listed = [
        (m["path"], m["type"].rpartition(".")[2]) for m in json.loads((tmp_path / "model/modules.json").read_text())
    ]
    assert listed == [("", "Transformer"), ("1_CNN", "CNN"), ("2_ReLU", "Dense"), ("3_Pooling", "Pooling")]
    assert "batch_size=1" in (tmp_path / "model" / "README.md").read_text()
    with refuses("encoders.unsupported_pooling", "last2", "cls or mean"):
        open_encoder(str(tmp_path / "model"), "last2")
    with refuses("encoders.even_window", "windows = [1, 2]", "3 instead of 2"):
        build(tmp_path, windows=[1, 2])


@pytest.mark.parametrize(
    "given", [{"layer": 1}, {"template": "{text} is here"}, {"template": ["a {text}", "b {text}"]}]
)
def test_what_an_export_cannot_describe_is_refused(tmp_path, given):
    with refuses("encoders.no_convolutions", "remove template, layer"):
        build(tmp_path, **given)
