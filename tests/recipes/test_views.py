"""First steps over changed views or dimensions: what the views see, and the losses."""

import math

import numpy as np
import pytest
import torch
from transformers import AutoModel

from cse_cli.core.devices import choose
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.recipe.load import load
from registry.resources import catalog
from tests.recipes.first_step import experiment, info_nce, layers_of, nt_xent, step_of
from tests.registry.heads.test_group_whitening import literal
from tests.registry.losses.literal import cosine, mixtures
from tests.registry.losses.neighborhood import both_ways, hardest, moved_by, neighbors, project, unit
from tests.registry.losses.test_decorrelation import correlation
from tests.support.tiny import sentences


def test_arccse_masked_spans_of_a_step_are_nested(parts):
    made = experiment(parts, "arccse_en")
    batch, mask = step_of(made).batch, made.scored.vocabulary.mask
    plain, near, far = (batch[view].ids for view in ("anchor", "near", "far"))
    sizes = batch["anchor"].mask.sum(1) - 2  # [CLS] and [SEP]
    for ids, rate in ((near, 0.2), (far, 0.4)):
        assert (ids == mask).sum(1).tolist() == [int(rate * n + 0.5) for n in sizes.tolist()]
        assert bool(((ids == plain) | (ids == mask)).all())
    assert bool(((near != mask) | (far == mask)).all())
    assert (far == mask).sum() > (near == mask).sum() > 0


@pytest.mark.slow
def test_arccse_first_step_by_hand(parts):
    made = experiment(parts, "arccse_en")
    step = step_of(made)
    losses = made.method(step)
    states = {}
    for view in ("anchor", "near", "far"):
        states[view] = made.scored.project(layers_of(parts, step.batch[view])[0]).tolist()
    a = states["anchor"]
    total = 0.0  # no dropout: the positive's angle is 0, and 10° with the margin
    for i, row in enumerate(a):
        logits = [math.cos(math.radians(10)) / 0.05 if j == i else cosine(row, b) / 0.05 for j, b in enumerate(a)]
        total += (math.log(sum(map(math.exp, logits))) - logits[i]) / len(a)
    assert losses["info_nce"].item() == pytest.approx(total, abs=1e-6)
    gaps = [
        cosine(row, far) - cosine(row, near) for row, near, far in zip(a, states["near"], states["far"], strict=True)
    ]
    assert losses["ordering"].item() == pytest.approx(sum(max(0.0, gap) for gap in gaps) / len(a), abs=1e-6)


def test_cards_small_recipe_searches_its_own_text():
    recipe = load("mini/cards_en").recipe
    assert recipe.data.dataset == (recipe.views["hard"].augment[0].params["dataset"],)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model"), [("cards_en_roberta", "roberta"), ("mini/cards_en", "bert")])
def test_cards_first_step_by_transformers(parts, name, model):
    made = experiment(parts, name, "views.hard.augment.0.neighbors=1", "views.hard.augment.0.limit=30")
    step = step_of(made)
    network = AutoModel.from_pretrained(parts.models[model]).double().eval()
    weight, bias, _ = made.scored.heads["mlp"].dense()

    def pooled(ids, searched=False):
        states = network(torch.tensor([ids])).last_hidden_state[0]
        return states[0] if model == "roberta" and not searched else states.mean(0)

    def headed(rows):
        return torch.stack([(weight @ pooled(ids) + bias).tanh() for ids in rows])

    vocabulary = made.scored.vocabulary
    corpus = [row["text"] for _, row in zip(range(30), catalog.open_text("tatoeba_open", "train"), strict=False)]
    corpus = list(dict.fromkeys(corpus))
    vectors = [pooled(ids, searched=True).tolist() for ids in vocabulary.ids(corpus, 32)]
    anchor = step.batch["anchor"]
    rows = [ids[mask == 1].tolist() for ids, mask in zip(anchor.ids, anchor.mask, strict=True)]
    cosines = [[cosine(pooled(ids, searched=True).tolist(), vector) for vector in vectors] for ids in rows]
    hard = vocabulary.ids([corpus[own.index(max(own))] for own in cosines], 32)
    h = headed(rows)
    value = made.method.objective(made.method(step)).item()
    assert value == pytest.approx(info_nce(h, h, 0.05, headed(hard).detach()), abs=1e-6)


