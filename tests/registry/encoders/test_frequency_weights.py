"""SIF, Zipfian whitening and all-but-the-top of word vectors, against their authors' code written out with numpy."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from registry import ENCODERS
from registry.encoders.averages import read_counts
from tests.registry.encoders.vectors import encoding
from tests.support.errors import refuses

GENERATOR = np.random.default_rng(0)
WORDS = [f"w{place}" for place in range(40)]
VECTORS = (GENERATOR.normal(size=(40, 6)) * [3, 2, 1, 1, 0.5, 0.2] + [1, 0, 0, 2, 0, 0]).astype(np.float32)
COUNTS = {word: int(count) for word, count in zip(WORDS[:35], GENERATOR.integers(1, 1000, 35), strict=True)}
SHARES = np.array([COUNTS.get(word, 0) for word in WORDS]) / sum(COUNTS.values())
TEXTS = ["w0 w1 w2", "w3", "w4 w4 w39", "w10 w20 w30 w36", "w38"]


@pytest.fixture
def files(tmp_path):
    rows = [" ".join([word, *map(repr, row.tolist())]) for word, row in zip(WORDS, VECTORS, strict=True)]
    (tmp_path / "vectors.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    counts = [f"{word} {count}" for word, count in COUNTS.items()]
    (tmp_path / "counts.txt").write_text("\n".join([*counts, "other 7"]) + "\n", encoding="utf-8")
    return {"file": str(tmp_path / "vectors.txt"), "frequencies": str(tmp_path / "counts.txt")}


def means(vectors, texts=TEXTS):
    return np.stack([np.mean([vectors[WORDS.index(word)] for word in text.split()], axis=0) for text in texts])


def equal(found, expected):
    torch.testing.assert_close(found, torch.from_numpy(np.asarray(expected)).float(), rtol=2e-5, atol=2e-5)


def test_weights_of_sif(files):
    """PrincetonML/SIF @84b5b4c, src/data_io.py:271-376: a / (a + count / N), and 1 for words without a count."""
    weights = np.array([1e-3 / (1e-3 + COUNTS[word] / sum(COUNTS.values())) if word in COUNTS else 1 for word in WORDS])
    encoder = ENCODERS["word_vectors"].build({**files, "sif": 1e-3})
    equal(encoding(encoder)(TEXTS), means(VECTORS * weights[:, None]))
    # Without a file: 1/r for the r-th word.
    shares = 1 / np.arange(1, 41)
    weights = 0.1 / (0.1 + shares / shares.sum())
    equal(
        encoding(ENCODERS["word_vectors"].build({"file": files["file"], "sif": 0.1}))(TEXTS),
        means(VECTORS * weights[:, None]),
    )


@pytest.mark.parametrize("counted_only", [False, True])
def test_zipfian_whitening(files, counted_only):
    """zipfian_whitening.py:55-80 @fa44d29: the singular vectors of √p·(W − μ), and the inverses of the values."""
    used = SHARES > 0
    mean = SHARES @ VECTORS
    _, values, directions = np.linalg.svd((VECTORS[used] - mean) * np.sqrt(SHARES[used])[:, None], full_matrices=False)
    whitened = (VECTORS - mean) @ directions.T / values
    encoder = ENCODERS["word_vectors"].build({**files, "adjust": "whiten", "counted_only": counted_only})
    texts = ["w0 w1 w2", "w3"] if counted_only else TEXTS
    found, expected = encoding(encoder)(texts), torch.from_numpy(means(whitened, texts)).float()
    torch.testing.assert_close(found @ found.T, expected @ expected.T, rtol=1e-4, atol=1e-5)  # up to signs
    # "w39" and "w36" have no count: unknown, or with the probability 0.
    pair = encoding(encoder)(["w4 w4 w39", "w4"])
    assert torch.equal(pair[0], pair[1]) == counted_only
    assert torch.equal(encoding(encoder)(["no"]), torch.zeros(1, 6))


def test_uniform_whitening_centering_and_all_but_the_top(files):
    """UniformWhitening (zipfian_whitening.py:83-107), centering, and all_but_the_top.py:15-46 @fa44d29."""
    build = ENCODERS["word_vectors"].build
    mean = VECTORS.mean(0)
    _, values, directions = np.linalg.svd(VECTORS - mean, full_matrices=False)
    whitened = means((VECTORS - mean) @ directions.T / values)
    found = torch.nn.functional.normalize(encoding(build({**files, "adjust": "whiten", "by_frequency": False}))(TEXTS))
    unit = torch.nn.functional.normalize(torch.from_numpy(whitened).float())
    torch.testing.assert_close(found @ found.T, unit @ unit.T, rtol=1e-4, atol=1e-5)
    equal(encoding(build({**files, "adjust": "center", "by_frequency": False}))(TEXTS), means(VECTORS - mean))
    equal(encoding(build({**files, "adjust": "center"}))(TEXTS), means(VECTORS - SHARES @ VECTORS))
    top = PCA(3).fit(VECTORS - mean).components_
    removed = (VECTORS - mean) - (VECTORS - mean) @ top.T @ top
    values = {**files, "adjust": "all_but_the_top", "by_frequency": False}
    equal(encoding(build({**values, "components": 3}))(TEXTS), means(removed))
    top = top[:1]  # a hundredth of six dimensions is one
    equal(encoding(build(values))(TEXTS), means((VECTORS - mean) - (VECTORS - mean) @ top.T @ top))


def test_a_change_of_vectors_and_weights_follow_one_another(files):
    encoder = ENCODERS["word_vectors"].build({**files, "adjust": "center", "sif": 0.01})
    weights = 0.01 / (0.01 + SHARES)
    equal(encoding(encoder)(TEXTS), means((VECTORS - SHARES @ VECTORS) * weights[:, None]))


def test_a_bad_line_is_named(tmp_path):
    (tmp_path / "counts.txt").write_text("the 12\nof many\n", encoding="utf-8")
    with refuses("encoders.bad_count_line", "counts.txt:2", "of many"):
        read_counts(tmp_path / "counts.txt")
