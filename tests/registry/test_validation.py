"""What pydantic finds is told in plain words, never in its own."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from registry.machinery.validation import describe


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    count: Annotated[int, Field(ge=1, lt=10, multiple_of=2)] = 2
    how: Literal["mean", "cls"] = "mean"
    names: Annotated[list[str], Field(min_length=1, max_length=2)] = ["a"]
    word: Annotated[str, Field(min_length=1, pattern="^[a-z]+$")] = "a"
    flag: bool = True
    either: int | str = 1
    inner: Inner = Inner()

    @field_validator("word")
    @classmethod
    def _known(cls, word: str) -> str:
        if word == "no":
            raise ValueError("Nobody says no")
        return word


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"count": 0}, "count: should be at least 1, not 0"),
        ({"count": 10}, "count: should be less than 10, not 10"),
        ({"count": 3}, "count: should be a multiple of 2, not 3"),
        ({"count": "2"}, 'count: should be a whole number, not the text "2"'),
        ({"how": "men"}, "how: should be 'mean' or 'cls', not the text \"men\". Did you mean 'mean'?"),
        ({"names": []}, "names: should be an array of at least 1 item, not []"),
        ({"names": ["a", "b", "c"]}, 'names: should be an array of at most 2 items, not ["a", "b", "c"]'),
        ({"names": "a"}, 'names: should be an array, not the text "a"'),
        ({"word": ""}, 'word: should be text that is not empty, not the text ""'),
        ({"word": "A"}, 'word: should be text of the form ^[a-z]+$, not the text "A"'),
        ({"word": "no"}, "word: nobody says no"),
        ({"flag": 1}, "flag: should be true or false, not 1"),
        ({"inner": {"rate": 0.0}}, "inner.rate: should be greater than 0, not 0.0"),
        ({"inner": {"rte": 1.0}}, "inner.rte: is not a valid key"),
        ({"inner": 3}, "inner: should be a table, not 3"),
    ],
)
def test_in_plain_words(values, says):
    with pytest.raises(ValidationError) as caught:
        Everything.model_validate(values)
    assert describe(caught.value) == says


def test_all_that_is_wrong_is_told_in_one_line():
    with pytest.raises(ValidationError) as caught:
        Everything.model_validate({"count": 0, "flag": None})
    assert describe(caught.value) == "count: should be at least 1, not 0; flag: should be true or false, not null"
    with pytest.raises(ValidationError) as caught:
        Everything.model_validate_json("{")
    assert describe(caught.value).startswith("invalid JSON")
