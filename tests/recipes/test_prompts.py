"""What templates and prefixes of the recipes make of a sentence: the authors' values, and the loss of a first step."""

import math
from random import Random

import pytest
import torch

from cse_cli.recipe.load import load
from registry.tokens import Sample
from registry.vocabulary import HubVocabulary
from tests.recipes.first_step import experiment, headed, info_nce, states_in_templates, step_of
from tests.registry.encoders.test_prefixed import by_hand
from tests.registry.losses.decoder import literal
from tests.registry.losses.literal import cosine


@pytest.mark.parametrize(("name", "quoted"), [("cot_bert_en", '"{text}"'), ("cot_bert_en_roberta", "' {text} '")])
def test_cot_bert_authors_settings(name, quoted):
    """`train.py` and the ReadMe."""
    recipe = load(name).recipe
    encoder, views, train = recipe.encoders["online"].params, recipe.views, recipe.train
    assert encoder["template"] == f"The sentence of {quoted} means {{mask}} , so it can be summarized as {{mask}} ."
    assert views["positive"].template == encoder["template"].replace(" of ", " : ", 1)
    negated = f"The sentence : {quoted} does not mean {{mask}} , so it cannot be summarized as {{mask}} ."
    assert views["hard"].template == negated
    assert (encoder["pooling"], encoder["denoise"], encoder.get("denoise_at_eval")) == ("last_mask", "padding", None)
    assert (encoder["end_with"], encoder.get("end_in_training")) == ("stop", None)  # `evaluation.py:227`
    assert (train.batch_size, train.learning_rate, train.epochs, train.seed) == (128, 1e-5, 1, 0)
    loss = recipe.losses["info_nce"].params
    assert (loss["temperature"], loss["positive_repels"], loss["hard_weight"]) == (0.05, True, 0.0)


@pytest.mark.slow
def test_cot_bert_first_step_by_hand(parts):
    made = experiment(parts, "cot_bert_en", 'views.positive.template="the {text} {mask} sees {mask} ."')
    step, mask = step_of(made), made.scored.vocabulary.mask
    anchor, positive, hard = (
        headed(made, states_in_templates(parts, step.batch[view], mask, "padding", last=True)).tolist()
        for view in ("anchor", "positive", "hard")
    )
    total = 0.0
    for i, (h, plus) in enumerate(zip(anchor, positive, strict=True)):
        pairs = [(h, other) for other in positive] + [(query, other) for query in (h, plus) for other in hard]
        logits = [cosine(*pair) / 0.05 for pair in pairs]
        total -= logits[i] - math.log(sum(map(math.exp, logits)))
    assert made.method.objective(made.method(step)).item() == pytest.approx(total / 4, abs=1e-9)


@pytest.mark.slow
def test_denosent_first_step_by_hand(parts):
    quiet = ("losses.denoising.noise=0.0", "losses.denoising.dropout=0.0")
    made = experiment(parts, "denosent_en", 'views.positive.template="the {text} sees {mask} ."', *quiet)
    step, mask = step_of(made), made.scored.vocabulary.mask
    weight, bias, _ = made.scored.heads["pooler"].dense()
    anchor, positive = (
        states_in_templates(parts, step.batch[view], mask) @ weight.T + bias for view in ("anchor", "positive")
    )
    tokens, backbone = step.batch["positive"], made.scored.backbone
    with torch.no_grad():
        views = (backbone.embeddings(tokens.ids), tokens.ids, tokens.mask, tokens.text, anchor)
        loss = made.method.losses["denoising"]
        rebuilt = literal(loss, backbone.embeddings.word_embeddings.weight, views)
    expected = 5 * info_nce(anchor, positive, 0.05) + 7 * rebuilt
    assert made.method.objective(made.method(step)).item() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("name", ["promcse_en_roberta", "promcse_en_roberta_large"])
def test_promcse_second_loss_fades_as_in_the_authors_code(name):
    """`promcse/trainers.py:116-119`: times 0.95^(step/100), over 1,000,000 sentences in batches of 64."""
    loss = load(name).recipe.losses["masked_language_modeling"]
    assert loss.weight_schedule is not None
    for step in range(0, 15_625, 125):
        theirs = 0.1 * 0.95 ** (step / 100)
        assert loss.weight_schedule.at(loss.weight, step, 15_625) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.slow
