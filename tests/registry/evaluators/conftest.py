"""Pairs in place of a data set's, for evaluators of embeddings."""

from functools import partial

import pytest

from tests.registry.evaluators.points import serve


@pytest.fixture
def pairs(monkeypatch):
    """Return a function that serves pairs instead of every data set."""
    return partial(serve, monkeypatch)
