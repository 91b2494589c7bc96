import math
import random

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.data.batches import ViewSpec
from cse_cli.evaluation.encoder import SentenceEncoder
from registry import AUGMENTERS, ENCODERS, EVALUATORS
from registry.errors import MissingError
from registry.evaluators.augmentation_quality import AugmentationQuality
from registry.resources import catalog
from registry.resources.catalog import Pair
from registry.types import Augmenter
from tests.registry.evaluators.points import ANGLES
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert


class Angles:
    """Sentences are angles; the view turns some of them, and remembers what it was asked."""

    def __init__(self, turned=None):
        self.turned = turned or {}
        self.asked = []

    def __call__(self, texts):
        return self._vectors(ANGLES[text] for text in texts)

    def encode_view(self, view, columns):
        self.asked.append((view, {name: list(cells) for name, cells in columns.items()}))
        return self._vectors(self.turned.get(text, ANGLES[text]) for text in columns["text"])

    def _vectors(self, degrees):
        radians = torch.tensor([math.radians(angle) for angle in degrees])
        return torch.stack([radians.cos(), radians.sin()], dim=1)


class Needs(Angles):
    """The same where the view reads a second column."""

    def encode_view(self, view, columns):
        if "translation" not in columns:
            raise MissingError(f"view '{view}' needs 'translation'", "add it to the data", code="data.missing_column")
        return super().encode_view(view, columns)


