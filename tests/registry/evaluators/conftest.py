"""Pairs in place of a data set's, for evaluators of embeddings."""

from functools import partial

import pytest

from tests.registry.evaluators.points import PAIRS, serve


@pytest.fixture
def pairs(monkeypatch):
    """Serve `PAIRS` in place of every data set's, and return a function that serves others."""
    serve(monkeypatch, PAIRS)
    return partial(serve, monkeypatch)
