import numpy as np
import pytest
import torch

from registry import ENCODERS
from tests.registry.encoders.vectors import Given, encoding
from tests.support.errors import refuses


def fitted(rows, **values):
    given = Given(torch.from_numpy(rows).float())
    encoder = ENCODERS["component_removal"].build({"of": "given", "fit_on": "target", **values}, {"given": given})
    encoder.fit(encoding(given), given.sentences)
    return encoder, encoding(encoder)(given.sentences)


def test_value_by_hand_and_of_all_directions():
    # Without the mean, the first direction is (1, 0). With it, only the second coordinate varies.
    rows = np.array([[4.0, 1.0], [4.0, -1.0]])
    torch.testing.assert_close(fitted(rows)[1], torch.tensor([[0.0, 1.0], [0.0, -1.0]]))
    torch.testing.assert_close(fitted(rows, center=True)[1], torch.zeros(2, 2))
    with refuses("encoders.too_many_directions", "components = 2"):
        fitted(np.eye(2), components=2)


@pytest.mark.parametrize("components", [1, 2])
def test_the_repositorys_code(components):
    """PrincetonML/SIF @84b5b4c, src/SIF_embedding.py:19-42: the singular vectors of the sentences, mean included."""
    rows = np.random.default_rng(1).normal([2, 0, 1, 0, 0], size=(50, 5))
    top = np.linalg.svd(rows, full_matrices=False)[2][:components]
    expected = rows - rows @ top.T @ top
    encoder, found = fitted(rows, components=components)
    torch.testing.assert_close(found, torch.from_numpy(expected).float(), rtol=1e-5, atol=1e-5)
    centered = rows - rows.mean(0)
    top = np.linalg.svd(centered, full_matrices=False)[2][:components]
    expected = centered - centered @ top.T @ top
    _, found = fitted(rows, components=components, center=True)
    torch.testing.assert_close(found, torch.from_numpy(expected).float(), rtol=1e-5, atol=1e-5)
    assert encoder.dim == 5
