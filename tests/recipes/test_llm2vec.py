"""LLM2Vec's two steps and prompts for decoders, through the command line on a tiny random model."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from tests.recipes.first_step import experiment, step_of
from tests.support.command import cse
from tests.support.shrunken import pairs
from tests.support.tiny import sentences, tiny_gpt2, tiny_llama, tiny_modernbert, tiny_opt, with_prediction_head
from tests.support.versions import needs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]


@pytest.fixture
def decoder(tmp_path):
    pytest.importorskip("peft", reason="peft is not installed (extra 'llm')")
    needs("bidirectional attention of decoders")
    return with_prediction_head(tiny_llama(tmp_path))


def run(recipe, parts, *more, capsys):
    """Run a recipe on a CPU."""
    changed, dropped = parts.options(load(recipe).recipe)
    options = [option for each in [*changed, *more] for option in ("--set", each)]
    options += [option for each in dropped for option in ("--unset", each)]
    code, _, err = cse("run", recipe, *options, "--device", "cpu", capsys=capsys)
    assert code == 0, err


def model_of(home: Path) -> Path:
    """Return the model of the newest run."""
    return max(home.glob("runs/*/model"), key=lambda folder: folder.stat().st_mtime_ns)


def test_llm2vecs_two_steps_through_the_command_line(parts, home, decoder, capsys):
    first = f"encoders.online.model={decoder}"
    run("llm2vec_mntp_en", parts, first, "train.steps=6", "train.learning_rate=1e-2", capsys=capsys)
    adapted = model_of(home)
    before, after = (load_file(folder / "model.safetensors") for folder in (decoder, adapted))
    assert not any("lora" in name for name in after)  # merged into the weights
    assert any((before[f"model.{name}"] != value).any() for name, value in after.items() if "proj" in name)
    assert TransformerEncoder(str(adapted)).attention == "bidirectional"

    second = f"encoders.online.model={adapted}"
    more = (second, "train.steps=6", "train.precision=bf16", "train.learning_rate=1e-2")
    run("llm2vec_simcse_en", parts, *more, capsys=capsys)
    trained = model_of(home)
    assert trained != adapted
    encoder, _ = open_encoder(str(trained))
    assert (encoder.attention, encoder.eval_pooling) == ("bidirectional", "text")
    again = load_file(trained / "model.safetensors")
    assert any((after[name] != value).any() for name, value in again.items())
    code, out, _ = cse("evaluate", str(trained), "--tasks", "stsb_open", "--device", "cpu", "--json", capsys=capsys)
    (scored,) = json.loads(out)["models"]
    assert code == 0
    assert scored["pooling"] == "text"


def first_step(name, parts, decoder, *more):
    """Return the first step of a recipe without dropout, in double precision, and its loss."""
    own = (f"encoders.online.model={decoder}", "encoders.online.lora_dropout=0.0")
    made = experiment(parts, name, *own, *more, dropout=None)
    step = step_of(made)
    return step, made.method.objective(made.method(step)).item()


def padding_alone(mask):
    """Return the mask (B, 1, L, L) that hides padding from everywhere and nothing else, to be added."""
    hidden = mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1) == 0
    return torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, torch.finfo(torch.float64).min)


def test_the_first_step_of_masked_next_token_prediction(parts, decoder):
    """transformers' own next-token loss, where it is asked for at the hidden places alone."""
    torch.manual_seed(1)
    step, loss = first_step("llm2vec_mntp_en", parts, decoder, "views.masked.augment.0.rate=0.5")
    tokens = step.views["masked"].tokens
    assert (tokens.targets >= 0).sum() > 4
    model = AutoModelForCausalLM.from_pretrained(decoder, attn_implementation="eager").double().eval()
    mask = padding_alone(tokens.mask)
    with torch.no_grad():
        scores = model(input_ids=tokens.ids, attention_mask=mask).logits.log_softmax(-1)
    values = [
        -scores[row, place - 1, target].item()
        for row, targets in enumerate(tokens.targets.tolist())
        for place, target in enumerate(targets)
        if target >= 0 and place > 0
    ]
    assert loss == pytest.approx(sum(values) / len(values), rel=1e-6)


