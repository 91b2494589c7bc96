"""The evaluators' data sets from a hub, over HTTP, into an empty cache, and then without the hub."""

import pytest

from registry.evaluators import sts, transfer
from registry.resources import catalog


@pytest.mark.process
@pytest.mark.data
def test_every_suite_is_fetched_once_and_then_asks_for_nothing(fake_hub, monkeypatch, tmp_path):
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "home"))
    names = (*sts.SEVEN, "cstsb", *transfer.SEVEN)
    wanted = [(name, split) for name in names for split in catalog.entry(name).splits]
    assert {catalog.state(*one).origin for one in wanted} == {None}
    for name, split in wanted:
        assert catalog.locate(name, split).known is True, (name, split)
    assert sum("senteval.tar" in line and "GET" in line for line in fake_hub.log) <= 2  # its address, and its bytes
    fake_hub.log.clear()
    for name, split in wanted:
        found = catalog.find(name, split)
        assert found is not None
        assert found[0] == "cache"
        assert found[1].known is True
    assert len(catalog.read_pairs("sickr", "all")) == 9927
    assert fake_hub.log == []
