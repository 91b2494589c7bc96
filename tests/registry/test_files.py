"""Files with a known address and digest."""

import hashlib
import importlib
import re
import zipfile
from dataclasses import replace

import pytest

from registry.errors import MissingError
from registry.resources import files
from registry.resources.catalog.find import own_file
from registry.resources.download import DownloadError
from registry.resources.files import KnownFile, known_files
from tests.fake_hub.fixture import use
from tests.fake_hub.server import FakeHub

find = importlib.import_module("registry.resources.catalog.find")  # the package has a function of this name


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serve an archive of two vectors and their words, and return its `KnownFile`."""
    archive = tmp_path / "content" / "raw" / "vectors.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("deep/vectors.txt", "a 1 2\nb 3 4\n")
        packed.writestr("deep/words.txt", "a\nb\n")
        packed.writestr("other.txt", "not kept")
    content = archive.read_bytes()
    monkeypatch.chdir(tmp_path)
    with FakeHub(tmp_path / "content") as hub:
        known = KnownFile(
            "vectors.txt", "Two words", "CC0", f"{hub.endpoint}/raw/vectors.zip", len(content),
            hashlib.sha256(content).hexdigest(), ("deep/vectors.txt", "deep/words.txt"),
        )  # fmt: skip
        monkeypatch.setattr(files, "known_files", lambda: {"vectors.txt": known})
        monkeypatch.setattr(find, "known_files", lambda: {"vectors.txt": known})
        use(hub, tmp_path / "hf", monkeypatch)
        yield known, hub


def test_a_file_is_downloaded_once_and_found_by_its_name(served):
    known, hub = served
    assert own_file("vectors.txt") is None
    path = known.fetch()
    assert path.read_text() == "a 1 2\nb 3 4\n"
    assert sorted(each.name for each in path.parent.iterdir()) == ["vectors.txt", "words.txt"]
    assert own_file("vectors.txt") == path
    hub.log.clear()
    assert known.fetch() == path
    assert hub.log == []


def test_a_file_outside_an_archive_is_kept_as_it_is(served):
    known, _ = served
    alone = replace(known, name="vectors.zip", members=())
    assert alone.cached() is None
    path = alone.fetch()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == known.sha256
    assert alone.cached() == path


def test_a_file_of_the_user_comes_first(served, tmp_path):
    known, _ = served
    known.fetch()
    (tmp_path / "vectors.txt").write_text("mine")
    assert own_file("vectors.txt") == tmp_path / "vectors.txt"


def test_wrong_bytes_are_refused(served):
    known, _ = served
    with pytest.raises(DownloadError):
        replace(known, sha256="0" * 64).fetch()
    assert known.cached() is None


def test_an_archive_without_the_member_is_refused(served):
    known, _ = served
    with pytest.raises(MissingError, match="deep/numbers"):
        replace(known, members=("deep/vectors.txt", "deep/numbers.txt")).fetch()


def test_the_table_is_complete():
    assert known_files()
    for name, known in known_files().items():
        assert (known.members or (known.url,))[0].endswith(name)
        assert re.fullmatch("[0-9a-f]{64}", known.sha256)
        assert known.url.startswith("https://")
