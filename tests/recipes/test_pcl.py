"""PCL as its recipes put it together: the authors' values, which views are alike, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModel

from tests.recipes.first_step import experiment, info_nce, step_of
from tests.registry.losses import test_peer_agreement, test_peer_positives

ALIKE = ["encoders.peer.dropout=0.0"]


@pytest.mark.slow
def test_both_networks_read_the_same_sentences(parts):
    batch = step_of(experiment(parts, "pcl_en")).batch
    for name in (name for name in batch if name.startswith("peer_")):
        assert torch.equal(batch[name].ids, batch[name.removeprefix("peer_")].ids), name
    assert not torch.equal(batch["shuffled"].ids, batch["shuffled_again"].ids)
    assert torch.equal(batch["reversed"].ids, batch["reversed_again"].ids)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pcl_en", pytest.param("mini/pcl_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_by_transformers(parts, name):
    made = experiment(parts, name, *ALIKE)
    step = step_of(made)
    network = AutoModel.from_pretrained(parts.models["bert"]).double().eval()

    @torch.no_grad()
    def vectors(view, encoder):
        tokens, rows = step.batch[view], []
        for ids, mask in zip(tokens.ids, tokens.mask, strict=True):
            states = network(ids[mask == 1].unsqueeze(0)).last_hidden_state[0]
            row = states[0] if name == "pcl_en" else states.mean(0)
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
