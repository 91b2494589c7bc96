from types import SimpleNamespace

from cse_cli.analysis.reproduce import fingerprints


def test_different_data_under_one_name_are_listed():
    runs = [SimpleNamespace(fingerprints={"stsb/dev": digest, "training": "t"}) for digest in ("d", "e", "")]
    assert fingerprints(runs) == {"stsb/dev": "d, e", "training": "t"}
