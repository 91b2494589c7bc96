import pickle
from math import sqrt

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from registry.encoders.contrastive_prompting import AUXILIARY, ContrastivePromptingEncoder, difference
from registry.encoders.transformer import TransformerEncoder
from registry.tokens import Sample, Tokens
from tests.registry.encoders.vectors import encoding
from tests.support.errors import refuses
from tests.support.families import tiny
from tests.support.tiny import sentences, tiny_albert

TEMPLATE, AUXILIARY_TEMPLATE = 'the cat "{text}" sings', 'a red dog sees the man "{text}" sings'
GIVEN = {"template": TEMPLATE, "auxiliary": AUXILIARY_TEMPLATE, "block": 1, "coefficient": 0.5}
TEXTS = ["a man sings", "the big red cat sleeps under a small tree", "dog", *sentences(3)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: str(tiny(folder, name)) for name in ("llama", "qwen3", "gpt2", "bert")}


def published(model, block, strategy, coefficient, layer, texts=TEXTS, prompts=(TEMPLATE, AUXILIARY_TEMPLATE)):
    """CP @bf5ee56 literally: left padding, o_proj's input (activation_intervention/__init__.py), the last place."""
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.pad_token_id = 0
    network = AutoModel.from_pretrained(model).eval()
    output = network.layers[block].self_attn.o_proj
    inputs = []

    def run(template):
        batch = tokenizer([template.replace("{text}", text) for text in texts], return_tensors="pt", padding=True)
        with torch.no_grad():
            return network(**batch, output_hidden_states=True).hidden_states

    with output.register_forward_hook(lambda _, given, __: inputs.append(given[0])):
        run(prompts[1])
    negative = inputs[0]

    def hook(_, given):
        (residual,) = given
        norm = residual[:, -1:, :].norm(dim=2, keepdim=True)
        change = residual[:, -1:, :] - negative[:, -1:, :]
        scale = coefficient if strategy == "scaled" else norm / (change.norm(dim=2, keepdim=True) + 1e-7)
        residual[:, -1:, :] = change * scale
        return residual

    with output.register_forward_pre_hook(hook):
        return run(prompts[0])[layer][:, -1, :]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "block", "strategy", "coefficient", "layer"),
    [("llama", 1, "scaled", 0.5, 2), ("qwen3", 0, "scaled", 1.5, -1), ("llama", 1, "norm", None, -1)],
)
def test_embeddings_are_those_of_the_authors_code(models, name, block, strategy, coefficient, layer):
    given = {**GIVEN, "block": block, "coefficient": coefficient, "layer": None if layer == -1 else layer}
    encoder = ContrastivePromptingEncoder(model=models[name], **given)
    found = encoding(encoder, 40)(TEXTS)
    torch.testing.assert_close(
        found, published(models[name], block, strategy, coefficient, layer), rtol=1e-5, atol=1e-6
    )
    alone = torch.cat([encoding(encoder, 40)([text]) for text in TEXTS])  # without padding
    torch.testing.assert_close(found, alone, rtol=1e-5, atol=1e-6)
    plain = TransformerEncoder(
        models[name], pooling="last", template=TEMPLATE, template_joined=True, layer=given["layer"]
    )
    assert (found - encoding(plain, 40)(TEXTS)).norm() > 0.01 * found.norm()


def test_difference_by_hand():
    heads, subtracted = torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 3.0]])
    torch.testing.assert_close(difference(heads, subtracted, 0.5), torch.tensor([[0.5, 0.5]]))
    torch.testing.assert_close(difference(heads, subtracted, None), torch.tensor([[5 / sqrt(2), 5 / sqrt(2)]]))
    assert torch.equal(difference(heads, heads, None), torch.zeros(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_the_last_token_of_any_family_is_steered_and_no_other(models, name):
    encoder = ContrastivePromptingEncoder(model=models[name], **GIVEN).eval()
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(TEXTS, 40))
    given = {"template": TEMPLATE, "template_joined": True}
    plain = TransformerEncoder(models[name], pooling="last", **given).eval()
    states, others = (one.block_states(tokens, one.layer_vectors(tokens, None), every=True) for one in (encoder, plain))
    last = tokens.mask * (tokens.mask.flip(1).cumsum(1).flip(1) == 1)
    changed = (states[2] - others[2]).abs().amax(dim=2) > 1e-5  # after block 1
    assert torch.equal(changed & tokens.mask.bool(), last.bool())
    torch.testing.assert_close(states[1][tokens.mask == 1], others[1][tokens.mask == 1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        encoder.encode(tokens, encoder.embed(tokens)).sentence, encoder.encode_for_eval(tokens), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_a_row_has_both_prompts(models):
    vocabulary = ContrastivePromptingEncoder(model=models["llama"], **GIVEN, end_with="stop").vocabulary
    tokenizer = AutoTokenizer.from_pretrained(models["llama"])
    (row,) = vocabulary.ids(["a man"], 40)
    first, second = (tokenizer(each.replace("{text}", "a man")).input_ids for each in (TEMPLATE, AUXILIARY_TEMPLATE))
    assert row == [*first, -1, *second]
    tokens = vocabulary.pad([row])
    assert (tokens.ids.tolist(), tokens.side[AUXILIARY].ids.tolist()) == ([first], [second])
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert "tokenizer" not in vars(copy)
    assert (copy.ids(["a man"], 40), copy.end_with, copy.fingerprint) == ([row], "stop", vocabulary.fingerprint)
    other = vocabulary.with_template("so {text}")
    assert other.fingerprint != vocabulary.fingerprint
    assert other.ids(["a man"], 40)[0][-len(second) :] == second
    assert vocabulary.longest(64) == 64 - (len(second) - 2) + 1  # without the two words, with <s>


@pytest.mark.slow
def test_what_does_not_fit_is_refused(models, tmp_path):
    with refuses("encoders.unknown_block", "block = 3", "3 blocks"):
        ContrastivePromptingEncoder(model=models["llama"], **{**GIVEN, "block": 3})
    with refuses("encoders.unsupported_architecture", "contrastive_prompting", "Albert"):
        ContrastivePromptingEncoder(model=str(tiny_albert(tmp_path)), **GIVEN)
    encoder = ContrastivePromptingEncoder(model=models["llama"], **GIVEN)
    with refuses("vocabulary.joined_template"):
        encoder.vocabulary.tokens([Sample("a man")], 40)
    stacked = Tokens.stack({"anchor": encoder.vocabulary.pad(encoder.vocabulary.ids(TEXTS, 40))})  # as in training
    with refuses("encoders.no_training", "contrastive_prompting"):
        encoder.encode(stacked, encoder.embed(stacked))
