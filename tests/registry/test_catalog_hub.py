"""The catalog's evaluation data from a hub, over HTTP, into an empty cache, and then without the hub."""

import pytest

from registry.evaluators import sts
from registry.resources import catalog
from tests.fake_hub.content import write_evaluation_data
from tests.fake_hub.fixture import use
from tests.fake_hub.server import FakeHub


@pytest.mark.process
@pytest.mark.data
def test_every_suite_is_fetched_once_and_then_asks_for_nothing(monkeypatch, tmp_path):
    write_evaluation_data(tmp_path / "content/datasets")
    with FakeHub(tmp_path / "content") as hub:
        use(hub, tmp_path / "hf", monkeypatch)
        wanted = [(name, split) for name in (*sts.SEVEN, "cstsb") for split in catalog.entry(name).splits]
        assert {catalog.state(*one).origin for one in wanted} == {None}
        for name, split in wanted:
            assert catalog.locate(name, split).known is True, (name, split)
        hub.log.clear()
        for name, split in wanted:
            found = catalog.find(name, split)
            assert found is not None
            assert found[0] == "cache"
            assert found[1].known is True
        assert len(catalog.read_pairs("sickr", "all")) == 9927
        assert hub.log == []
