"""Archives for machines without internet: written here, unpacked there, nothing else written."""

import io
import json
import tarfile

import pytest

from cse_cli.data.pack import MANIFEST, archive_names, unpack_archive, write_archive
from registry.errors import CseError


def silent(*_):
    pass


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Return folders of two machines: where each keeps hub files, data and models."""
    from huggingface_hub import constants

    def enter(name):
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / name / "hub"))
        monkeypatch.setenv("CSE_DATA", str(tmp_path / name / "data"))
        monkeypatch.setenv("CSE_MODELS", str(tmp_path / name / "models"))
        monkeypatch.setenv("CSE_HOME", str(tmp_path / name / "home"))
        return tmp_path / name

    return enter


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_files_come_out_where_they_are_looked_for(places, tmp_path):
    here = places("here")
    blob = write(here / "hub/models--a--b/blobs/123", "weights")
    link = here / "hub/models--a--b/snapshots/c0ffee/model.safetensors"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    paths = [
        link.parent, write(here / "data/sts/x.tsv", "score"), write(here / "models/own/config.json", "{}"),
        write(here / "home/downloads/raw.example/y.json", "[]"), write(tmp_path / "elsewhere/z.tsv", "text"),
    ]  # fmt: skip
    packed = write_archive(archive_names(paths), ["simcse_en"], tmp_path / "all.tar", silent)
    there = places("there")
    unpacked = unpack_archive(tmp_path / "all.tar", silent)
    assert unpacked.names == packed.names == (
        "hub/models--a--b/snapshots/c0ffee/model.safetensors", "data/sts/x.tsv", "models/own/config.json",
        "downloads/raw.example/y.json", "data/z.tsv",
    )  # fmt: skip
    assert (there / "hub/models--a--b/snapshots/c0ffee/model.safetensors").read_text() == "weights"
    assert (there / "data/sts/x.tsv").read_text() == "score"
    assert (there / "home/downloads/raw.example/y.json").read_text() == "[]"
    assert (there / "data/z.tsv").read_text() == "text"
    assert unpacked.recipes == ("simcse_en",)
    assert (packed.bytes, unpacked.bytes, unpacked.skipped) == (20, 20, 0)
    assert unpack_archive(tmp_path / "all.tar", silent).skipped == 5
    assert list(tmp_path.rglob("*.part")) == []


def test_without_folders_of_ones_own_data_and_models_lie_in_the_state_directory(places, tmp_path, monkeypatch):
    from registry import models
    from registry.catalogue.find import data_folder

    here = places("here")
    files = archive_names([write(here / "data/a.tsv", "a"), write(here / "models/m/config.json", "{}")])
    write_archive(files, ["r"], tmp_path / "all.tar", silent)
    there = places("there")
    monkeypatch.delenv("CSE_DATA")
    monkeypatch.delenv("CSE_MODELS")
    unpack_archive(tmp_path / "all.tar", silent)
    assert data_folder() == there / "home/data"
    assert (there / "home/data/a.tsv").read_text() == "a"
    assert models.find("m") == there / "home/models/m"


def test_what_comes_with_the_package_is_not_packed(places):
    from registry.models import PRETRAINED

    places("here")
    assert archive_names([PRETRAINED / "mini_en"]) == {}


def test_an_archive_in_the_way_is_kept(places, tmp_path):
    here = places("here")
    (tmp_path / "all.tar").write_text("mine")
    with pytest.raises(CseError, match="exists already"):
        write_archive(archive_names([write(here / "data/a.tsv", "a")]), ["r"], tmp_path / "all.tar", silent)
    assert (tmp_path / "all.tar").read_text() == "mine"


def test_a_folder_is_no_archive_and_a_file_no_folder(places, tmp_path):
    here = places("here")
    with pytest.raises(CseError, match="not a file\n  → make one with `cse data pack RECIPE`"):
        unpack_archive(tmp_path, silent)
    file = write(here / "data/a.tsv", "a")
    with pytest.raises(CseError, match=r"a\.tsv/all\.tar: File exists"):
        write_archive(archive_names([file]), ["r"], file / "all.tar", silent)


def test_another_file_in_the_way_is_kept(places, tmp_path):
    here = places("here")
    write_archive(archive_names([write(here / "data/a.tsv", "a")]), ["r"], tmp_path / "all.tar", silent)
    there = places("there")
    write(there / "data/a.tsv", "mine")
    with pytest.raises(CseError, match=r"a\.tsv exists already, with other content"):
        unpack_archive(tmp_path / "all.tar", silent)
    assert (there / "data/a.tsv").read_text() == "mine"


def forged(path, names, digests=None):
    """Write an archive by hand."""
    with tarfile.open(path, "w") as tar:
        content = json.dumps({"recipes": ["r"], "sha256": digests or dict.fromkeys(names, "0" * 64)}).encode()
        for name, data in [(MANIFEST, content), *((name, b"evil") for name in names)]:
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["../evil", "data/../../evil", "/etc/evil", "elsewhere/evil", "evil"])
def test_a_strangers_archive_writes_nowhere_else(places, tmp_path, name):
    places("there")
    with pytest.raises(CseError, match="no file of `cse data pack`"):
        unpack_archive(forged(tmp_path / "evil.tar", [name]), silent)
    assert not list(tmp_path.rglob("evil"))


def test_links_and_files_the_manifest_does_not_name_are_refused(places, tmp_path):
    places("there")
    with tarfile.open(forged(tmp_path / "evil.tar", []), "a") as tar:
        link = tarfile.TarInfo("data/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(CseError, match="data/link"):
        unpack_archive(tmp_path / "evil.tar", silent)


def test_damage_is_told_and_leaves_nothing(places, tmp_path):
    places("there")
    with pytest.raises(CseError, match=r"data/a is damaged"):
        unpack_archive(forged(tmp_path / "a.tar", ["data/a"]), silent)
    with pytest.raises(CseError, match="1 files are cut off, among them data/b"):
        unpack_archive(forged(tmp_path / "b.tar", [], {"data/b": "0" * 64}), silent)
    (tmp_path / "c.tar").write_bytes(b"no archive at all")
    with pytest.raises(CseError, match="not an archive"):
        unpack_archive(tmp_path / "c.tar", silent)
    with pytest.raises(CseError, match="no archive at"):
        unpack_archive(tmp_path / "none.tar", silent)
    assert not (tmp_path / "there/data").exists() or not list((tmp_path / "there/data").iterdir())