def written(folder, rows):
    path = folder / "pairs.tsv"
    path.write_text("text\ttranslation\n" + "".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return str(path)


def test_value_by_hand(pairs):
    # Plain: 70, as worked out in test_sts. Turned, c lies at 100 degrees, so angles are 10 50 100 110 35: cosine ranks
    # 5 3 2 1 4 against gold ranks 5 3 4 2 1: rho = 1 - 6 * (0 + 0 + 4 + 1 + 9) / 120 = 0.3.
    found = AugmentationQuality("x", "twin")(Angles({"c": 100}))
    assert found["spearman"] == pytest.approx(30.0)
    assert found["spearman_plain"] == pytest.approx(70.0)
    assert found["spearman_change"] == pytest.approx(-40.0)
    assert found["pearson_change"] == pytest.approx(found["pearson"] - found["pearson_plain"])
    found = AugmentationQuality("x", "twin")(Angles(dict.fromkeys(ANGLES, 30)))
    assert (found["spearman"], found["pearson"]) == (0.0, 0.0)
    assert found["spearman_change"] == -found["spearman_plain"]


def test_a_view_that_changes_nothing_scores_as_sts_does(pairs):
    rng = random.Random(0)
    for aggregate in ("all", "mean", "wmean"):
        rows = [Pair(f"s{i % 2}", rng.random(), *rng.sample("abcdef", 2)) for i in range(14)]
        pairs(rows)
        found = AugmentationQuality("x", "twin", aggregate=aggregate)(Angles())
        plain = EVALUATORS["sts"].build({"dataset": "x", "aggregate": aggregate})(Angles())
        for name in ("spearman", "pearson"):
            assert found[name] == found[f"{name}_plain"] == plain[name]
            assert found[f"{name}_change"] == 0.0


def test_both_sides_or_the_first(pairs):
    both, first = Angles({"c": 100}), Angles({"c": 100})
    AugmentationQuality("x", "twin")(both)
    found = AugmentationQuality("x", "twin", sides="first")(first)
    assert both.asked == [("twin", {"text": ["a", "a", "a", "b", "d", "b", "d", "c", "f", "e"]})]
    assert first.asked == [("twin", {"text": ["a", "a", "a", "b", "d"]})]
    assert found["spearman"] == found["spearman_plain"]  # only second sentences hold c


def test_translations_stand_beside_their_sentences_under_any_name(pairs, tmp_path):
    pairs([Pair("", 1.0, "a", "b"), Pair("", 2.0, "c", " a ")])
    file = written(tmp_path, [("b", "B"), (" a", "A"), ("c", "C"), ("unused", "U")])
    encode = Needs()
    AugmentationQuality("x", "twin", translations=file)(encode)
    assert encode.asked == [("twin", {"text": ["a", "c", "b", "a"], "translation": ["A", "C", "B", "A"]})]
    file = tmp_path / "x.tsv"
    file.write_text("german\ttext\nB\tb\nA\ta\n", encoding="utf-8")
    pairs([Pair("", 1.0, "a", "b"), Pair("", 2.0, "b", "b")])
    encode = Angles()
    AugmentationQuality("x", "twin", translations=str(file), column="german", sides="first")(encode)
    assert encode.asked == [("twin", {"text": ["a", "b"], "german": ["A", "B"]})]


def test_sentences_without_translation_are_named(pairs, tmp_path):
    file = written(tmp_path, [("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")])
    with refuses("evaluators.no_translations", "pairs.tsv", "2 of 6", "'f'"):
        AugmentationQuality("x", "twin", translations=file)(Angles())
    with refuses("evaluators.no_translations", "'x/test'", "'twin'", "[data.columns.translation]"):
        AugmentationQuality("x", "twin")(Needs())


def test_fingerprints_cover_the_translations_and_a_missing_file_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("CSE_DATA", str(tmp_path))
    with refuses("data.missing_file", "augmentation_quality", "de.tsv", tmp_path):
        AugmentationQuality("x", "twin", translations="de.tsv")
    with refuses("data.missing_file", "augmentation_quality", "/nowhere/de.tsv\n"):
        AugmentationQuality("x", "twin", translations="/nowhere/de.tsv")
    monkeypatch.setattr(catalog, "fingerprint", lambda dataset, split: f"digest of {dataset} {split}")
    assert AugmentationQuality("x", "twin", "dev").fingerprints() == {"x/dev": "digest of x dev"}
    one = AugmentationQuality("x", "twin", translations=written(tmp_path, [("a", "A")])).fingerprints()
    other = AugmentationQuality("x", "twin", translations=written(tmp_path, [("a", "B")])).fingerprints()
    assert set(one) == {"x/test", "pairs.tsv/translation"}
    assert one["x/test"] == other["x/test"]
    assert one["pairs.tsv/translation"] != other["pairs.tsv/translation"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    model = str(tiny_bert(tmp_path_factory.mktemp("model")))
    return ENCODERS["transformer"].build({"model": model, "pooling": "mean"})


def looking_through(encoder, *augmenters, max_length=32):
    """Return an `Encode` with one view, "twin"."""
    for augmenter in augmenters:
        augmenter.bind(encoder)
    side = {a.column: a.vocabulary for a in augmenters if a.column is not None}
    specs = {"twin": ViewSpec("text", encoder.vocabulary, side, list(augmenters))}
    return SentenceEncoder(encoder, choose("cpu"), 4096, max_length, specs)


@pytest.fixture
def graded(pairs, tmp_path):
    """Serve pairs the tiny encoder reads; return a file of their translations."""
    left, right = sentences(20, seed=1), sentences(20, seed=2)
    pairs([Pair("", float(i * 7 % 20), one, other) for i, (one, other) in enumerate(zip(left, right, strict=True))])
    return written(tmp_path, list(zip([*left, *right], [*right, *left], strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["source", "union"])
def test_fraternal_twins_of_a_real_encoder(graded, encoder, mask):
    """The more of the other language is mixed in, the further the score moves; a share of 0 leaves it."""
    changes = []
    for rate in (1.0, 0.9, 0.3):
        values = {"model": encoder.model, "rate": rate, "mask": mask}
        encode = looking_through(encoder, AUGMENTERS["fuse_embeddings"].build(values))
        found = AugmentationQuality("x", "twin", translations=graded)(encode)
        assert found == AugmentationQuality("x", "twin", translations=graded)(encode)
        changes.append(abs(found["pearson_change"]))
    if mask == "source":
        assert changes[0] == pytest.approx(0.0, abs=1e-4)
    assert changes[1] > 0.01
    assert changes[2] > changes[1]


def test_text_is_augmented_before_the_tokenizer_and_what_is_missing_told(graded, encoder):
    encode = looking_through(encoder, AUGMENTERS["fuse_embeddings"].build({"model": encoder.model}))
    with refuses("evaluators.no_translations", "'twin'", "'translation'"):
        AugmentationQuality("x", "twin")(encode)
    with refuses("evaluate.unknown_view", "'twim'", "Did you mean 'twin'?"):
        AugmentationQuality("x", "twim")(encode)

    class Shout(Augmenter):
        def on_text(self, samples, rng):
            return [type(s)(" ".join(reversed(s.text.split()))) for s in samples]

    found = AugmentationQuality("x", "twin")(looking_through(encoder, Shout()))
    assert abs(found["pearson_change"]) > 0.01
