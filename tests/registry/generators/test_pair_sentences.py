import pytest

from registry.errors import MissingError, UnknownNameError
from registry.generators.pair_sentences import PairSentences
from registry.resources import catalog
from registry.resources.rows import Source

ENGLISH = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


def test_by_hand():
    """Both sentences of a pair, the first before the second, pair after pair, source after source."""
    pairs = catalog.read_pairs("stsb_open", "dev")
    texts = [row["text"] for row in PairSentences(["stsb_open/dev", "stsb_open/test"]).rows("train")]
    assert texts[:4] == [pairs[0].first, pairs[0].second, pairs[1].first, pairs[1].second]
    assert len(texts) == 2 * (750 + 629)
    assert texts[1500] == catalog.read_pairs("stsb_open", "test")[0].first


def test_all_splits_where_none_is_named_and_unknown_ones_told():
    assert catalog.dataset_and_split("stsb") == ("stsb", "all")
    assert catalog.dataset_and_split("stsb/dev") == ("stsb", "dev")
    assert catalog.entry("sts_text").generator.sources == tuple((name, "all") for name in ENGLISH)
    with pytest.raises(UnknownNameError, match="'stsb'"):
        next(PairSentences(["stbs"]).rows("train"))


@pytest.mark.parametrize("name", ["sts_text", "cstsb_text"])
def test_the_catalog_expects_two_sentences_a_pair(name):
    about = catalog.entry(name)
    assert about.split("train").rows == 2 * sum(
        catalog.entry(source).split(split).rows for source, split in about.generator.sources
    )
    assert "test" in about.note


@pytest.mark.parametrize("name", ["sts_text", "cstsb_text"])
def test_without_the_pairs_it_is_missing_and_says_which(name, network, monkeypatch):
    monkeypatch.delenv("CSE_DATA", raising=False)
    assert catalog.find(name, "train") is None
    with pytest.raises(MissingError) as caught:
        catalog.locate(name, "train")
    said = str(caught.value)
    first = catalog.entry(name).generator.sources[0][0]
    for part in (
        f"'{name}'",
        f"'{first}'",
        catalog.entry(first).splits[next(iter(catalog.entry(first).splits))].path,
    ):
        assert part in said


def test_what_is_missing_is_fetched(network, monkeypatch):
    """Each source is located, so that the hub is asked for it."""
    monkeypatch.delenv("CSE_DATA", raising=False)
    remotes = [about.sources["mteb"] for about in map(catalog.entry, ENGLISH)]
    repositories = [f"{remote.hub}@{remote.revision}" for remote in remotes]
    for repository in repositories:
        for split in ("train", "validation", "test"):
            network.publish(f"{repository}/{split}.{'json' if 'sickr' in repository else 'jsonl'}.gz", b"")
    monkeypatch.setattr(Source, "known", True)  # nothing was read
    source = catalog.locate("sts_text", "train")
    assert list(dict.fromkeys(network.asked)) == repositories
    assert source.columns == ("text",)