def test_promcse_first_step_by_hand(parts):
    """Without any dropout both views are one."""
    made = experiment(parts, "promcse_en", "encoders.online.initial=0.5")
    step = step_of(made)
    tokens = step.batch["anchor"]
    with torch.no_grad():
        rows = [
            by_hand(made.scored, ids[mask == 1].tolist())[0] for ids, mask in zip(tokens.ids, tokens.mask, strict=True)
        ]
    vectors = headed(made, torch.stack(rows))
    assert made.method.objective(made.method(step)).item() == pytest.approx(info_nce(vectors, vectors, 0.05), abs=1e-9)


def test_promptbert_text_is_cut_to_32_word_pieces():
    recipe = load("promptbert_en").recipe
    vocabulary = HubVocabulary("mini_en", recipe.encoders["online"].params["template"])
    tokens = vocabulary.pad(vocabulary.ids([" ".join(["cat"] * 60)], recipe.data.max_length))
    assert tokens.text is not None
    assert tokens.text.sum() == 32


@pytest.mark.slow
def test_promptbert_first_step_by_hand(parts):
    made = experiment(parts, "promptbert_en", 'views.positive.template="the {text} sees {mask} ."')
    step, mask = step_of(made), made.scored.vocabulary.mask
    vectors = {
        view: headed(made, states_in_templates(parts, step.batch[view], mask, "positions"))
        for view in ("anchor", "positive")
    }
    expected = info_nce(vectors["anchor"], vectors["positive"], 0.05)
    assert made.method.objective(made.method(step)).item() == pytest.approx(expected, abs=1e-9)
    assert not torch.equal(step.batch["anchor"].ids, step.batch["positive"].ids)


OTHER = 'views.{}.template="the {{text}} sees {{mask}} ."'


def test_sncse_32_places_leave_22_sub_words():
    """The authors count the template: 32 − 4 − 4 − 2, of whole words that the tokenizer knows."""
    recipe = load("sncse_en").recipe
    template = recipe.encoders["online"].params["template"]
    vocabulary = HubVocabulary("mini_en", template)
    tokens = vocabulary.pad(vocabulary.ids([" ".join(["cat"] * 60)], recipe.data.max_length))
    assert tokens.text is not None
    assert tokens.text.sum() == 22
    assert len(template.replace("{text}", "").split()) == 4 + 4


@pytest.mark.slow
def test_sncse_first_step_by_hand(parts):
    made = experiment(parts, "sncse_en", OTHER.format("positive"), OTHER.format("soft_negative"))
    step, mask = step_of(made), made.scored.vocabulary.mask
    anchor, positive, negated = (
        headed(made, states_in_templates(parts, step.batch[view], mask))
        for view in ("anchor", "positive", "soft_negative")
    )
    margin = 0.0
    for h, plus, minus in zip(anchor.tolist(), positive.tolist(), negated.tolist(), strict=True):
        difference = cosine(h, minus) - cosine(h, plus)
        margin += max(0.0, difference + 0.1) + max(0.0, -difference - 0.3)
    expected = info_nce(anchor, positive, 0.05) + 1e-3 * margin / 4
    assert made.method.objective(made.method(step)).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["sncse_en_roberta", "sncse_en_roberta_large"])
def test_sncse_32_places_leave_21_sub_words_of_roberta(name):
    """The authors' first part ends in a lone "Ġ" (`train_SNCSE.py:490-504`): 32 − 5 − 4 − 2."""
    assert load(name).recipe.data.max_length - 2 == 32 - 5 - 4 - 2


@pytest.mark.slow
def test_sncse_each_view_ends_in_a_full_stop(parts):
    """`train_SNCSE.py:511-516`, for a sentence with final punctuation and one without."""
    spec = experiment(parts, "sncse_en").specs
    texts = {"anchor": "the cat sees", "positive": "the cat sees", "soft_negative": "Not the cat sees"}
    for view, text in texts.items():
        vocabulary = spec[view].vocabulary
        plain = HubVocabulary(vocabulary.model, vocabulary.template)
        pieces = spec[view].pieces(["the cat sees", "the cat is."], Random(0), Random(0), 32)
        whole = {"soft_negative": "the cat is not."}.get(view, "the cat is.")
        assert pieces == plain.pieces([Sample(f"{text} ."), Sample(whole)], 32)
