"""The examples in the docstrings of the interface for plug-ins."""

import doctest
import importlib

import pytest
import torch


@pytest.mark.parametrize("module", ["registry.types", "registry.loss_wrapper", "registry.testing.materials"])
def test_examples_in_docstrings(module):
    results = doctest.testmod(importlib.import_module(module), extraglobs={"torch": torch})
    assert results.attempted > 0
    assert results.failed == 0
