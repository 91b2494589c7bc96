"""Assert an error by its code and the values it names, not by its sentences."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from registry.errors import CseError


@contextmanager
def refuses(code: str, *values: object) -> Iterator[pytest.ExceptionInfo[CseError]]:
    """Expect a `CseError` with this code, whose text contains each of the values.

    Args:
        code: Expected code, such as "recipe.unknown_key".
        values: Names, paths, numbers and commands that the user must see.
    """
    with pytest.raises(CseError) as caught:
        yield caught
    assert caught.value.code == code, f"code {caught.value.code!r}: {caught.value}"
    missing = [str(value) for value in values if str(value) not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"
