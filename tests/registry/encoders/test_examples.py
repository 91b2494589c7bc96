"""The example in each encoder's docstring."""

import textwrap
import tomllib

import pytest

from registry import ENCODERS


@pytest.mark.parametrize("entry", [each for each in ENCODERS if each.distribution == "cse"], ids=lambda each: each.name)
def test_the_example_of_an_encoder_is_valid(entry):
    example = tomllib.loads(textwrap.dedent(entry.cls.__doc__.partition("Example:\n")[2]))
    (values,) = example["encoders"].values()
    assert values.pop("name") == entry.name
    entry.parameters(**values)