EVERY = "views.positive.augment.0.shortest=0"


def test_mirror_bert_text_suffices_for_all_steps():
    assert catalog.entry("stsb_train_text").splits["train"].rows >= 50 * 200


@pytest.mark.slow
def test_mirror_bert_first_step_by_hand(parts):
    """Rows padded to 50 tokens and the mean of all of them, as in `contrastive_learning.py`."""
    made = experiment(parts, "mirror_bert_en", EVERY)
    step = step_of(made)
    vectors = []
    for view in ("anchor", "positive"):
        tokens = step.batch[view]
        more = (0, 50 - tokens.length)
        ids, mask = (torch.nn.functional.pad(one, more, value=0) for one in (tokens.ids, tokens.mask))
        states = made.scored.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors += states.mean(1).tolist()
    expected = nt_xent(vectors[:4], vectors[4:], 0.04)
    assert made.method.objective(made.method(step)).item() == pytest.approx(expected, abs=1e-9)


def test_mirror_bert_only_the_positive_has_a_mask(parts):
    made = experiment(parts, "mirror_bert_en", EVERY, dropout=None)
    batch, mask = step_of(made).batch, made.scored.vocabulary.mask
    assert (batch["positive"].ids == mask).sum(1).tolist() == [1] * 4
    assert not (batch["anchor"].ids == mask).any()


@pytest.mark.parametrize("mixed", ["all", "own"])
def test_mixcse_first_step_by_hand(parts, mixed):
    made = experiment(parts, "mixcse_en", f"losses.mixed_info_nce.mixtures={mixed}")
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    rows = step.views["anchor"].sentence.tolist()
    assert rows == step.views["positive"].sentence.tolist()  # no dropout: both views are alike
    total = 0.0
    for a, more in zip(rows, mixtures(mixed, rows, rows, 0.2, 0.05, normalize=False, off="zero"), strict=True):
        total += math.log(sum(math.exp(x) for x in [*(cosine(a, b) / 0.05 for b in rows), *more])) - 1 / 0.05
    assert found == pytest.approx(total / len(rows), abs=1e-6)


NARROW = "encoders.online.heads.projector.widths=[6,7,5]"


@pytest.mark.slow
def test_scd_first_step_by_hand(parts):
    made = experiment(parts, "scd_en", NARROW, "views.positive.dropout=0.0")
    step = step_of(made)
    plain = layers_of(parts, step.batch["anchor"])[0]  # without dropout both views are alike
    projected = plain
    for place, layer in enumerate(made.scored.heads["projector"].layers):
        projected = projected @ layer.weight.T
        if place < 2:
            deviation = (projected.var(0, unbiased=False) + 1e-5).sqrt()
            projected = ((projected - projected.mean(0)) / deviation).clamp(min=0)
    c = correlation(projected.tolist(), projected.tolist())
    same = sum((c[k][k] - 1) ** 2 for k in range(5))
    different = sum(c[k][m] ** 2 for k in range(5) for m in range(5) if k != m)
    losses = made.method(step)
    assert losses["similarity"].item() == pytest.approx(1 / 0.05, abs=1e-6)
    assert losses["decorrelation"].item() == pytest.approx(same + 0.012 * different, abs=1e-6)
    expected = 1 / 0.05 + 0.005225 * (same + 0.012 * different)
    assert made.method.objective(losses).item() == pytest.approx(expected, abs=1e-6)


