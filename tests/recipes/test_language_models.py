"""First steps that restore tokens, or compare tokens with sentences: next to transformers or loop by loop."""

import math

import pytest
import torch
from transformers import AutoModelForMaskedLM

from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from tests.recipes.first_step import experiment, headed, info_nce, layers_of, step_of
from tests.registry.encoders.test_convolutional import features_of
from tests.registry.losses.literal import agree, unit
from tests.registry.losses.test_attention_information import literal
from tests.registry.losses.test_reconstruction import as_transformers


@pytest.mark.slow
def test_infocse_first_step_by_transformers(parts):
    hide_all = ("masking=1.0", "mask_share=1.0", "random_share=0.0", "weight=0.5")
    made = experiment(parts, "infocse_en", *(f"losses.side_language_model.{key}" for key in hide_all))
    step = step_of(made)
    losses = made.method(step)
    tokens = step.batch["anchor"]
    h = layers_of(parts, tokens)[0]
    rows = torch.cat([h, h])

    head = made.scored.heads["batch_norm_relu"].state_dict()
    x = rows @ head["layers.0.weight"].T
    x = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt() * head["norms.0.weight"] + head["norms.0.bias"]
    x = x.clamp(min=0) @ head["layers.1.weight"].T
    x = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    contrast = info_nce(x[:4], x[4:], 0.05)
    assert losses["info_nce"].item() == pytest.approx(contrast, abs=1e-6)

    own = made.method.losses["side_language_model"]
    model = AutoModelForMaskedLM.from_pretrained(parts.models["bert"]).double().eval()
    total = torch.zeros(())
    for row in range(4):  # both copies are the same sentence: half of the rows is enough
        ids = tokens.ids[row][tokens.mask[row] == 1]
        hidden = torch.where((ids == 2) | (ids == 3), ids, 4).unsqueeze(0)
        states = model.bert.encoder.layer[0](model.bert.embeddings(input_ids=hidden)).clone()
        states[0, 0] = h[row]
        for block in own.trained.encoder.layer:
            states = block(states)
        scores = model.cls(states)[0, 1:-1].log_softmax(-1)
        total = total - scores.gather(1, ids[1:-1, None]).sum()
    side = total.item() / (int(tokens.mask.sum()) - 8)
    assert losses["side_language_model"].item() == pytest.approx(side, abs=1e-6)
    assert made.method.objective(losses).item() == pytest.approx(contrast + 0.5 * side, abs=1e-6)


VIEWS = ("anchor", "positive")


@pytest.mark.slow
def test_informin_cl_first_step_by_hand(parts):
    """Value of the authors' `cl_forward`, on the tokens that both views mask."""
    made = experiment(parts, "informin_cl_en", *(f"views.{view}.augment.0.rate=0.4" for view in VIEWS))
    torch.manual_seed(9)
    step = step_of(made)
    losses = {label: value.item() for label, value in made.method(step).items()}
    loss = made.method.losses["masked_language_modeling"]
    words = made.scored.backbone.embeddings.word_embeddings.weight if loss.decoder is None else loss.decoder
    rows, costs = {}, []
    for view in VIEWS:
        tokens = step.embedded[view].tokens
        assert not torch.equal(tokens.ids, step.batch[view].ids)
        states = made.scored.backbone(tokens.ids, attention_mask=tokens.mask).last_hidden_state.detach()
        rows[view] = states[:, 0]
        for row, place in (tokens.targets >= 0).nonzero().tolist():
            costs.append(-loss.head(states[row, place], words).log_softmax(0)[tokens.targets[row, place]].item())
    a, b = (rows[view].tolist() for view in VIEWS)
    contrast = info_nce(*(rows[view] for view in VIEWS), 0.05)
    apart = sum((x - y) ** 2 for r, s in zip(a, b, strict=True) for x, y in zip(unit(r), unit(s), strict=True))
    assert losses["info_nce"] == pytest.approx(contrast, rel=1e-6)
    assert losses["alignment"] == pytest.approx(apart / len(a) / len(a[0]), rel=1e-6)
    assert losses["masked_language_modeling"] == pytest.approx(sum(costs) / len(costs), rel=1e-6)


