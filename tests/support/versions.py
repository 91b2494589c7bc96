"""What tests need that the oldest supported releases lack (`.ci/run lowest`)."""

from importlib.metadata import version

import pytest

FIRST = {
    "attention weights of ModernBERT": ("transformers", "5.1"),
    "bidirectional attention of decoders": ("transformers", "5.2"),
    "EuroBERT": ("transformers", "5.3"),
    "checked types in config.json": ("transformers", "5.4"),
    "languages of NLLB's tokenizer": ("transformers", "5.6"),
    "the random numbers of dropout": ("torch", "2.7"),
    "a question mark in the path of a database": ("sqlalchemy", "2.1"),
    "file stores that are refused": ("mlflow-skinny", "3.13"),
}
"""Feature → the first release that has it."""


def needs(feature: str) -> None:
    """Skip the test if the installed release lacks the feature."""
    package, first = FIRST[feature]
    if [int(part) for part in version(package).split(".")[:2]] < [int(part) for part in first.split(".")]:
        pytest.skip(f"{feature}: needs {package} {first}")
