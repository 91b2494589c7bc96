"""Sentences in a template: ids, lengths, and where the sentence stands."""

import pickle

import pytest
import torch

from registry.masking import Masking
from registry.tokens import Pieces, Sample, Tokens
from registry.vocabulary import HubVocabulary
from tests.registry.encoders.test_families import byte_level
from tests.registry.test_vocabulary import byte_level_roberta
from tests.support.errors import refuses
from tests.support.tiny import tiny_bert, tiny_gpt2

BERT = 'This sentence of "{text}" means {mask}.'
ROBERTA = "This sentence : ' {text} ' means {mask}."
TEXTS = ["A cat sees the dog.", "", "the unfinished", "Colorless green ideas sleep furiously"]


def by_hand(vocabulary, template, text):
    """What the tokenizer makes of the whole string at once."""
    whole = template.replace("{mask}", vocabulary.tokenizer.mask_token).replace("{text}", text)
    return vocabulary.tokenizer(whole)["input_ids"]


def test_ids_are_those_of_the_whole_string(tmp_path):
    vocabulary = HubVocabulary("mini_en", BERT)
    assert vocabulary.ids(TEXTS, 64) == [by_hand(vocabulary, BERT, text) for text in TEXTS]
    vocabulary = HubVocabulary(str(byte_level_roberta(tmp_path)), ROBERTA)
    texts = [text for text in TEXTS if text]
    assert vocabulary.ids(texts, 64) == [by_hand(vocabulary, ROBERTA, text) for text in texts]


def test_cached_ids_and_assembled_pieces_are_one_and_say_where_the_sentence_stands():
    vocabulary = HubVocabulary("mini_en", BERT)
    padded = vocabulary.pad(vocabulary.ids(TEXTS, 16))
    made = vocabulary.tokens([Sample(text) for text in TEXTS], 16)
    for name in ("ids", "mask", "types", "positions", "text"):
        assert torch.equal(getattr(padded, name), getattr(made, name))
    tokens = vocabulary.pad(vocabulary.ids(TEXTS, 16))
    pieces = vocabulary.pieces([Sample(text) for text in TEXTS], 16)
    for row, piece in enumerate(pieces):
        assert tuple(tokens.ids[row][tokens.text[row] == 1].tolist()) == piece.first
    _, hidden = Masking("test", vocabulary, 1.0, 0.8, 0.1).hide(tokens)
    assert torch.equal(hidden, tokens.text == 1)


@pytest.mark.parametrize(
    ("template", "prefix", "prompt"),
    [
        (None, "", ""),
        ("{text}", "", ""),
        ("query: {text}", "query: ", "query: "),
        ("query:{text}", "query:", "query:"),
        ("query{text}", "query", None),  # one word with the sentence
        ("query: {text}.", None, None),
        ("a {text} is a {text}", None, None),
        ("{mask} is {text}", None, None),
    ],
)
def test_a_template_is_a_prompt_if_one_text_has_the_same_tokens(template, prefix, prompt):
    vocabulary = HubVocabulary("mini_en", template)
    assert (vocabulary.prefix, vocabulary.prompt) == (prefix, prompt)
    if prompt is not None:
        plain = HubVocabulary("mini_en").ids([prompt + text for text in TEXTS], 6 + vocabulary.prompt_length)
        assert vocabulary.ids(TEXTS, 6) == plain
    if template:
        assert HubVocabulary("mini_en", template, "stop").prompt is None


def test_a_byte_level_tokenizer_can_join_the_end_of_a_prompt_with_a_sentence(tmp_path):
    folder = tiny_gpt2(tmp_path)
    byte_level(folder)
    assert [HubVocabulary(str(folder), text).prompt for text in ("a. {text}", "a.{text}")] == ["a. ", None]


@pytest.mark.slow
def test_prompts_gaps_and_places_of_templates():
    texts = [text for text in TEXTS if text]
    prompted = HubVocabulary("mini_en").ids([f"query: {text}" for text in texts], 64)
    assert HubVocabulary("mini_en", "query: {text}").ids(texts, 64) == prompted
    template = "a {text} is a {text}"
    vocabulary = HubVocabulary("mini_en", template)
    (row,) = vocabulary.ids(["cat dog"], 16)
    assert row == by_hand(vocabulary, template, "cat dog")
    assert vocabulary.pad([row]).text.tolist() == [[0, 0, 1, 1, 0, 0, 1, 1, 0]]
    assert vocabulary.longest(9) == 4
    vocabulary = HubVocabulary("mini_en", BERT)
    short, long = (vocabulary.pad(vocabulary.ids([text], 32)) for text in ("cat", "the cat sees the dog"))
    stacked = Tokens.stack({"a": short, "b": long})
    assert torch.equal(stacked.text[0, : short.length], short.text[0])
    assert stacked.text[0, short.length :].sum() == 0
    plain = HubVocabulary("mini_en")
    mixed = Tokens.stack({"a": short, "b": plain.pad(plain.ids(["the cat"], 32))})
    assert torch.equal(mixed.text[1], mixed.mask[1])


@pytest.mark.slow
def test_lengths_do_not_count_the_template_which_is_pickled():
    plain, vocabulary = HubVocabulary("mini_en"), HubVocabulary("mini_en", BERT)
    long = " ".join(["cat"] * 50)
    sentence = plain.ids([long], 12)[0][1:-1]
    row = vocabulary.ids([long], 12)[0]
    assert len(sentence) == 10
    template = by_hand(vocabulary, BERT, "")
    assert len(row) == len(template) + 10
    assert vocabulary.longest(len(row)) == 12
    assert vocabulary.room(12) == plain.room(12) == 10
    vocabulary = HubVocabulary("mini_en", BERT)
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again.ids(TEXTS, 16) == vocabulary.ids(TEXTS, 16)
    other = vocabulary.with_template("{text}: {mask}")
    assert len({vocabulary.fingerprint, other.fingerprint, HubVocabulary("mini_en").fingerprint}) == 3
    assert vocabulary.with_template(BERT) is vocabulary


def test_invalid_templates_are_rejected(tmp_path):
    for template in ("This means {mask}.", '"{text}" or {text}'):
        with refuses("vocabulary.invalid_template", template, "{text}"):
            HubVocabulary("mini_en", template)
    with refuses("vocabulary.pair_in_template"):
        HubVocabulary("mini_en", BERT).assemble([Pieces((7,), (8,))])
    with refuses("vocabulary.invalid_template", "{mask}"):
        HubVocabulary("mini_en", BERT).with_template("{text} .")
    vocabulary = HubVocabulary(str(tiny_bert(tmp_path)), BERT)
    vocabulary.tokenizer.mask_token = None
    with refuses("vocabulary.no_mask", BERT):
        vocabulary.ids(["a cat"], 16)
