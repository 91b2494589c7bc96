"""The state of a template's [MASK], and what the template alone contributes to it."""

from itertools import product

import pytest
import torch

from registry import ENCODERS
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.heads.mlp import Mlp
from registry.tokens import Tokens
from registry.types import BUILT_IN
from tests.registry.encoders import vectors
from tests.support.errors import refuses
from tests.support.tiny import tiny_bert, tiny_roberta

pytestmark = pytest.mark.slow

ONE = 'This sentence of "{text}" means {mask}.'
TWO = '"{text}" means {mask}, in short {mask}.'
TEXTS = ["A cat.", "The dog sees a cat under the tree.", "Cats run.", "A dog."]


def encoder(**given):
    return TransformerEncoder("mini_en", **{"template": ONE, "pooling": "mask", **given}).eval()


def tokens_of(encoder, texts=TEXTS):
    return vectors.tokens_of(encoder, texts, 32)


def states(made, ids, positions, mask=None):
    """The last layer by transformers' own forward."""
    with torch.no_grad():
        given = torch.tensor([ids]), torch.tensor([positions])
        mask = None if mask is None else torch.tensor([mask])
        return made.backbone(given[0], position_ids=given[1], attention_mask=mask).last_hidden_state[0]


def encoded(made, tokens):
    with torch.no_grad():
        return made.encode(tokens, made.embed(tokens)).sentence


