"""Every family of architectures gives transformers' own vectors and gradients, packed or padded."""

import pytest
import torch
from torch.nn import functional as F

from registry.encoders import architectures
from registry.encoders.transformer import TransformerEncoder
from registry.resources.models import load_model
from tests.registry.encoders.vectors import slow_pool, tokens_of
from tests.support.chosen import these
from tests.support.errors import refuses
from tests.support.families import DECODERS, FAMILIES, tiny
from tests.support.tiny import sentences
from tests.support.versions import needs

pytestmark = pytest.mark.slow

TEXTS = sentences()
EQUAL = ["a cat sees a dog", "the man eats a tree"]
OF_TOKENS = ["mean", "last", "weighted_mean", "cls"]
OF_LAYERS = ["first_last", "last2"]
MASK_TEMPLATE = "the cat {text} is {mask} ."
SOME = these(["bert", "deberta-v2", "modernbert", "t5", "llama"], FAMILIES)


def own_states(folder, tokens):
    """The hidden states of transformers' own forward pass."""
    with torch.no_grad():
        made = load_model(str(folder))(
            input_ids=tokens.ids, attention_mask=tokens.mask, output_hidden_states=True, return_dict=True
        )
    return (*made.hidden_states[:-1], made.last_hidden_state)


@pytest.mark.parametrize("family", SOME)
def test_every_pooling_gives_the_vectors_of_transformers(tmp_path, family):
    folder = tiny(tmp_path, family)
    of_tokens = [one for one in OF_TOKENS if one != "cls" or family not in DECODERS]  # the first token sees no other
    padded, equal = (tokens_of(TransformerEncoder(str(folder), "mean"), texts) for texts in (TEXTS, EQUAL))
    assert equal.mask.all()
    assert not padded.mask.all()
    given = [(tokens, own_states(folder, tokens)) for tokens in (padded, equal)]
    for pooling in (*of_tokens, *OF_LAYERS):
        encoder = TransformerEncoder(str(folder), pooling)
        for tokens, states in given:
            if pooling in OF_LAYERS:
                pair = (states[0], states[-1]) if pooling == "first_last" else states[-2:]
                expected = slow_pool("mean", sum(pair) / 2, tokens.mask)
            else:
                expected = slow_pool(pooling, states[-1], tokens.mask)
            torch.testing.assert_close(encoder.encode_for_eval(tokens), expected, rtol=0, atol=1e-5)
            encoder.eval()
            trained = encoder.encode(tokens, encoder.embed(tokens)).sentence
            torch.testing.assert_close(trained, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", these(["modernbert", "deberta-v2"], [f for f in FAMILIES if f not in DECODERS]))
def test_the_mask_of_a_template_is_read(tmp_path, family):
    folder = tiny(tmp_path, family)
    encoder = TransformerEncoder(str(folder), "mask", template=MASK_TEMPLATE, denoise="positions")
    tokens = tokens_of(encoder)
    places = (tokens.ids == encoder.vocabulary.mask).int().argmax(1)
    expected = own_states(folder, tokens)[-1][torch.arange(len(places)), places]
    torch.testing.assert_close(encoder.encode_for_eval(tokens), expected, rtol=0, atol=1e-5)
    encoder.eval()
    assert (
        encoder.encode(tokens, encoder.embed(tokens)).sentence - expected
    ).abs().max() > 1e-3  # without the template


def contrast(vectors):
    """InfoNCE of two halves of a batch."""
    first, second = F.normalize(vectors, dim=-1).chunk(2)
    return F.cross_entropy(first @ second.T / 0.05, torch.arange(len(first)))


@pytest.mark.parametrize("family", SOME)
def test_a_step_has_the_gradient_of_a_plain_loop(tmp_path, family):
    folder = tiny(tmp_path, family)
    encoder = TransformerEncoder(str(folder), "mean", dropout=0.0)
    tokens = tokens_of(encoder)
    assert not tokens.mask.all()
    contrast(encoder.encode(tokens, encoder.embed(tokens)).sentence).backward()
    model = load_model(str(folder))
    states = model(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
    contrast((states * tokens.mask[..., None]).sum(1) / tokens.mask.sum(1, keepdim=True)).backward()
    expected = {name: weight.grad for name, weight in model.named_parameters()}
    for name, weight in encoder.backbone.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("family", these(["modernbert", "gemma2"], ["distilbert", "modernbert", "eurobert", *DECODERS]))
def test_packed_rows_are_exact_where_they_are_used(tmp_path, family):
    if family == "modernbert":
        needs("attention weights of ModernBERT")
    packs = architectures.runs_packed(TransformerEncoder(str(tiny(tmp_path, family)), "mean").backbone)
    assert packs is (family != "gemma2")  # whose scores have a limit


@pytest.mark.parametrize("family", ["modernbert", "llama", "distilbert"])
def test_heads_and_attention_weights_of_other_architectures(tmp_path, family):
    folder = str(tiny(tmp_path, family))
    encoder = TransformerEncoder(folder, "mean", drophead=0.5)
    tokens = tokens_of(encoder)
    first, second = (encoder.encode(tokens, encoder.embed(tokens)).sentence for _ in range(2))
    assert (first - second).abs().max() > 1e-3
    quiet = TransformerEncoder(folder, "mean").eval()
    if family == "modernbert":
        needs("attention weights of ModernBERT")
    quiet.keep_attentions([1])
    made = quiet.encode(tokens, quiet.embed(tokens))
    weights = made.attentions[1]
    assert weights.shape == (tokens.rows, quiet.backbone.config.num_attention_heads, tokens.length, tokens.length)
    real = tokens.mask.bool()
    torch.testing.assert_close(weights.sum(-1).transpose(1, 2)[real], torch.ones(int(real.sum()), weights.shape[1]))
    unseen = real[:, None, :, None] & ~real[:, None, None, :]  # queries × keys
    assert float(weights.masked_select(unseen).abs().max()) == 0
    torch.testing.assert_close(made.sentence, quiet.encode_for_eval(tokens), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "values", "code", "named"),
    [
        ("albert", {"drophead": 0.1}, "encoders.unsupported_architecture", "drophead"),
        ("llama", {"dropout": 0.1, "dropout_scope": "hidden"}, "encoders.no_such_dropout", "dropout_scope"),
        ("t5", {"dropout": 0.1, "dropout_scope": "attention"}, "encoders.no_such_dropout", "dropout_scope"),
        ("llama", {"pooling": "cls"}, "encoders.blind_pooling", "pooling"),
        ("bert", {"attention": "causal"}, "encoders.unsupported_attention", "attention"),
        ("llama", {"pooling": "mask", "template": "{text} {mask}"}, "vocabulary.no_mask", "mask token"),
    ],
)
def test_what_a_family_lacks_is_refused_by_name(tmp_path, family, values, code, named):
    with refuses(code, named):
        TransformerEncoder(str(tiny(tmp_path, family)), **{"pooling": "mean", **values})


def test_parts_are_known_for_every_family():
    assert set(FAMILIES) - {"albert"} <= set(architectures.PARTS)
