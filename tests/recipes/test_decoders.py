"""Prompts for decoders as their recipes put them together, against the authors' code written out."""

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from cse_cli.recipe.load import load
from registry.encoders.contrastive_prompting import ContrastivePromptingEncoder
from registry.encoders.transformer import TransformerEncoder
from registry.vocabulary import HubVocabulary, in_evaluation
from tests.registry.encoders.test_contrastive_prompting import published
from tests.registry.encoders.test_families import prepended
from tests.support.tiny import sentences, tiny_llama

pytestmark = pytest.mark.slow

EXAMPLE = (
    'This_sentence_:_"A_man_is_smoking."_means_in_one_word:"Smoking".This_sentence_:_"*sent_0*"_means_in_one_word:"'
)
THINKING = 'After thinking step by step , this sentence : "*sent_0*" means in one word:"'
KNOWING = (
    "The essence of a sentence is often captured by its main subjects and actions, while descriptive terms provide "
    'additional but less central details. With this in mind , this sentence : "*sent_0*" means in one word:"'
)


TEXTS = ["a man sings", "the dog runs.", 'a "red" cat', "the house is big?", "sees the dog!", 'not a "cat?"', "a 'b'"]


def changed(s):
    """The same three lines in all four codes: scaling_sentemb @8567aa0, evaluation.py:198-200."""
    if len(s) > 0 and s[-1] not in ".?\"'":
        s += "."
    s = s.replace('"', "'")
    if len(s) > 0 and s[-1] == "?":
        s = s[:-1] + "."
    return s


@pytest.mark.parametrize(
    ("name", "template", "place"),
    [
        ("prompteol_en", EXAMPLE, -1),  # scaling_sentemb @8567aa0, run_icl.sh:5 and evaluation.py:223
        ("pretended_cot_en", THINKING, -2),  # PretCoTandKE @ad3a799, settings.py:11 and evaluation.py:267
        ("knowledge_enhancement_en", KNOWING, -2),
    ],
)
def test_one_prompt_as_in_the_authors_code(tmp_path, name, template, place):
    """One text from template and sentence, padded on the left, and the last token's state of the authors' layer."""
    params = load(name).recipe.encoders["online"].params
    folder = str(tiny_llama(tmp_path, layers=32, positions=256))
    encoder = TransformerEncoder(**{**dict(params), "model": folder})
    tokenizer, network = AutoTokenizer.from_pretrained(folder, padding_side="left"), AutoModel.from_pretrained(folder)
    tokenizer.pad_token_id = 0
    filled = [template.replace("_", " ").replace("*sent 0*", changed(text)).strip() for text in TEXTS]
    texts = in_evaluation(encoder.vocabulary, TEXTS)
    assert encoder.templates == [template.replace("_", " ").replace("*sent 0*", "{text}")]
    with torch.no_grad():
        states = network(**tokenizer(filled, return_tensors="pt", padding=True), output_hidden_states=True)
    found = encoder.encode_for_eval(encoder.vocabulary.pad(encoder.vocabulary.ids(texts, 64)))
    torch.testing.assert_close(found, states.hidden_states[place][:, -1], rtol=1e-5, atol=1e-6)
    if place == -2:
        assert (found - states.hidden_states[-1][:, -1]).norm() > 0.1 * found.norm()  # the last layer, as before


def test_token_prepending_as_in_the_authors_code(tmp_path):
    """`senllm/modeling_llama.py:519-615` @cc41b58 for one sentence: blocks from 0, the state before block 27."""
    params = load("token_prepending_en").recipe.encoders["online"].params
    assert (params["prepend"], params["layer"]) == ([1, 7], 27)  # config.yaml, llama-2-7b-tp
    assert params["template"].replace("<unk>", "<PST>") == 'This sentence : <PST> "{text}" means in one word:"'
    folder = str(tiny_llama(tmp_path, layers=32, positions=256))
    given = {**dict(params), "model": folder, "placeholder": "_"}
    encoder = TransformerEncoder(**{**given, "template": params["template"].replace("<unk>", "_")})
    network = AutoModel.from_pretrained(folder, attn_implementation="eager")
    (ids,) = encoder.vocabulary.ids(in_evaluation(encoder.vocabulary, sentences(1)), 64)
    assert encoder.vocabulary.id_of(".") in ids
    with torch.no_grad():
        outputs, _ = prepended(network, torch.tensor(ids), ids.index(encoder.vocabulary.id_of("_")), 1, 7)
    found = encoder.encode_for_eval(encoder.vocabulary.pad([ids]))
    torch.testing.assert_close(found, outputs[26][:, -1], rtol=1e-5, atol=1e-6)


def test_contrastive_prompting_as_in_the_authors_code(tmp_path):
    """CP @bf5ee56: evaluate_intervention.py:194-289 with the command of README.md:50-61, and its hook "scaled"."""
    params = load("contrastive_prompting_en").recipe.encoders["online"].params
    folder = str(tiny_llama(tmp_path, layers=32, positions=256))
    encoder = ContrastivePromptingEncoder(**{**dict(params), "model": folder})
    sentence = 'his sentence : "{text}" means in one word:"'
    prompts = f"T{sentence}", f"The irrelevant information of t{sentence}"
    expected = published(folder, 4, "scaled", 0.5, 27, [changed(text) for text in TEXTS], prompts)
    ids = encoder.vocabulary.ids(in_evaluation(encoder.vocabulary, TEXTS), 64)
    torch.testing.assert_close(encoder.encode_for_eval(encoder.vocabulary.pad(ids)), expected, rtol=1e-5, atol=1e-6)


def test_the_eight_prompts(tmp_path):
    """MetaEOL: the last layer's state of the last token, averaged over the prompts (evaluation.py:164-165)."""
    params = load("metaeol_en").recipe.encoders["online"].params
    ends = [template.rpartition('"{text}"')[2] for template in params["template"]]
    assert ends == [
        ' should be classified under one general category in one word:"',
        ' discriminates between opinion and fact in one word:"',
        ' reflects the sentiment in one word:"',
        ' conveys the emotion in one word:"',
        ' means in one word:"',
        ' means in one word:"',
        ' encapsulates the key fact in one word:"',
        ' highlights the primary entity or relation in one word:"',
    ]
    folder = str(tiny_llama(tmp_path, layers=3, positions=256))
    encoder = TransformerEncoder(**{**dict(params), "model": folder})
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    (text,) = sentences(1)
    states = [
        network(**tokenizer(template.replace("{text}", text + "."), return_tensors="pt")).last_hidden_state[0, -1]
        for template in params["template"]
    ]
    ids = encoder.vocabulary.ids(in_evaluation(encoder.vocabulary, [text]), 64)
    found = encoder.encode_for_eval(encoder.vocabulary.pad(ids))[0]
    torch.testing.assert_close(found, torch.stack(states).mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "prompteol_en",
        "pretended_cot_en",
        "knowledge_enhancement_en",
        "metaeol_en",
        "echo_en",
        "token_prepending_en",
        "contrastive_prompting_en",
    ],
)
def test_the_settings_of_all(name):
    recipe = load(name).recipe
    assert (recipe.train.steps, recipe.train.precision) == (0, "fp32")
    ending = recipe.encoders["online"].params.get("end_with")
    assert ending == (None if name == "echo_en" else "stop_only")  # Echo's code changes no sentence
    expected = TEXTS if ending is None else [changed(text) for text in TEXTS]
    assert in_evaluation(HubVocabulary("x", "{text}", ending), TEXTS) == expected
