"""First steps of two networks, or of one next to its frozen or translated view: values, and the losses."""

import math

import pytest
import torch
from transformers import AutoModel

from cse_cli.recipe.load import load
from cse_cli.training.optimizer import LearningRate
from registry.resources import catalog
from tests.recipes.first_step import experiment, info_nce, layers_of, projected, step_of
from tests.registry.losses import test_peer_agreement, test_peer_positives
from tests.registry.losses.test_cross_contrast import as_the_authors_code as contrast
from tests.registry.losses.test_cross_contrast import interleaved
from tests.registry.losses.test_self_guided import literal
from tests.registry.losses.test_tensor_norm import as_the_authors_code as norm


@pytest.mark.parametrize("version", ["", "_large", "_roberta", "_roberta_large"])
def test_contrastive_bt_settings_are_those_of_sg_opt(version):
    ours, other = (load(f"{name}_en{version}").recipe for name in ("contrastive_bt", "sg_opt"))
    assert ours.train == other.train
    assert ours.encoders["online"].heads == other.encoders["online"].heads
    assert dict(ours.encoders["online"].params) == {**dict(other.encoders["online"].params), "freeze": []}
    assert (list(ours.encoders), ours.views["positive"].column) == (["online"], "translation")


@pytest.mark.slow
def test_contrastive_bt_first_step_by_hand(parts):
    made = experiment(parts, "contrastive_bt_en")
    step = step_of(made)
    assert not torch.equal(step.batch["anchor"].ids, step.batch["positive"].ids)
    head = made.scored.heads["feed_forward"]

    with torch.no_grad():
        states = (layers_of(parts, step.batch[view])[0] for view in ("anchor", "positive"))
        a, b = (torch.tensor([projected(head, x) for x in rows], dtype=torch.float64) for rows in states)
    assert made.method(step)["info_nce"].item() == pytest.approx(info_nce(a, b, 0.05), abs=1e-6)


def test_ct_rates_are_those_of_the_code():
    """Keras' PiecewiseConstantDecay: the first value up to and including the first boundary, with steps from 0."""
    train = load("ct_en").recipe.train
    for step in (0, 499, 500, 501, 999, 1000, 1001, 1500, 1501, 2000, 2001, 49999):
        passed = sum(step > boundary for boundary in (500, 1000, 1500, 2000))
        assert LearningRate(train, 50000)(step) == (1e-5, 8e-6, 6e-6, 4e-6, 2e-6)[passed]


@pytest.mark.slow
def test_ct_first_step_by_hand(parts):
    """16 sentences, 2 of them in positive pairs; the twins are still one, so that each meets its own vector."""
    made = experiment(parts, "ct_en", "train.batch_size=16", dropout=None)
    step = step_of(made, rows=16)
    tokens = step.batch["anchor"]
    states = made.scored.backbone(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
    vectors = [row[real.bool()].mean(0).tolist() for row, real in zip(states, tokens.mask, strict=True)]
    pairs = [(0, 0), (1, 1), *((i, i + 1 if i < 15 else 2) for i in range(2, 16))]
    values = []
    for i, j in pairs:
        dot = sum(x * y for x, y in zip(vectors[i], vectors[j], strict=True))
        values.append(math.log1p(math.exp(-dot)) if i == j else math.log1p(math.exp(-abs(dot))) + max(dot, 0.0))
    losses = made.method(step)
    assert made.method.objective(losses).item() == pytest.approx(sum(values) / 16, rel=1e-6)


@pytest.mark.slow
def test_pcl_both_networks_read_the_same_sentences(parts):
    batch = step_of(experiment(parts, "pcl_en")).batch
    for name in (name for name in batch if name.startswith("peer_")):
        assert torch.equal(batch[name].ids, batch[name.removeprefix("peer_")].ids), name
    assert not torch.equal(batch["shuffled"].ids, batch["shuffled_again"].ids)
    assert torch.equal(batch["reversed"].ids, batch["reversed_again"].ids)


@pytest.mark.slow
def test_pcl_first_step_by_transformers(parts):
    made = experiment(parts, "pcl_en", "encoders.peer.dropout=0.0")
    step = step_of(made)
    network = AutoModel.from_pretrained(parts.models["bert"]).double().eval()

    @torch.no_grad()
    def vectors(view, encoder):
        tokens, rows = step.batch[view], []
        for ids, mask in zip(tokens.ids, tokens.mask, strict=True):
            row = network(ids[mask == 1].unsqueeze(0)).last_hidden_state[0, 0]
            for head in made.method.encoder(encoder).heads.values():
                weight, bias, _ = head.dense()
                row = (weight @ row + bias).tanh()
            rows.append(row)
        return torch.stack(rows)

    others = made.recipe.losses["peer_positives"].views["positives"]
    one = vectors("anchor", "online"), tuple(vectors(view, "online") for view in others)
    peer = vectors("peer_anchor", "peer"), tuple(vectors(f"peer_{view}", "peer") for view in others)
    expected = {
        "info_nce": info_nce(one[0], one[1][0], 0.05),
        "peer_info_nce": info_nce(peer[0], peer[1][0], 0.05),
        "peer_positives": test_peer_positives.literal(*one, 0.05, "released"),
        "peer_positives_of_peer": test_peer_positives.literal(*peer, 0.05, "released"),
        "agreement_within": test_peer_agreement.literal(one, peer, 0.05, "within", "cells"),
        "agreement_across": test_peer_agreement.literal(one, peer, 0.05, "across", "cells"),
    }
    losses = made.method(step)
    assert {label: value.item() for label, value in losses.items()} == pytest.approx(expected, abs=1e-6)
    assert made.method.objective(losses).item() == pytest.approx(sum(expected.values()), abs=1e-6)


def test_sg_opt_text_is_all_of_stsb():
    splits = catalog.entry("stsb").splits
    assert catalog.entry("stsb_text").splits["train"].rows == 2 * sum(splits[s].rows for s in ("train", "dev", "test"))


@pytest.mark.slow
def test_sg_opt_first_step_by_hand(parts):
    made = experiment(parts, "sg_opt_en")
    step = step_of(made)
    losses = made.method(step)
    cls, means = layers_of(parts, step.batch["anchor"])
    head = made.scored.heads["feed_forward"]

    with torch.no_grad():
        anchors, guides = [projected(head, x) for x in cls], [[projected(head, v) for v in own] for own in means]
    assert losses["self_guided"].item() == pytest.approx(literal(anchors, guides, 0.01), abs=1e-6)
    assert losses["stay_near"].item() == 0.0


@pytest.mark.slow
def test_tncse_first_step_by_the_authors_code(parts):
    """Two encoders that differ: the rows of both copies, before and after the poolers, in the authors' functions."""
    made = experiment(parts, "tncse_en", "encoders.first.dropout=0.1", "encoders.second.dropout=0.1", dropout=None)
    step = step_of(made)
    losses = made.method(step)
    views = {name: (view.before_heads.detach(), view.sentence.detach()) for name, view in step.views.items()}
    first, second = (
        [interleaved(views[name][k], views[f"{name}_again"][k]) for k in (0, 1)] for name in ("first", "second")
    )
    expected = {
        "first_contrast": contrast(first[0], first[0], 0.05),
        "second_contrast": contrast(second[0], second[0], 0.05),
        "cross_contrast": contrast(first[0], second[0], 0.05),
        "first_norm": norm(first[0], second[0], first[1], second[1]),
        "second_norm": norm(second[0], first[0], second[1], first[1]),
    }
    assert {name: value.item() for name, value in losses.items()} == pytest.approx(
        {name: value.item() for name, value in expected.items()}, abs=1e-6
    )
