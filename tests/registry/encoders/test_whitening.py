import json
import math
from itertools import islice

import numpy as np
import pytest
import torch

from registry import ENCODERS
from registry.encoders.adjusted import CHUNK
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.encoders.whitening import Moments, whitening
from registry.errors import MissingError, RunFailedError, UnknownNameError
from registry.heads.mlp import Mlp
from registry.resources import catalog
from registry.resources.models import is_native
from tests.registry.encoders.vectors import Given, encoding
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert

TEXTS = sentences(60, seed=3)


def fitted(rows, **values):
    """A whitening of an encoder whose vectors are `rows`, fitted to all of them."""
    base = Given(rows)
    encoder = ENCODERS["whitening"].build({"fit_on": "target", **values}, {"online": base})
    encoder.fit(encoding(encoder), base.sentences)
    return encoder, encoding(encoder)(base.sentences)


def test_value_by_hand():
    # Mean (3, 1); covariance diag(8/3·... ): deviations ±2 and ±1 in two independent directions, each twice, n − 1 = 3:
    # variances 16/3 and 4/3. (5, 2) is (2, 1) from the mean, so it becomes ±(2·√(3/16), 1·√(3/4)) = ±(0.866, 0.866).
    rows = torch.tensor([[5.0, 2.0], [5.0, 0.0], [1.0, 2.0], [1.0, 0.0]])
    _, vectors = fitted(rows)
    assert vectors.abs() == pytest.approx(torch.full((4, 2), math.sqrt(0.75)), abs=1e-6)
    _, first = fitted(rows, k=1)
    assert first[:, 0].abs() == pytest.approx(torch.full((4,), math.sqrt(0.75)), abs=1e-6)
    assert first[0, 0] == pytest.approx(float(first[1, 0]))  # the wide direction alone tells 5 from 1


def literal(rows, k):
    """What the repositories compute: np.cov, SVD, U·diag(1/√s)."""
    mu = rows.mean(axis=0, keepdims=True)
    u, s, _ = np.linalg.svd(np.cov(rows.T))
    return (rows - mu) @ np.dot(u, np.diag(1 / np.sqrt(s)))[:, :k]


@pytest.mark.parametrize(("count", "k"), [(9, 1), (30, 8), (200, 3)])
def test_cosines_are_those_of_the_repositories(count, k):
    generator = torch.Generator().manual_seed(count)
    # Turned and stretched, of a condition that single precision holds: that of an arbitrary mixture of 9 rows was 2e7,
    # and processors differed by 1e-4.
    turned = torch.linalg.qr(torch.randn(8, 8, generator=generator))[0]
    rows = torch.randn(count, 8, generator=generator) * torch.linspace(1, 3, 8) @ turned + 5
    _, ours = fitted(rows, k=k, eps=0.0)
    theirs = torch.from_numpy(literal(rows.double().numpy(), k)).float()
    gram = [torch.nn.functional.normalize(v) for v in (ours, theirs)]
    assert ours.shape == (count, k)
    torch.testing.assert_close(gram[0] @ gram[0].T, gram[1] @ gram[1].T, atol=2e-5, rtol=0)