def test_scd_views_differ_by_rate_and_repulsion_skips_projector(parts):
    made = experiment(parts, "scd_en", NARROW, "views.positive.dropout=0.9")
    step = step_of(made)
    losses = made.method(step)
    anchor, positive = (step.views[view] for view in ("anchor", "positive"))
    assert torch.equal(anchor.embeddings, step.unperturbed["anchor"])  # its rate is 0 here
    assert (positive.embeddings == 0).double().mean() == pytest.approx(0.9, abs=0.05)
    rows = zip(anchor.before_heads.tolist(), positive.before_heads.tolist(), strict=True)
    assert losses["similarity"].item() == pytest.approx(sum(cosine(a, b) for a, b in rows) / 4 / 0.05, abs=1e-6)
    losses["similarity"].backward()
    assert all(p.grad is None for p in made.scored.heads.parameters())


@pytest.mark.slow
def test_simcse_pp_first_step_by_hand(parts):
    made = experiment(parts, "simcse_pp_en")
    step = step_of(made)
    layer = made.scored.heads["mlp"].linear
    plain = (layers_of(parts, step.batch["anchor"])[0] @ layer.weight.T + layer.bias).tanh()
    contrast = info_nce(plain, plain, 0.05)  # without dropout all three views are alike
    c = correlation(plain.tolist(), plain.tolist())
    dimensions = sum(math.log(sum(math.exp(x / 5) for x in row)) - row[k] / 5 for k, row in enumerate(c)) / len(c)
    losses = made.method(step)
    assert losses["split_contrast"].item() == pytest.approx(contrast, abs=1e-6)
    assert losses["dimension_contrast"].item() == pytest.approx(dimensions, abs=1e-6)
    assert made.method.objective(losses).item() == pytest.approx(contrast + 0.1 * dimensions, abs=1e-6)


def test_simcse_pp_only_the_third_view_has_no_dropout_and_it_is_trained(parts):
    made = experiment(parts, "simcse_pp_en", "encoders.online.dropout=0.5")
    step = step_of(made)
    losses = made.method(step)
    plain = made.scored.eval().encode(step.batch["undropped"], step.unperturbed["undropped"]).sentence
    vectors = {view: step.views[view].sentence for view in step.views}
    torch.testing.assert_close(vectors["undropped"], plain)
    assert not any(torch.allclose(vectors[view], plain, atol=0.01) for view in ("anchor", "positive"))
    (gradient,) = torch.autograd.grad(losses["split_contrast"], vectors["undropped"])
    assert gradient.any()


@pytest.mark.slow
def test_vascl_first_step_by_hand(parts):
    made = experiment(parts, "vascl_en")
    step = step_of(made)
    torch.manual_seed(9)
    losses = made.method(step)
    torch.manual_seed(9)
    first = [unit([x - 0.5 for x in row]) for row in torch.rand(4, 16, dtype=torch.float64).tolist()]
    rows = layers_of(parts, step.batch["anchor"])[1][:, -1].tolist()
    plain = project(made.scored, rows)
    # Without dropout both views are alike.
    assert losses["nt_xent"].item() == pytest.approx(nt_xent(plain, plain, 0.05), abs=1e-6)
    near, epsilon = neighbors(rows, 3), 15.0
    moved = project(made.scored, moved_by(rows, hardest(made.scored, rows, first, near, epsilon, 0.05), epsilon))
    assert losses["virtual_neighbors"].item() == pytest.approx(both_ways(plain, moved, near, 0.05), abs=1e-6)