@pytest.mark.parametrize(("template", "pooling"), [(ONE, "mask"), (TWO, "mask"), (TWO, "last_mask")])
def test_the_vector_is_the_state_at_the_mask(template, pooling):
    made = encoder(template=template, pooling=pooling)
    tokens = tokens_of(made)
    found, trained = made.encode_for_eval(tokens), encoded(made, tokens)
    for row in range(len(TEXTS)):
        ids = tokens.ids[row][tokens.mask[row] == 1].tolist()
        own = states(made, ids, list(range(len(ids))))
        places = [place for place, piece in enumerate(ids) if piece == made.vocabulary.mask]
        expected = own[places].mean(0) if pooling == "mask" else own[places[-1]]
        torch.testing.assert_close(found[row], expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(trained[row], expected, rtol=0, atol=1e-5)


def test_a_mask_token_in_the_sentence_is_not_read():
    made = encoder()
    tokens = tokens_of(made, ["A [MASK] cat."])
    assert (tokens.ids == made.vocabulary.mask).sum() == 2
    row = tokens.ids[0].tolist()
    last = len(row) - 1 - row[::-1].index(made.vocabulary.mask)
    torch.testing.assert_close(
        made.encode_for_eval(tokens)[0], states(made, row, range(len(row)))[last], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("denoise", ["positions", "padding"])
def test_denoising_subtracts_the_state_of_the_template_alone(denoise):
    made = encoder(denoise=denoise)
    tokens = tokens_of(made)
    found, raw = encoded(made, tokens), encoded(encoder(), tokens)
    for row in range(len(TEXTS)):
        real = tokens.mask[row] == 1
        ids, text = tokens.ids[row][real].tolist(), tokens.text[row][real].tolist()
        if denoise == "positions":
            kept = [place for place, one in enumerate(text) if not one]
            own = states(made, [ids[place] for place in kept], kept)
            place = [ids[place] for place in kept].index(made.vocabulary.mask)
        else:
            own = states(made, [0 if one else piece for piece, one in zip(ids, text, strict=True)], range(len(ids)))
            place = ids.index(made.vocabulary.mask)
        torch.testing.assert_close(found[row], raw[row] - own[place], rtol=0, atol=1e-5)


def test_padding_in_a_roberta_has_the_positions_of_its_own_forward(tmp_path):
    """CoT-BERT's `denoising` (models.py:54-103) passes IDs and mask alone: value and gradient, template by template."""
    template = "the {text} sees {mask} ."
    made = TransformerEncoder(
        str(tiny_roberta(tmp_path)), template=template, pooling="mask", denoise="padding", dropout=0.0
    )
    made.backbone.embeddings.position_embeddings.weight.data[1] = 0.5  # the row of padding, 0 when it is random
    tokens = tokens_of(made, ["the cat", "the dog sees a cat", "a"])
    found = made._template_alone(tokens)
    weights = torch.linspace(-1, 1, found.numel()).view_as(found)
    (found * weights).sum().backward()
    gradients = {name: each.grad.clone() for name, each in made.backbone.named_parameters() if each.grad is not None}
    made.backbone.zero_grad()
    own = []
    for ids, mask, text in zip(tokens.ids, tokens.mask, tokens.text, strict=True):
        alone = torch.tensor(
            [[1 if inside else piece for piece, inside in zip(ids.tolist(), text.tolist(), strict=True)]]
        )
        states = made.backbone(input_ids=alone, attention_mask=mask.unsqueeze(0)).last_hidden_state[0]
        own.append(states[alone[0].tolist().index(made.vocabulary.mask)])
    torch.testing.assert_close(found, torch.stack(own), rtol=1e-6, atol=1e-6)
    (torch.stack(own) * weights).sum().backward()
    for name, each in made.backbone.named_parameters():
        if each.grad is not None:
            torch.testing.assert_close(gradients[name], each.grad, rtol=1e-6, atol=2e-6, msg=name)


def test_evaluation_subtracts_nothing_unless_asked_and_heads_see_the_denoised_vector():
    tokens = tokens_of(encoder())
    plain, denoised = encoder(denoise="positions"), encoder(denoise="positions", denoise_at_eval=True)
    assert torch.equal(plain.encode_for_eval(tokens), encoder().encode_for_eval(tokens))
    torch.testing.assert_close(denoised.encode_for_eval(tokens), encoded(plain, tokens), rtol=0, atol=1e-5)
    made = encoder(denoise="positions")
    made.attach({"mlp": Mlp()})
    tokens = tokens_of(made)
    with torch.no_grad():
        found = made.encode(tokens, made.embed(tokens))
        torch.testing.assert_close(found.sentence, made.project(found.pooled))
    torch.testing.assert_close(found.pooled, encoded(encoder(denoise="positions"), tokens))


@pytest.mark.parametrize("through", [True, False])
def test_gradient_goes_through_what_is_subtracted_unless_stopped(through):
    """Of a loss on h − b the gradient of a bias behind the last layer is 0 where it goes through both, else 1 a row."""
    made = encoder(denoise="positions", denoise_gradient=through)
    tokens = tokens_of(made)
    bias = made.backbone.encoder.layer[-1].output.LayerNorm.bias
    made.encode(tokens, made.embed(tokens)).sentence.sum().backward()
    expected = torch.zeros_like(bias) if through else torch.full_like(bias, float(len(TEXTS)))
    torch.testing.assert_close(bias.grad, expected, rtol=0, atol=1e-4)


def test_sentences_of_one_length_share_one_draw_of_dropout_and_the_template_takes_positions():
    torch.manual_seed(0)
    made = encoder(denoise="positions", dropout=0.3).train()
    tokens = tokens_of(made, ["A cat.", "A dog.", "The dog sees a cat."])
    alone = made._template_alone(tokens)
    assert torch.equal(alone[0], alone[1])
    assert not torch.equal(alone[0], alone[2])
    assert not torch.equal(alone, made._template_alone(tokens))
    made, plain = encoder(), TransformerEncoder("mini_en")
    template = made.vocabulary.ids([""], 16)[0]
    assert made.max_length == plain.max_length - (len(template) - 2)


def test_a_view_with_its_own_template_is_denoised_by_it():
    made = encoder(denoise="positions")
    other = made.vocabulary.with_template('"{text}" means {mask}.')
    views = {"anchor": tokens_of(made), "positive": other.pad(other.ids(TEXTS, 32))}
    stacked = Tokens.stack(views)
    both = encoded(made, stacked)
    for number, tokens in enumerate(views.values()):
        rows = both[number * len(TEXTS) : (number + 1) * len(TEXTS)]
        torch.testing.assert_close(rows, encoded(made, tokens), rtol=0, atol=1e-5)


def test_any_model_is_opened_in_a_template_and_a_head_is_saved(tmp_path):
    """One without a template, and one saved with another."""
    encoder(template=TWO).export(tmp_path / "model", 24)
    for model in ("mini_en", str(tmp_path / "model")):
        back, _ = open_encoder(model, "mask", ONE)
        torch.testing.assert_close(
            back.encode_for_eval(tokens_of(back)), encoder().encode_for_eval(tokens_of(encoder()))
        )
    made = encoder(head_at_eval=True)
    made.attach({"mlp": Mlp()})
    made.export(tmp_path / "model", 24)
    back, _ = open_encoder(str(tmp_path / "model"))
    torch.testing.assert_close(
        back.encode_for_eval(tokens_of(back)), made.encode_for_eval(tokens_of(made)), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("given", "code", "named"),
    [
        ({"template": None}, "encoders.no_template", 'pooling "mask"'),
        ({"template": '"{text}"'}, "encoders.no_template", "{mask}"),
        ({"template": '"{text}"', "pooling": "cls", "eval_pooling": "last_mask"}, "encoders.no_template", "last_mask"),
        ({"template": None, "pooling": "cls", "denoise": "positions"}, "encoders.no_template", "denoise"),
        ({"denoise_at_eval": True}, "encoders.no_denoise", "denoise_at_eval"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given, code, named):
    with refuses(code, named):
        encoder(**given)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("template", [None, 'It said "{text}"', ONE, [ONE, TWO]])
def test_what_the_check_accepts_can_run(tmp_path, joined, template):
    folder, entry = str(tiny_bert(tmp_path / "bert")), ENCODERS["transformer"]
    for pooling, in_evaluation in product(sorted(BUILT_IN), [None, "mean", "text", "mask"]):
        read = {pooling, in_evaluation or pooling}
        fits = (
            (not read & {"mask", "last_mask"} or template in (ONE, [ONE, TWO]))
            and ("text" not in read or template is not None)
            and (not joined or (isinstance(template, str) and "text" not in read))
        )
        names = {"pooling": pooling, "eval_pooling": in_evaluation, "template": template, "template_joined": joined}
        given = entry.parameters(model=folder, **names).model_dump()
        if not fits:
            with pytest.raises(CseError, match="template"):
                TransformerEncoder.check_settings(given)
            continue
        TransformerEncoder.check_settings(given)
        if in_evaluation is None or pooling == "cls":
            made = entry.build(given).eval()
            assert made.encode_for_eval(tokens_of(made)).isfinite().all()
