"""Documents that hold their checksum: each digit that changes is found."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import ValidationError

from cse_cli.core.checksums import with_checksum, without_checksum
from cse_cli.core.results import Result
from tests.support.records import result


def test_what_was_written_is_read() -> None:
    document = {"step": 3, "values": {"b": 0.1, "a": 1e-300}, "of": ["ä", None, True]}
    assert without_checksum(json.loads(json.dumps(with_checksum(document)))) == document
    assert without_checksum(document) == document
    assert without_checksum([1]) == [1]


@pytest.mark.parametrize("change", [{"step": 4}, {"more": 1}, {"crc32": "00000000"}, {"crc32": 3}])
def test_another_document_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the file is damaged: its checksum is wrong"):
        without_checksum(with_checksum({"step": 3}) | change)


def test_a_digit_of_a_result_that_changes_is_found() -> None:
    whole = result(measures={"sum": 0.1 + 0.2, "small": 5e-324, "large": 1.7976931348623157e308})
    text = whole.to_json()
    assert Result.model_validate_json(text) == whole
    assert Result.model_validate(whole.model_dump()) == whole
    with pytest.raises(ValidationError, match="its checksum is wrong"):
        Result.model_validate_json(text.replace("61.004", "61.005"))


def test_a_score_that_is_no_number_is_read_again() -> None:
    text = json.dumps(with_checksum({"loss": math.nan}))
    assert math.isnan(without_checksum(json.loads(text))["loss"])