@pytest.mark.slow
def test_whitenedcse_first_step_by_numpy(parts):
    settings = "encoders.online.heads.group_whitening."
    made = experiment(parts, "whitenedcse_en", f"{settings}groups=4", f"{settings}epsilon=0.01")
    step = step_of(made)
    pooled = layers_of(parts, step.batch["anchor"])[0].numpy()
    torch.manual_seed(7)
    losses = made.method(step)
    torch.manual_seed(7)
    orders = [torch.rand(16).argsort().tolist() for _ in range(3)]
    weight, bias, _ = made.scored.heads["mlp"].dense()
    weight, bias = weight.detach().numpy(), bias.detach().numpy()
    thirds = np.split(pooled.repeat(3, axis=0), 3)  # the three copies of a sentence are next to each other
    white = np.concatenate([literal(third, 4, order, 0.01) for third, order in zip(thirds, orders, strict=True)])
    anchor, first, second = (torch.from_numpy(np.tanh(white[copy::3] @ weight.T + bias)) for copy in range(3))
    expected = {"first": info_nce(anchor, first, 0.05), "second": info_nce(anchor, second, 0.05)}
    assert {label: value.item() for label, value in losses.items()} == pytest.approx(expected, abs=1e-6)
    assert made.method.objective(losses).item() == pytest.approx(sum(expected.values()), abs=1e-6)


@pytest.mark.parametrize("name", ["consert_en", "consert_en_large"])
def test_consert_warm_up_is_a_tenth_of_all_steps(name):
    train = load(name).recipe.train
    steps = catalog.entry("sts_text").splits["train"].rows // train.batch_size * train.epochs
    assert train.warmup_steps == math.floor(steps / 10)


@pytest.mark.slow
def test_consert_views_differ_by_cut_features_and_by_positions_alone(parts):
    made = experiment(parts, "consert_en", dropout=None)
    step = step_of(made)
    losses = made.method(step)
    assert list(losses) == ["nt_xent"]
    anchor, positive = step.embedded["anchor"], step.embedded["positive"]
    assert torch.equal(anchor.tokens.ids, positive.tokens.ids)
    width = anchor.vectors.shape[-1]
    assert (anchor.vectors == 0).all(dim=1).sum(1).tolist() == [int(width * 0.2)] * 4
    length = anchor.tokens.length
    assert anchor.tokens.positions.tolist() == [list(range(length))] * 4
    assert positive.tokens.positions.sort(1).values.tolist() == [list(range(length))] * 4
    assert not torch.equal(positive.tokens.positions, anchor.tokens.positions)
    assert torch.equal(step.views["anchor"].embeddings, anchor.vectors)  # dropout 0: what is cut stays what was made
    made.method.objective(losses).backward()
    assert all(
        p.grad is not None for n, p in made.scored.named_parameters() if n.endswith("position_embeddings.weight")
    )


@pytest.mark.slow
def test_consert_large_recipe_leaves_one_view_alone_and_drops_out(parts):
    made = experiment(parts, "consert_en_large", dropout=None)
    step = step_of(made)
    made.method(step)
    assert not (step.embedded["anchor"].vectors == 0).any()
    assert not torch.equal(step.views["anchor"].embeddings, step.embedded["anchor"].vectors)


@pytest.mark.slow
def test_consert_none_of_it_is_active_at_evaluation(parts):
    """Whatever the views do, scored vectors are those of the sentence itself, the same every time."""
    every = [
        '{name="token_cutoff",rate=0.3,at_least=1}', '{name="feature_cutoff",rate=0.2}',
        '{name="embedding_dropout",rate=0.3}', '{name="token_shuffle"}', '{name="repeat_words",rate=1.0}',
    ]  # fmt: skip
    made = experiment(parts, "consert_en", f"views.anchor.augment=[{','.join(every)}]", dropout=None)
    made.method.float()
    encode = SentenceEncoder(made.scored, choose("cpu"), 4, 64, made.specs)
    texts = sentences(6)
    tokens = made.scored.vocabulary.pad(made.scored.vocabulary.ids(texts, 64))
    plain = made.scored.encode_for_eval(tokens)
    for seed in (1, 2):
        torch.manual_seed(seed)
        assert torch.allclose(encode(texts), plain, atol=1e-5)
    assert not torch.allclose(encode.encode_view("anchor", {"text": texts}), plain, atol=1e-2)
    assert torch.allclose(
        encode.encode_view("anchor", {"text": texts}), encode.encode_view("anchor", {"text": texts}), atol=1e-6
    )
