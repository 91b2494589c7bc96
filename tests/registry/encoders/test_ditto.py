import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from registry.encoders.ditto import DittoEncoder, diagonal_attention
from registry.encoders.transformer import TransformerEncoder
from registry.tokens import Sample
from tests.registry.encoders.vectors import encoding
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_albert, tiny_bert, tiny_roberta

TEXTS = ["a man sings", "the dog runs.", "the big red cat sleeps under a small tree", "!", *sentences(4)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    found = {"bert": tiny_bert(folder, layers=3), "roberta": tiny_roberta(folder)}
    for model in found.values():
        network = AutoModel.from_pretrained(model)
        for block in network.encoder.layer:
            block.attention.self.query.weight.data *= 200  # small random weights attend to all tokens alike
        network.save_pretrained(model)
    return {name: str(model) for name, model in found.items()}


def published(model, layer, head, pooler):
    """SpokenNLP @30fc9df, ditto/evaluation_ditto.py:120-159, with transformers' own attention weights."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModel.from_pretrained(model, attn_implementation="eager").double().eval()
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        outputs = network(**batch, output_hidden_states=True, output_attentions=True)
    diagonal = torch.diagonal(outputs.attentions[layer][:, head, :, :], 0, dim1=1, dim2=2)
    states = outputs.last_hidden_state
    if pooler == "att_first_last":
        states = (outputs.hidden_states[0] + outputs.hidden_states[-1]) / 2.0
    return (states * batch["attention_mask"].unsqueeze(-1) * diagonal.unsqueeze(-1)).sum(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pooling", "pooler", "layer", "head"),
    [
        ("bert", "first_last", "att_first_last", 0, 1),
        ("bert", "mean", "att_last", 1, 0),
        ("roberta", "first_last", "att_first_last", 1, 0),
    ],
)
def test_directions_are_those_of_the_authors_code(models, name, pooling, pooler, layer, head):
    # In double precision, in which the order of sums, different on each processor, does not matter.
    encoder = DittoEncoder(layer, head, pooling, model=models[name]).double()
    expected = torch.nn.functional.normalize(published(models[name], layer, head, pooler)).float()
    found = encoding(encoder, 40)(TEXTS)
    torch.testing.assert_close(torch.nn.functional.normalize(found), expected, rtol=1e-5, atol=1e-6)
    alone = torch.cat([encoding(encoder, 40)([text]) for text in TEXTS])  # without padding
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-6)
    plain = encoding(TransformerEncoder(models[name], pooling=pooling).double(), 40)(TEXTS)
    assert (found - plain).norm() > 0.005 * plain.norm()


def test_weights_by_hand():
    class Attention:
        attention_head_size = 1
        query = staticmethod(lambda states: states * torch.tensor([9.0, 1.0]))
        key = staticmethod(lambda states: states)

    # Head 1: scores (0, 0) for the first token; (0, ln 3 · ln 3 = x) for the second; the third is padding.
    log = torch.log(torch.tensor(3.0)).item()
    states = torch.tensor([[[5.0, 0.0], [5.0, log**0.5], [5.0, 7.0]]])
    weights = diagonal_attention(Attention, states, torch.tensor([[1, 1, 0]]), head=1)
    torch.testing.assert_close(weights, torch.tensor([[0.5, 0.75, 0.0]]))


@pytest.mark.slow
def test_training_is_the_same_average_with_a_gradient_through_the_weights(models):
    encoder = DittoEncoder(1, 1, "mean", model=models["bert"], dropout=0.0)
    tokens = encoder.vocabulary.tokens([Sample(text) for text in TEXTS], 40)
    encoded = encoder.encode(tokens, encoder.embed(tokens))
    torch.testing.assert_close(encoded.sentence, encoder.encode_for_eval(tokens), rtol=1e-5, atol=1e-6)
    # The state of the last block does not depend on its own queries of tokens other than through the weights.
    encoded.sentence.sum().backward()
    query = encoder.backbone.encoder.layer[1].attention.self.query.weight.grad
    assert query[8:].abs().sum() > 0


@pytest.mark.slow
def test_what_a_model_lacks_is_refused(models, tmp_path):
    with refuses("encoders.unknown_block", "block = 3", "3 blocks of 2"):
        DittoEncoder(3, 0, model=models["bert"])
    with refuses("encoders.unknown_block", "head = 2"):
        DittoEncoder(0, 2, model=models["bert"])
    with refuses("encoders.layer_with_average", "layer = 1", "transformer"):
        DittoEncoder(model=models["bert"], pooling="mean", layer=1)
    with refuses("encoders.unsupported_architecture", "Albert"):
        DittoEncoder(model=str(tiny_albert(tmp_path)))
    with refuses("encoder.no_attentions"):
        DittoEncoder(model=models["bert"]).keep_attentions([0])
