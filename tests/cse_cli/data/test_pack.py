"""Archives for machines without internet: written here, unpacked there, nothing else written."""

import gzip
import io
import tarfile

import pytest

from cse_cli.data.pack import archive_names, unpack_archive, write_archive
from tests.support.errors import refuses


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


def test_files_are_unpacked_to_the_local_directories(places, tmp_path):
    here = places("here")
    blob = write(here / "hub/models--a--b/blobs/123", "weights")
    link = here / "hub/models--a--b/snapshots/c0ffee/model.safetensors"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    paths = [
        link.parent, write(here / "data/sts/x.tsv", "score"), write(here / "models/own/config.json", "{}"),
        write(here / "home/downloads/raw.example/y.json", "[]"), write(here / "home/cache/columns/k/b.txt", "a\n"),
        write(tmp_path / "elsewhere/z.tsv", "text"),
    ]  # fmt: skip
    packed = write_archive(archive_names(paths), tmp_path / "all.tar", silent)
    there = places("there")
    unpacked = unpack_archive(tmp_path / "all.tar", silent)
    assert unpacked.names == packed.names == (
        "hub/models--a--b/snapshots/c0ffee/model.safetensors", "data/sts/x.tsv", "models/own/config.json",
        "downloads/raw.example/y.json", "columns/k/b.txt", "data/z.tsv",
    )  # fmt: skip
    assert (there / "hub/models--a--b/snapshots/c0ffee/model.safetensors").read_text() == "weights"
    assert (there / "data/sts/x.tsv").read_text() == "score"
    assert (there / "home/downloads/raw.example/y.json").read_text() == "[]"
    assert (there / "data/z.tsv").read_text() == "text"
    assert (there / "home/cache/columns/k/b.txt").read_text() == "a\n"
    assert (packed.bytes, unpacked.bytes, unpacked.skipped) == (22, 22, 0)
    assert unpack_archive(tmp_path / "all.tar", silent).skipped == 6
    assert list(tmp_path.rglob("*.part")) == list(tmp_path.rglob("unpack-*")) == []


def test_data_and_models_default_to_the_state_directory(places, tmp_path, monkeypatch):
    from registry.resources import models
    from registry.resources.catalog.find import data_folder

    here = places("here")
    files = archive_names([write(here / "data/a.tsv", "a"), write(here / "models/m/config.json", "{}")])
    write_archive(files, tmp_path / "all.tar", silent)
    there = places("there")
    monkeypatch.delenv("CSE_DATA")
    monkeypatch.delenv("CSE_MODELS")
    unpack_archive(tmp_path / "all.tar", silent)
    assert data_folder() == there / "home/data"
    assert (there / "home/data/a.tsv").read_text() == "a"
    assert models.find("m") == there / "home/models/m"


def test_files_of_the_package_are_not_packed(places):
    from registry.resources.models import PRETRAINED

    places("here")
    assert archive_names([PRETRAINED / "mini_en"]) == {}


def test_an_existing_archive_is_kept(places, tmp_path):
    here = places("here")
    (tmp_path / "all.tar").write_text("mine")
    with refuses("data.output_exists", "all.tar"):
        write_archive(archive_names([write(here / "data/a.tsv", "a")]), tmp_path / "all.tar", silent)
    assert (tmp_path / "all.tar").read_text() == "mine"


def test_a_directory_is_not_an_archive(places, tmp_path):
    here = places("here")
    with refuses("data.no_archive", tmp_path, "cse data pack RECIPE"):
        unpack_archive(tmp_path, silent)
    file = write(here / "data/a.tsv", "a")
    with refuses("data.archive_not_writable", "a.tsv"):
        write_archive(archive_names([file]), file / "all.tar", silent)


def test_a_different_file_is_kept(places, tmp_path):
    here = places("here")
    write_archive(archive_names([write(here / "data/a.tsv", "a")]), tmp_path / "all.tar", silent)
    there = places("there")
    write(there / "data/a.tsv", "mine")
    with refuses("data.other_file_exists", "a.tsv"):
        unpack_archive(tmp_path / "all.tar", silent)
    assert (there / "data/a.tsv").read_text() == "mine"


def forged(path, good, name, kind):
    """Write an archive by hand: a file, and a member of some kind."""
    with tarfile.open(path, "w:gz") as tar:
        for member, type_ in ((good, tarfile.REGTYPE), (name, kind)):
            about = tarfile.TarInfo(member)
            about.size, about.type, about.linkname = (4 if type_ == tarfile.REGTYPE else 0), type_, "/etc/passwd"
            tar.addfile(about, io.BytesIO(b"evil"))
    return path


NAMES = ("../evil", "data/../../evil", "/etc/evil", "other/evil", "evil", "data")
FOREIGN = [(name, tarfile.REGTYPE) for name in NAMES]
FOREIGN += [("data/evil", kind) for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)]


@pytest.mark.parametrize(("name", "kind"), FOREIGN)
def test_a_strangers_archive_writes_nowhere_else(places, tmp_path, name, kind):
    places("there")
    with refuses("data.foreign_archive", name):
        unpack_archive(forged(tmp_path / "evil.tar", "data/good", name, kind), silent)
    assert not list(tmp_path.rglob("evil"))
    assert not list(tmp_path.rglob("good"))


def test_damage_is_found_and_leaves_nothing(places, tmp_path):
    here = places("here")
    text = "".join(f"sentence {number}\n" for number in range(5000))
    write_archive(archive_names([write(here / "data/a.tsv", text)]), tmp_path / "all.tar", silent)
    there, whole = places("there"), (tmp_path / "all.tar").read_bytes()
    assert gzip.decompress(whole)
    flipped = [whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :] for at in range(40, len(whole), len(whole) // 20)]
    for number, content in enumerate([*flipped, whole[:-5], whole[: len(whole) // 2], b"no archive at all", b""]):
        damaged = tmp_path / f"{number}.tar"
        damaged.write_bytes(content)
        with refuses("data.damaged_archive", damaged):
            unpack_archive(damaged, silent)
    with refuses("data.no_archive", "none.tar"):
        unpack_archive(tmp_path / "none.tar", silent)
    assert not (there / "data").exists()
    unpack_archive(tmp_path / "all.tar", silent)
    assert (there / "data/a.tsv").read_text() == text