def test_repeated_sentences_count_as_in_the_repositories():
    """Their mean and `np.cov` are those of every side of every pair."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(12, 4, generator=generator) * torch.linspace(1, 2, 4) + 3
    base = Given(rows)
    encoder = ENCODERS["whitening"].build({"fit_on": "target", "eps": 0.0}, {"online": base})
    places = [0, 1, 0, 2, 0, *range(12), 7, 7]
    encoder.fit(encoding(encoder), [base.sentences[place] for place in places])
    found = encoding(encoder)([base.sentences[place] for place in places])
    theirs = torch.from_numpy(literal(rows[places].double().numpy(), 4)).float()
    gram = [torch.nn.functional.normalize(v) for v in (found, theirs)]
    torch.testing.assert_close(gram[0] @ gram[0].T, gram[1] @ gram[1].T, atol=2e-5, rtol=0)


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_chunks_do_not_change_mean_and_covariance(size):
    rows = torch.randn(100, 5, generator=torch.Generator().manual_seed(1)) + 1e4
    moments = Moments()
    for chunk in rows.split(size):
        moments.add(chunk)
    assert moments.count == 100
    torch.testing.assert_close(moments.mean, rows.double().mean(dim=0), rtol=1e-14, atol=0)
    torch.testing.assert_close(moments.covariance(), torch.cov(rows.double().T), rtol=1e-9, atol=1e-12)


def test_directions_without_variance_are_not_blown_up_and_too_many_refused():
    rows = torch.randn(5, 8, generator=torch.Generator().manual_seed(2))  # 4 directions at most
    _, vectors = fitted(rows, eps=1e-2)
    assert vectors.isfinite().all()
    assert vectors.abs().max() < 10
    weight, _ = whitening(torch.zeros(2).double(), torch.diag(torch.tensor([4.0, 0.0]).double()), 2, 0.25)
    assert weight.abs().max(dim=1).values.tolist() == [0.5, 1.0]  # the second direction counts as a quarter as wide
    with refuses("encoders.no_variance", "eps = 0", "more than 2 sentences"):
        fitted(torch.tensor([[1.0, 0.0], [2.0, 0.0]]), eps=0.0)
    with refuses("encoders.too_few_sentences", "whitening"):
        fitted(torch.ones(1, 2))
    with refuses("encoders.too_many_directions", "k = 3", "k ≤ 2"):
        fitted(torch.ones(4, 2), k=3)
    with refuses("encoders.not_finite", "NaN") as caught:
        fitted(torch.tensor([[1.0, math.nan], [2.0, 0.0]]))
    assert caught.type is RunFailedError


def test_center_and_strength_by_hand():
    rows = torch.tensor([[2.0, 1.0], [-2.0, 1.0], [2.0, 3.0], [-2.0, 3.0]])  # mean (0, 2), variances 16/3 and 4/3
    _, vectors = fitted(rows, center=0.5, strength=0.5)
    expected = (rows - torch.tensor([0.0, 1.0])) * torch.tensor([16 / 3, 4 / 3]) ** -0.25
    torch.testing.assert_close(vectors.abs(), expected.abs())
    _, same = fitted(rows, center=0.0, strength=0.0)
    cosine = torch.nn.functional.cosine_similarity(same[0], same[2], dim=0)
    torch.testing.assert_close(cosine, torch.tensor(7 / 65**0.5))


def test_your_own_table_is_read(tmp_path):
    file = tmp_path / "own.tsv"
    file.write_text("id\ttext\n1\ta cat\n2\ta dog\n", encoding="utf-8")
    online, seen = {"online": Given(torch.zeros(1, 2))}, []
    encoder = ENCODERS["whitening"].build({"file": str(file)}, online)
    list(encoder._vectors(lambda texts: seen.extend(texts) or torch.zeros(len(texts), 2), ()))
    assert seen == ["a cat", "a dog"]
    ((name, digest),) = encoder.fingerprints().items()
    assert (name, digest[:5]) == (str(file), "rows:")
    with refuses("encoders.fit_on_or_file", "neither `fit_on` nor `file`"):
        ENCODERS["whitening"].build({}, online)
    with refuses("encoders.fit_on_or_file", "both fit_on 'target'"):
        ENCODERS["whitening"].build({"fit_on": "target", "file": str(file)}, online)
    with refuses("data.missing_column", "no column 'sentence'"):
        ENCODERS["whitening"].build({"file": str(file), "columns": ["sentence"]}, online)


@pytest.mark.slow
def test_the_encoder_needs_a_fit_also_when_saved_and_refuses_views(tmp_path):
    base = TransformerEncoder(str(tiny_bert(tmp_path)))
    encoder = ENCODERS["whitening"].build({"fit_on": "target"}, {"online": base})
    tokens = base.vocabulary.pad([[2, 7, 3]])
    with refuses("encoders.not_fitted", "'whitening'"):
        encoder.encode_for_eval(tokens)
    with refuses("encoders.no_views", "'whitening'", "[evaluate] encoder"):
        encoder.encode(tokens, encoder.embed(tokens))
    encoder.export(tmp_path / "model", 12)
    assert not is_native(tmp_path / "model")
    again, _ = open_encoder(str(tmp_path / "model"))
    with refuses("encoders.not_fitted", "'whitening'"):
        encoding(again)(TEXTS)


@pytest.mark.slow
def test_what_is_fitted_on_is_checked_when_the_recipe_is_built(tmp_path, monkeypatch):
    base = {"online": TransformerEncoder(str(tiny_bert(tmp_path)))}
    with pytest.raises(UnknownNameError, match="nli"):
        ENCODERS["whitening"].build({"fit_on": "nlii"}, base)
    with pytest.raises(UnknownNameError, match="'sentence'"):
        ENCODERS["whitening"].build({"fit_on": "tatoeba_open", "columns": ["sentence"]}, base)
    monkeypatch.setenv("CSE_DATA", str(tmp_path))
    with pytest.raises(MissingError, match="multi30k_en_de"):
        ENCODERS["whitening"].build({"fit_on": "multi30k_en_de"}, base)


def test_a_data_set_is_read_row_by_row_up_to_the_limit():
    seen = []

    def encode(texts):
        seen.append(texts)
        return torch.zeros(len(texts), 2)

    def made(**values):
        return ENCODERS["whitening"].build(values, {"online": Given(torch.zeros(1, 2))})

    data = made(fit_on="tatoeba_open", columns=["text", "translation"], limit=CHUNK + 5)
    assert [len(chunk) for chunk in data._vectors(encode, ())] == [CHUNK, 5]
    rows = list(islice(catalog.open_text("tatoeba_open", "train"), 2))
    assert seen[0][:4] == [row[column] for row in rows for column in ("text", "translation")]
    assert next(made(fit_on="target", limit=2)._vectors(encode, ["a", "b", "c"])).shape == (2, 2)


def whitened(tmp_path, **values):
    torch.manual_seed(1)
    base = TransformerEncoder(str(tiny_bert(tmp_path)), pooling="first_last", first_layer_index=1)
    encoder = ENCODERS["whitening"].build({"fit_on": "target", **values}, {"online": base})
    encoder.fit(encoding(encoder), TEXTS)
    return base, encoder


@pytest.mark.slow
@pytest.mark.parametrize("k", [None, 5])
def test_export_is_one_more_dense_layer(tmp_path, k):
    _, encoder = whitened(tmp_path, k=k)
    folder = tmp_path / "out" / "model"
    encoder.export(folder, 12)
    again, length = open_encoder(str(folder))
    assert (length, again.fits, again.eval_pooling) == (12, "never", "first_last")
    assert encoding(again)(TEXTS).shape == (60, k or 16)
    assert torch.equal(encoding(again)(TEXTS), encoding(encoder)(TEXTS))
    kinds = [module["path"] for module in json.loads((folder / "modules.json").read_text())]
    assert kinds == ["", "1_WeightedLayerPooling", "2_Pooling", "3_Dense"]
    assert not (folder / "base").exists()
    assert "the last evaluator" in (folder / "README.md").read_text()
    assert [child.name for child in folder.parent.iterdir()] == ["model"]


@pytest.mark.slow
def test_a_head_comes_before_the_whitening_which_is_no_part_of_states(tmp_path):
    torch.manual_seed(1)
    base = TransformerEncoder(str(tiny_bert(tmp_path)), pooling="mean", head_at_eval=True)
    base.attach({"mlp": Mlp()})
    encoder = ENCODERS["whitening"].build({"fit_on": "target"}, {"online": base})
    encoder.fit(encoding(encoder), TEXTS)
    encoder.export(tmp_path / "model", 12)
    again, _ = open_encoder(str(tmp_path / "model"))
    assert torch.equal(encoding(again)(TEXTS), encoding(encoder)(TEXTS))
    base, encoder = whitened(tmp_path)
    assert set(encoder.state_dict()) == {f"of.{key}" for key in base.state_dict()}
    assert {id(p) for p in encoder.parameters()} == {id(p) for p in base.parameters()}
    assert not encoder.stateful
