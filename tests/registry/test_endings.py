"""Full stops of sentences in a template: each code's rule written out, and where it acts."""

import json
import pickle

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.evaluation.encoder import SentenceEncoder
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.tokens import Sample
from registry.vocabulary import HubVocabulary, JoinedVocabulary
from tests.support.errors import refuses
from tests.support.tiny import tiny_gpt2

pytestmark = pytest.mark.slow

TEMPLATE = 'This sentence : "{text}" means {mask}.'
RULES = ("stop", "spaced_stop", "stop_only")
TABLE = [  # a text, and what the code of each rule's method makes of it
    ("A man plays", "A man plays.", "A man plays .", "A man plays."),
    ("A man plays.", "A man plays.", "A man plays.", "A man plays."),
    ("Does he play?", "Does he play?", "Does he play?", "Does he play."),
    ("He plays!", "He plays!.", "He plays!", "He plays!."),
    ('He says "yes"', 'He says "yes"', 'He says "yes"', "He says 'yes'"),
    ('He says "yes" loudly', 'He says "yes" loudly.', 'He says "yes" loudly .', "He says 'yes' loudly."),
    ("the dogs'", "the dogs'", "the dogs'", "the dogs'"),
    ("He plays. ", "He plays. .", "He plays. ", "He plays. ."),
    ("(darts)", "(darts).", "(darts)", "(darts)."),
    ("It's ...", "It's ...", "It's ...", "It's ..."),
    ("“yes”", "“yes”.", "“yes” .", "“yes”."),
    ("naïve é", "naïve é.", "naïve é .", "naïve é."),
    ("", "", "", ""),
]
TEXTS, *WRITTEN = map(list, zip(*TABLE, strict=True))
CODE = dict(zip(RULES, WRITTEN, strict=True))


def scored(encoder, texts):
    """Embeddings as evaluation computes them."""
    return SentenceEncoder(encoder, choose("cpu", "fp32"), None, 32)(texts)


@pytest.mark.parametrize("rule", CODE)
def test_evaluation_reads_what_the_code_writes(rule):
    plain = TransformerEncoder("mini_en", pooling="mask", template=TEMPLATE)
    made = TransformerEncoder("mini_en", pooling="mask", template=TEMPLATE, end_with=rule)
    torch.testing.assert_close(scored(made, TEXTS), scored(plain, CODE[rule]), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(scored(plain, TEXTS), scored(plain, CODE[rule]), rtol=1e-2)
    vocabulary = made.vocabulary
    assert vocabulary.ids(TEXTS, 32) == plain.vocabulary.ids(TEXTS, 32)  # training
    assert vocabulary.fingerprint == plain.vocabulary.fingerprint


@pytest.mark.parametrize("rule", CODE)
def test_in_training_too(rule):
    plain, made = HubVocabulary("mini_en", TEMPLATE), HubVocabulary("mini_en", TEMPLATE, rule, end_in_training=True)
    for vocabulary in (
        made,
        pickle.loads(pickle.dumps(made)),
        made.with_template(f"a {TEMPLATE}").with_template(TEMPLATE),
    ):
        assert vocabulary.ids(TEXTS, 32) == plain.ids(CODE[rule], 32)
        assert vocabulary.fingerprint != plain.fingerprint
    samples, written = (
        [Sample(first, second) for first, second in zip(texts, reversed(texts), strict=True)]
        for texts in (TEXTS, CODE[rule])
    )
    assert made.pieces(samples, 32) == plain.pieces(written, 32)
    encoder = TransformerEncoder("mini_en", pooling="mask", template=TEMPLATE, end_with=rule, end_in_training=True)
    assert encoder.vocabulary.fingerprint == made.fingerprint
    other = TransformerEncoder("mini_en", pooling="mask", template=TEMPLATE)
    torch.testing.assert_close(scored(encoder, TEXTS), scored(other, CODE[rule]), rtol=1e-6, atol=1e-6)


def test_an_ending_counts_toward_the_length_and_needs_a_template():
    vocabulary = HubVocabulary("mini_en", TEMPLATE, "stop", end_in_training=True)
    long = " ".join(["cat"] * 40)
    assert vocabulary.ids([long], 12) == HubVocabulary("mini_en", TEMPLATE).ids([long], 12)
    for values in ({"end_with": "stop"}, {"template": TEMPLATE, "end_in_training": True}):
        with refuses("vocabulary.no_ending", "end_with"):
            HubVocabulary("mini_en", **values)


def test_exports_and_pickles_end_sentences_too(tmp_path):
    made = TransformerEncoder("mini_en", pooling="mask", template=TEMPLATE, end_with="stop", end_in_training=True)
    made.export(tmp_path / "model", 32)
    again, length = open_encoder(str(tmp_path / "model"))
    assert torch.equal(SentenceEncoder(again, choose("cpu", "fp32"), None, length)(TEXTS), scored(made, TEXTS))
    assert json.loads((tmp_path / "model" / "cse.json").read_text())["end_with"] == "stop"
    assert "end_with = stop" in (tmp_path / "model" / "README.md").read_text()
    made = JoinedVocabulary(str(tiny_gpt2(tmp_path)), "a {text} .", "stop_only")
    again = pickle.loads(pickle.dumps(made))
    assert (again.end_with, again.ids(["cat"], 8)) == ("stop_only", made.ids(["cat"], 8))


@pytest.mark.parametrize("values", [{}, {"template_joined": True}, {"template": ["a {text}", "the {text} sees"]}])
def test_an_export_of_a_decoder_ends_sentences_too(tmp_path, values):
    shared = {"model": str(tiny_gpt2(tmp_path)), "pooling": "last", "template": 'a "{text}" sees'} | values
    made, plain = TransformerEncoder(**shared, end_with="stop_only"), TransformerEncoder(**shared)
    expected = scored(plain.eval(), CODE["stop_only"])
    torch.testing.assert_close(scored(made, TEXTS), expected, rtol=1e-6, atol=1e-6)
    made.export(tmp_path / "out", 32)
    torch.testing.assert_close(scored(open_encoder(str(tmp_path / "out"))[0], TEXTS), expected, rtol=1e-6, atol=1e-6)