def test_informin_cl_both_terms_of_the_paper_are_the_one_with_weight_two(parts):
    changed, dropped = parts.options(load("informin_cl_en").recipe)
    given = [*changed, "encoders.online.dropout=0.3"]
    dropped += ["losses.masked_language_modeling", "views.anchor.augment", "views.positive.augment"]
    made = resolve(load("informin_cl_en", given, dropped).recipe, 5)
    made.method.double().train()
    step = step_of(made)
    losses = made.method(step)
    assert list(losses) == ["info_nce", "alignment"]
    a, b = (torch.nn.functional.normalize(step.views[view].sentence, dim=1) for view in ("anchor", "positive"))
    squares = [(x - y) ** 2 for r, s in zip(a.tolist(), b.tolist(), strict=True) for x, y in zip(r, s, strict=True)]
    both = 2 * sum(squares) / len(squares)
    assert (made.method.objective(losses) - losses["info_nce"]).item() == pytest.approx(both, abs=1e-9)
    assert both > 1e-4


def literal_of_is_bert(encoder, tokens):
    """MutualInformationLoss.py by loops over tokens and sentences, each sentence encoded without padding."""
    states = (encoder.backbone(i[m == 1][None]) for i, m in zip(tokens.ids, tokens.mask, strict=True))
    features = [features_of(encoder, one.last_hidden_state[0].detach()) for one in states]
    means = [rows.sum(0) / len(rows) for rows in features]
    own = others = torch.zeros((), dtype=torch.float64)
    for i, rows in enumerate(features):
        for row in rows:
            for j, mean in enumerate(means):
                r = (row * mean).sum()
                softplus = (1 + (-r).exp()).log()
                if i == j:
                    own = own + math.log(2) - softplus
                else:
                    others = others + softplus + r - math.log(2)
    count = sum(map(len, features))
    return others / (count * (len(means) - 1)) - own / count


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["", "relu"])
def test_is_bert_loss_and_its_gradient_in_the_first_step(parts, activation):
    """The default is the authors' code, which has no activation. "relu" is the paper."""
    changed = [f"encoders.online.activation={activation}"] if activation else []
    made = experiment(parts, "is_bert_en", "encoders.online.channels=3", *changed)
    step = step_of(made)
    losses = made.method(step)
    assert list(losses) == ["jensen_shannon_information"]
    value = losses["jensen_shannon_information"]
    weights = list(made.scored.convolutions.parameters())
    expected = literal_of_is_bert(made.scored, step.batch["anchor"])
    agree(value, expected, weights, 1e-9)


@torch.no_grad()
def read_by_transformers(parts, made, tokens):
    """(n, D) what the losses compare, and block → (n, H, L, L) attention weights."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(parts.models["bert"], attn_implementation="eager").double().eval()
    found = network(tokens.ids, tokens.mask, tokens.types, output_attentions=True)
    return headed(made, found.last_hidden_state[:, 0]), found.attentions


@pytest.mark.slow
def test_micse_first_step_from_transformers_alone(parts):
    """The positive's tokens are put into the second segment, so that the views differ without dropout."""
    made = experiment(parts, "micse_en")
    step = step_of(made)
    step.batch["positive"].types.fill_(1)
    losses = made.method(step)
    (anchor, here), (positive, there) = (
        read_by_transformers(parts, made, step.batch[view]) for view in ("anchor", "positive")
    )
    groups = made.method.losses["attention_information"].layers
    expected = {
        "info_nce": info_nce(anchor, positive, 0.05),
        "attention_information": literal(here, there, groups, 0).item(),
    }
    assert {label: value.item() for label, value in losses.items()} == pytest.approx(expected, abs=1e-6)
    total = expected["info_nce"] + 5e-4 * expected["attention_information"]
    assert made.method.objective(losses).item() == pytest.approx(total, abs=1e-6)


@pytest.mark.slow
def test_tsdae_first_step_by_transformers(parts):
    made = experiment(parts, "tsdae_en")
    step = step_of(made)
    losses = made.method(step)
    damaged, whole = step.batch["damaged"], step.batch["whole"]
    assert bool((damaged.mask.sum(1) <= whole.mask.sum(1)).all())
    assert int(damaged.mask.sum()) < int(whole.mask.sum())
    h = layers_of(parts, damaged)[0]
    model = as_transformers(made.scored, made.method.losses["reconstruction"])
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in range(4):
        ids = whole.ids[row][whole.mask[row] == 1]
        found = model(ids[None, :-1], encoder_hidden_states=h[row].view(1, 1, -1)).logits[0].log_softmax(-1)
        total, count = total - found.gather(1, ids[1:, None]).sum(), count + len(ids) - 1
    assert losses["reconstruction"].item() == pytest.approx(total.item() / count, abs=1e-6)
    assert made.method.objective(losses).item() == losses["reconstruction"].item()
