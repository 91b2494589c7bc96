from types import SimpleNamespace

import pytest

from cse_cli.analysis.pages import Words
from cse_cli.analysis.reproduce import data_section


@pytest.mark.parametrize(
    ("digests", "told"),
    [
        (["d", "d"], False),
        (["d", "e"], True),
        (["d", ""], False),
        (["d", "rows:e"], False),  # of the file, as earlier versions recorded it, and of its rows
        (["d", "rows:e", "rows:f"], True),
    ],
)
def test_other_data_under_one_name_are_told(digests, told):
    section = data_section([SimpleNamespace(fingerprints={"stsb/dev": digest} if digest else {}) for digest in digests])
    words = [part.text for part in section.parts if isinstance(part, Words)]
    assert any("did not all read the same" in text for text in words) == told
