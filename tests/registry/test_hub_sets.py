"""Data sets of the hub by name: which files belong to a split, and their rows, from a cache that is made here."""

import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfFileSystem

from cse_cli.data.sources import open_text
from cse_cli.recipe.schema import Data
from registry.errors import CseError
from registry.resources import hub
from registry.resources.hub_sets import HubSet, open_hub_set
from tests.fake_hub.fixture import use
from tests.fake_hub.server import FakeHub
from tests.support.errors import refuses

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the hub, empty, and no hub to be asked."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def repository(cache, name, files, here=None):
    """Put a repository into the cache: name → content; of those not in `here`, the listing alone."""
    folder = cache / f"datasets--{name.replace('/', '--')}"
    for place, text in (("refs/main", COMMIT), (f"trees/{COMMIT}.json", None)):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        listing = {file: {"size": len(content), "blob_id": "0" * 40} for file, content in files.items()}
        (folder / place).write_text(text or json.dumps({"format_version": 1, "files": listing}))
    for file, content in files.items():
        if here is None or file in here:
            place = folder / "snapshots" / COMMIT / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


def parquet(**columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


CARD = b"""---
configs:
- config_name: small
  default: true
  data_files:
  - split: train
    path: small/train-*.parquet
  - split: dev
    path: small/dev.parquet
- config_name: tables
  sep: "|"
  data_files: tables/all.csv
---
# A data set
"""


@pytest.fixture
def described(cache):
    files = {
        "README.md": CARD,
        "small/train-00001.parquet": parquet(sentence=["c"], score=[0.5]),
        "small/train-00000.parquet": parquet(sentence=["a", "b"], score=[1.0, 2.5]),
        "small/dev.parquet": parquet(sentence=["d"], score=[3.0]),
        "tables/all.csv": b'sentence|score\n"x, y"|1\n',
        "unused.bin": b"?",
    }
    repository(cache, "me/sentences", files)


def test_names_have_configuration_and_revision():
    for name, parsed in {
        "hf:me/s": HubSet("me/s"),
        "hf:me/s:small": HubSet("me/s", "small"),
        "hf:me/s@v1.0": HubSet("me/s", None, "v1.0"),
        f"hf:me-1/s.x:en-de@{COMMIT}": HubSet("me-1/s.x", "en-de", COMMIT),
    }.items():
        assert HubSet.parse(name) == parsed
        assert str(parsed) == name
    for name in ("hf:", "hf:s", "hf:me/s:", "hf:me/s@", "hf:me/s/t", "me/s", "hf:me/s@a@b", "hf:me/../s"):
        with refuses("data.invalid_hub_name", name):
            HubSet.parse(name)


@pytest.mark.usefixtures("described")
def test_the_card_says_which_files_belong_to_a_split():
    found = HubSet.parse("hf:me/sentences").files("train")
    assert (found.builder, found.options, found.columns) == ("parquet", {}, ("sentence", "score"))
    assert [path.name for path in found.paths] == ["train-00000.parquet", "train-00001.parquet"]
    assert open_hub_set("hf:me/sentences", "train").to_dict() == {"sentence": ["a", "b", "c"], "score": [1.0, 2.5, 0.5]}
    assert open_hub_set("hf:me/sentences:small", "dev")["sentence"][:] == ["d"]


def test_settings_of_the_card_reach_the_builder_and_names_of_files_stand_in(cache):
    card = b"---\nconfigs:\n- config_name: tables\n  sep: '|'\n  data_files: all.csv\n---\n"
    repository(cache, "me/tables", {"README.md": card, "all.csv": b"sentence|score\nx, y|1\n"})
    assert HubSet.parse("hf:me/tables").files("train").options == {"sep": "|"}
    assert open_hub_set("hf:me/tables:tables", "train").to_dict() == {"sentence": ["x, y"], "score": [1]}
    files = {"data/train-00000-of-00001.parquet": parquet(text=["a"]), "data/test-00000-of-00001.parquet": b"not here"}
    repository(cache, "me/plain", files, here=["data/train-00000-of-00001.parquet"])
    assert open_hub_set("hf:me/plain", "train")["text"][:] == ["a"]
    assert HubSet.parse("hf:me/plain").state("test") == (None, 8)
    path, size = HubSet.parse("hf:me/plain").state("train")
    assert (path.name, size) == (COMMIT, 0)


@pytest.mark.slow
def test_damaged_unknown_and_missing_sets_are_told(cache):
    repository(cache, "me/damaged", {"train.parquet": b"PAR1 and nothing"})
    with refuses("data.unreadable_file", "'hf:me/damaged'", "Parquet magic bytes"):
        open_hub_set("hf:me/damaged", "train")
    assert HubSet.parse("hf:me/nowhere").state("train") == (None, None)
    repository(cache, "me/card", {"README.md": CARD, "small/dev.parquet": b"x"}, here=[])
    assert HubSet.parse("hf:me/card").state("dev") == (None, None)
    with refuses("hub.unreachable", "HF_HUB_OFFLINE"):
        open_hub_set("hf:me/nowhere", "train")


@pytest.mark.usefixtures("described")
def test_unknown_splits_and_configurations_and_mixed_formats_are_rejected():
    with refuses("data.unknown_split", "'test'", "train, dev"):
        HubSet.parse("hf:me/sentences").files("test")
    with refuses("data.unknown_config", "'smal'", "Did you mean 'small'"):
        HubSet.parse("hf:me/sentences:smal").files("train")
    with refuses("data.mixed_formats", "parquet", "tables/all.csv"):
        HubSet.parse("hf:me/sentences:tables").files("train")


def test_several_configurations_without_a_default_are_listed(cache):
    card = CARD.replace(b"  default: true\n", b"")
    repository(
        cache,
        "me/several",
        {"README.md": card, "tables/all.csv": b"a\n", "small/dev.parquet": b"", "small/train-1.parquet": b""},
    )
    with refuses("data.no_config", "small, tables", "hf:owner/name:small"):
        HubSet.parse("hf:me/several").files("train")


@pytest.mark.parametrize(
    ("files", "value"),
    [
        ({"README.md": b"", "a.bin": b"x"}, "a.bin"),
        ({"a.png": b"x", "b.png": b"y"}, "'imagefolder'"),
    ],
)
def test_repositories_without_text_are_rejected(cache, files, value):
    repository(cache, "me/odd", files)
    with refuses("data.unsupported_format", "hf:me/odd", value):
        HubSet.parse("hf:me/odd").files("train")


@pytest.mark.usefixtures("described")
def test_a_hub_set_is_training_text():
    data = Data(dataset=("hf:me/sentences",), column="sentence")
    text = open_text(data, {"text"})
    assert list(text.cells("text")) == ["a", "b", "c"]
    with pytest.raises(CseError, match="Its columns: sentence, score") as caught:
        open_text(Data(dataset=("hf:me/sentences",)), {"text"})
    assert "data.column" in str(caught.value)
    with pytest.raises(CseError, match="contains double, not strings"):
        open_text(Data(dataset=("hf:me/sentences",), column="score"), {"text"})
    assert "dataset me/sentences" in hub.used()


@pytest.fixture
def running(tmp_path, monkeypatch):
    """A hub with a data set of three shards, and an empty cache."""
    folder = tmp_path / "content" / "datasets" / "me" / "sentences" / "data"
    folder.mkdir(parents=True)
    for number in range(3):
        rows = [f"sentence {number} {row}" for row in range(20)]
        (folder / f"train-0000{number}-of-00003.parquet").write_bytes(parquet(sentence=rows))
    (folder / "test-00000-of-00001.parquet").write_bytes(parquet(sentence=["t"]))
    HfFileSystem.clear_instance_cache()  # it keeps the address of the test before
    with FakeHub(tmp_path / "content") as hub_of_tests:
        use(hub_of_tests, tmp_path / "hf", monkeypatch)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub_of_tests.endpoint)
        yield hub_of_tests


def snapshots(home):
    return sorted(path.name for path in home.rglob("*.parquet"))


@pytest.mark.process
@pytest.mark.usefixtures("running")
def test_only_the_files_of_a_split_are_downloaded(tmp_path, monkeypatch):
    from huggingface_hub import constants

    data = Data(dataset=("hf:me/sentences",), column="sentence")
    first = open_text(data, {"text"})
    assert first.rows == 60
    assert snapshots(tmp_path / "hf") == [f"train-0000{number}-of-00003.parquet" for number in range(3)]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert open_text(data, {"text"}).fingerprint == first.fingerprint