def test_the_first_step_of_simcse(parts, decoder):
    """Means of the states of all tokens, all of which see each other, and cosines over 0.05, one by one."""
    step, loss = first_step("llm2vec_simcse_en", parts, decoder, "encoders.online.dropout=0.0")
    tokens = step.batch["anchor"]
    model = AutoModel.from_pretrained(decoder, attn_implementation="eager").double().eval()
    with torch.no_grad():
        states = model(tokens.ids, attention_mask=padding_alone(tokens.mask)).last_hidden_state
    vectors = [row[real == 1].mean(0) for row, real in zip(states, tokens.mask, strict=True)]
    total = 0.0
    for i, anchor in enumerate(vectors):
        scores = [float(torch.cosine_similarity(anchor, other, dim=0)) / 0.05 for other in vectors]
        total += math.log(sum(map(math.exp, scores))) - scores[i]
    assert loss == pytest.approx(total / len(vectors), abs=1e-6)


def test_the_evaluation_leaves_out_the_first_token(parts, decoder):
    """LLM2Vec's `encode` averages the tokens that the sentence alone has, without <s>."""
    scored = experiment(parts, "llm2vec_simcse_en", f"encoders.online.model={decoder}", dropout=None).scored
    tokenizer = AutoTokenizer.from_pretrained(decoder)
    model = AutoModel.from_pretrained(decoder, attn_implementation="eager").double().eval()
    texts = sentences(5)
    found = scored.encode_for_eval(scored.vocabulary.pad(scored.vocabulary.ids(texts, 32)))
    for text, vector in zip(texts, found, strict=True):
        given = tokenizer(text, return_tensors="pt")
        alone = len(tokenizer(text, add_special_tokens=False)["input_ids"])
        assert alone == given["input_ids"].shape[1] - 1
        with torch.no_grad():
            everywhere = torch.zeros(1, 1, alone + 1, alone + 1, dtype=torch.float64)
            states = model(given["input_ids"], attention_mask=everywhere).last_hidden_state[0]
        torch.testing.assert_close(vector, states[-alone:].mean(0), rtol=1e-6, atol=1e-7)


def spearman(left, right):
    ranks = [torch.tensor(values).argsort().argsort().double() for values in (left, right)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2, tiny_opt, tiny_modernbert])
def test_a_plain_directory_is_evaluated(make, tmp_path, capsys):
    """By transformers alone: the last token's state of a decoder, the first one's of an encoder, one by one."""
    folder = make(tmp_path)
    code, out, _ = cse("evaluate", str(folder), "--tasks", "stsb_open", "--device", "cpu", "--json", capsys=capsys)
    (scored,) = json.loads(out)["models"]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    place = 0 if make is tiny_modernbert else -1

    def vector(text):
        with torch.no_grad():
            return model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, place]

    found = pairs("stsb_open", "test")
    cosines = [float(torch.cosine_similarity(vector(p.first), vector(p.second), dim=0)) for p in found]
    expected = 100 * spearman(cosines, [pair.score for pair in found])
    assert code == 0
    assert scored["pooling"] == ("cls" if place == 0 else "last")
    assert scored["scores"]["stsb_open"]["spearman"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    ["prompteol_en", "pretended_cot_en", "knowledge_enhancement_en", "metaeol_en", "echo_en", "token_prepending_en"],
)
def test_recipes_without_training_score(name, parts, home, capsys):
    """What they save makes the same vectors."""
    loaded = load(name).recipe
    run(name, parts, capsys=capsys)
    again, _ = open_encoder(str(model_of(home)))
    values = {**dict(loaded.encoders["online"].params), "model": str(parts.decoder)}
    plain = TransformerEncoder(**values)
    texts = sentences(4)
    tokens = plain.vocabulary.pad(plain.vocabulary.ids(texts, 32))
    torch.testing.assert_close(again.encode_for_eval(tokens), plain.encode_for_eval(tokens), rtol=0, atol=0)


def test_decoder_without_dropout_layers_rejects_a_view_rate(tmp_path):
    encoder = f'encoders.online={{ name = "transformer", pooling = "mean", model = "{tiny_llama(tmp_path)}" }}'
    recipe = load("mini/simcse_en", [encoder, "views.positive.dropout=0.2"], ["encoders.online"]).recipe
    with pytest.raises(CseError, match=r"views\.positive\.dropout = 0\.2, but encoder 'online' has no dropout layer"):
        resolve(recipe, seed=0)
