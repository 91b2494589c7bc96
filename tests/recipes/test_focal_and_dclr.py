"""Focal-InfoNCE's and DCLR's recipes: the values that were printed, and a second encoder that costs no gradient."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModel

from cse_cli.recipe.cells import cells
from cse_cli.recipe.study import load_study
from registry.losses.info_nce import InfoNCE
from tests.recipes.first_step import experiment, step_of


@pytest.mark.slow
def test_alignment_and_uniformity_are_those_of_the_test_split():
    """Focal-InfoNCE's script computes them split by split (F13)."""
    for name in ("studies/focal_infonce_alignment", "studies/mini/focal_infonce_alignment"):
        for cell in cells(load_study(name)):
            plane = cell.load(0).recipe.evaluators["plane"]
            assert (plane.name, plane.params["split"]) == ("alignment_uniformity", "test")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("dclr_en", ["pooler", "mlp"]), ("dclr_en_large", ["pooler"]),
        ("dclr_en_roberta", ["pooler", "mlp"]), ("dclr_en_roberta_large", ["pooler"]),
    ],
)  # fmt: skip
def test_the_first_step_of_dclr_by_transformers(parts, name, heads):
    """Blocks without a mask, their pooler, a new layer, and the loss of the released code, with its gradient."""
    made = experiment(parts, name, "encoders.complementary.dropout=0.0")
    step = step_of(made)
    ids = step.batch["anchor"].ids
    assert not step.batch["anchor"].mask.all()
    kind = "roberta" if "roberta" in name else "bert"
    network, fixed = (AutoModel.from_pretrained(parts.models[kind]).double().eval() for _ in range(2))
    online = made.method.encoder("online")
    assert list(online.heads) == heads
    assert not any(p.requires_grad for p in made.method.encoder("complementary").parameters())
    if name == "dclr_en_roberta":  # not of the checkpoint
        network.pooler.dense.load_state_dict(online.heads["pooler"].linear.state_dict())
    vectors = network(ids).pooler_output
    if "mlp" in heads:
        vectors = torch.tanh(vectors @ online.heads["mlp"].linear.weight.detach().T)
    with torch.no_grad():
        known = fixed(ids).pooler_output
    cosine = torch.nn.functional.cosine_similarity
    alike = cosine(known.unsqueeze(1), known.unsqueeze(0), dim=-1)
    phi = alike[~torch.eye(4, dtype=torch.bool)].median().item() + 1e-6
    next(one for one in made.method.modules() if isinstance(one, InfoNCE)).false_negative = phi
    found = made.method.objective(made.method(step))
    columns = torch.cat([vectors, made.method.queue.negatives().vectors])
    rows = []
    for i in range(4):
        logits = torch.stack([cosine(vectors[i], column, dim=0) / 0.05 for column in columns])
        weights = [0.0 if j < 4 and j != i and alike[i, j] > phi else 1.0 for j in range(len(columns))]
        p = (logits * torch.tensor(weights)).softmax(dim=0)
        rows += [-(p[j].log() if j == i else (1 - p[j]).log()) for j in range(len(columns))]
    expected = torch.stack(rows).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    found.backward()
    expected.backward()
    mine, theirs = (one.embeddings.word_embeddings.weight.grad for one in (online.backbone, network))
    assert (mine - theirs).norm() <= 1e-6 * theirs.norm()
