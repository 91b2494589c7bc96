"""First steps with a momentum encoder, a queue or noise: what is held, and the losses."""

import math

import pytest
import torch
from transformers import AutoModel

from cse_cli.recipe.cells import cells
from cse_cli.recipe.load import load
from cse_cli.recipe.study import load_study
from registry.losses.info_nce import InfoNCE
from registry.resources import catalog
from tests.recipes.first_step import experiment, info_nce, layers_of, step_of
from tests.registry.heads.test_batch_norm_mlp import literal as literal_of_bsl
from tests.registry.losses.literal import cosine, unit
from tests.registry.losses.test_smoothed_info_nce import literal as literal_of_is_cse


def test_bsl_warm_up_and_evaluation_are_tenths_of_the_epoch():
    """`unsupervised_tuning.py`; the number of sentences is that of our NLI."""
    train = load("bsl_en").recipe.train
    steps = catalog.entry("nli").splits["train"].rows // 64
    assert (train.warmup_steps, train.evaluate_every) == (math.ceil(steps * 0.1), int(steps * 0.1))


@pytest.mark.slow
def test_bsl_first_step_by_hand(parts):
    made = experiment(parts, "bsl_en")
    step = step_of(made)
    assert not torch.equal(step.batch["anchor"].ids, step.batch["positive"].ids)
    vectors = {}
    for view in ("anchor", "positive"):
        tokens = step.batch[view]
        states = made.scored.backbone(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
        vectors[view] = [row[real.bool()].mean(0).tolist() for row, real in zip(states, tokens.mask, strict=True)]
    predictor = made.scored.heads["predictor"]
    a, b = (literal_of_bsl(predictor, vectors[view]).tolist() for view in ("anchor", "positive"))
    total = 0.0
    for i in range(4):
        total += 2 - 2 * cosine(a[i], vectors["positive"][i]) + 2 - 2 * cosine(b[i], vectors["anchor"][i])
    assert made.method.objective(made.method(step)).item() == pytest.approx(total / 4, abs=1e-9)


@pytest.mark.slow
def test_esimcse_positive_is_longer_and_queued_view_unchanged(parts):
    batch = step_of(experiment(parts, "esimcse_en", "views.positive.augment.0.rate=1.0")).batch
    assert torch.equal(batch["anchor"].ids, batch["queued"].ids)
    assert batch["positive"].mask.sum() > batch["anchor"].mask.sum()


@pytest.mark.slow
def test_esimcse_queue_holds_momentum_embeddings_without_dropout(parts):
    made = experiment(parts, "esimcse_en", dropout=None)
    slow = made.method.encoder("momentum")
    expected = []
    for index in range(2):
        step = step_of(made, index)
        made.method.objective(made.method(step)).backward()
        tokens = step.batch["queued"]
        expected.append(
            torch.nn.functional.normalize(slow.encode(tokens, slow.embed(tokens)).sentence.detach(), dim=-1)
        )
        assert not step.views["queued"].sentence.requires_grad
        assert torch.allclose(step.sentences("queued"), slow.encode(tokens, slow.embed(tokens)).sentence, atol=1e-6)
        for _, component in made.method.components():
            component.after_step(step)
    held = made.method.queue.negatives()
    assert torch.allclose(held.vectors, torch.cat(expected)[-6:], atol=1e-6)  # 8 rows, room for 6: the newest
    assert not held.log_weights.any()


@pytest.mark.slow
def test_esimcse_switch_for_a_random_copy_changes_the_second_step_only(parts):
    """ES4: the first step has no queue. The second has the random copy's embeddings as negatives."""
    losses = {}
    for switch in ("false", "true"):
        torch.manual_seed(0)  # the head
        made = experiment(parts, "esimcse_en", f"encoders.momentum.random_weights={switch}")
        losses[switch] = []
        for index in range(2):
            step = step_of(made, index)
            losses[switch].append(made.method.objective(made.method(step)).item())
            queued = step.sentences("queued")
            for _, component in made.method.components():
                component.after_step(step)
        held = torch.nn.functional.normalize(queued.detach(), dim=-1)
        assert torch.allclose(made.method.queue.negatives().vectors[-4:], held, atol=1e-6)
    assert losses["true"][0] == losses["false"][0]
    assert abs(losses["true"][1] - losses["false"][1]) > 1e-3


@pytest.mark.slow
def test_gs_infonce_first_step_by_hand(parts):
    made = experiment(parts, "gs_infonce_en")
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    noise = torch.randn(192, made.scored.dim, generator=torch.Generator().manual_seed(0)).double()
    rows = step.views["anchor"].sentence
    assert torch.equal(rows, step.views["positive"].sentence)  # no dropout: both views are alike
    assert found == pytest.approx(info_nce(rows, rows, 0.05, held=noise), abs=1e-6)


def test_is_cse_weight_is_constant_or_rises_as_the_authors_formula():
    assert load("is_cse_en").recipe.losses["smoothed_info_nce"].weight_schedule is None
    loss = load("is_cse_en_large").recipe.losses["smoothed_info_nce"]
    schedule = loss.weight_schedule
    assert schedule is not None
    for step in range(0, 1001, 50):
        theirs = min(0.05, math.cos(math.pi * step / 1000) * (0.005 - 0.05) + 0.05)
        assert schedule.at(loss.weight, step, 1000) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.slow
def test_is_cse_first_steps_by_hand(parts):
    made = experiment(parts, "is_cse_en", "losses.smoothed_info_nce.neighbors=3", "losses.smoothed_info_nce.buffer=6")
    layer, earlier = made.scored.heads["mlp"].linear, []
    for index in range(3):
        step = step_of(made, index)
        plain = (layers_of(parts, step.batch["anchor"])[0] @ layer.weight.T + layer.bias).tanh()
        contrast = info_nce(plain, plain, 0.05)  # without dropout both views are alike
        queue = [(entry, 1.0) for entry in earlier[-2:]]  # 6 entries with the 4 of the batch
        expected = literal_of_is_cse(plain, plain, queue, 0.05, 3, 2.0) if index else 0.0
        losses = made.method(step)
        assert losses["info_nce"].item() == pytest.approx(contrast, abs=1e-6)
        assert losses["smoothed_info_nce"].item() == pytest.approx(expected, abs=1e-6)
        assert made.method.objective(losses, step).item() == pytest.approx(contrast + 0.1 * expected, abs=1e-6)
        made.method.queue.after_step(step)
        earlier += [unit(row) for row in plain.tolist()]


@pytest.mark.slow
def test_pt_bert_two_steps_by_hand(parts):
    """Without dropout the attention is one linear map, twice (PT1, PT7). The copy that has not moved makes the same."""
    made = experiment(parts, "pt_bert_en", "encoders.online.heads.pseudo_tokens.dropout=0.0")
    heads, held = made.scored.heads, None
    for index in range(2):
        step = step_of(made, index)
        loss = made.method(step)["info_nce"]
        with torch.no_grad():
            r = layers_of(parts, step.batch["anchor"])[0]
            value = heads["pseudo_tokens"].attention.value
            for layer in (value, value, heads["mlp"].linear):
                r = r @ layer.weight.T + layer.bias
            z = r.tanh()
        assert loss.item() == pytest.approx(info_nce(z, z, 0.05, held=held), abs=1e-6)
        held = z
        for _, component in made.method.components():
            component.after_step(step)


@pytest.mark.slow
def test_focal_infonce_alignment_and_uniformity_are_those_of_the_test_split():
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
def test_dclr_first_step_by_transformers(parts, name, heads):
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
