"""Repositories of the hub, against a fake one: what is asked, what is kept, what a user is told."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from huggingface_hub import constants, file_download, snapshot_download

from registry.resources import hub
from registry.resources.download import reporting
from registry.resources.hub import Repository
from tests.fake_hub.fixture import hurry, use
from tests.fake_hub.server import FakeHub
from tests.support.errors import refuses

pytestmark = pytest.mark.process

COMMIT, OTHER = "1" * 40, "2" * 40
ROWS = Repository("dataset", "owner/rows")
FILES = {
    "datasets/owner/rows/test.tsv": b"a\tb\n",
    "datasets/owner/rows/train.bin": b"x" * 5000,
    "datasets/owner/rows/data/one-1.txt": b"1",
    "datasets/owner/rows/data/one-2.txt": b"22",
    "datasets/owner/rows/data/deep/three.txt": b"333",
    "models/new/name/config.json": b"{}",
}


@pytest.fixture
def content(tmp_path):
    for name, content in FILES.items():
        place = tmp_path / "content" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return tmp_path / "content"


@pytest.fixture
def remote(content, tmp_path, monkeypatch):
    hurry(monkeypatch)
    with FakeHub(content, {"old-name": "new/name"}) as running:
        use(running, tmp_path / "hf", monkeypatch)
        yield running


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def asked(remote, word=""):
    return [line for line in remote.log if word in line]


def test_downloaded_files_are_found_without_a_request(remote):
    folder = hub.fetch(ROWS, ["*.tsv", "data/one-*.txt"])
    assert files(folder) == ["data/one-1.txt", "data/one-2.txt", "test.tsv"]
    assert (folder / "test.tsv").read_bytes() == b"a\tb\n"
    main = remote.repos["datasets", "owner/rows"].main
    assert folder.name == main
    assert (ROWS.folder / "refs" / "main").read_text() == main
    remote.log.clear()
    assert hub.fetch(ROWS, ["*.tsv"]) == hub.cached(ROWS, ["test.tsv"]) == folder
    assert hub.missing_bytes(ROWS, ["test.tsv"]) == 0
    assert hub.missing_bytes(ROWS, ["*.*"]) == 5000
    assert hub.missing_bytes(Repository("dataset", "owner/other"), ["*.*"]) is None
    assert hub.cached(ROWS, ["*.*"]) is None
    assert remote.log == []


def test_a_file_that_lost_bytes_is_downloaded_again_and_one_with_wrong_bytes_by_force(remote):
    folder = hub.fetch(ROWS, ["*.*"])
    (folder / "train.bin").resolve().write_bytes(b"x")
    assert hub.cached(ROWS, ["train.bin"]) is None
    remote.log.clear()
    assert (hub.fetch(ROWS, ["*.*"]) / "train.bin").read_bytes() == b"x" * 5000
    assert not asked(remote, "test.tsv")
    (folder / "train.bin").resolve().write_bytes(b"y" * 5000)
    assert hub.fetch(ROWS, ["*.*"]) == folder
    assert (folder / "train.bin").read_bytes() == b"y" * 5000
    remote.log.clear()
    hub.fetch(ROWS, ["*.*"], force=True)
    assert (folder / "train.bin").read_bytes() == b"x" * 5000
    assert not asked(remote, "test.tsv")


def test_a_branch_stays_where_it_was_until_it_is_forced(remote, content):
    before = hub.fetch(ROWS, ["test.tsv"])
    (content / "datasets/owner/rows/test.tsv").write_bytes(b"repaired\n")
    remote.load()
    assert hub.fetch(ROWS, ["test.tsv"]) == before
    after = hub.fetch(ROWS, ["test.tsv"], force=True)
    assert (before / "test.tsv").read_bytes() == b"a\tb\n"
    assert (after / "test.tsv").read_bytes() == b"repaired\n"
    assert hub.fetch(ROWS, ["test.tsv"]) == after


def test_a_commit_is_asked_for_and_recorded_and_that_of_the_run_wins(remote):
    hub.fetch(Repository("dataset", "owner/rows", COMMIT), ["test.tsv"])
    assert hub.used() == {"dataset owner/rows": COMMIT}
    assert all(COMMIT in line for line in asked(remote))
    assert not (ROWS.folder / "refs").exists()
    hub.forget()
    assert hub.used() == {}
    hub.fetch(ROWS, ["test.tsv"])
    with hub.pinned({"dataset owner/rows": OTHER}):
        assert hub.commit_of(Repository("dataset", "owner/rows", COMMIT)) == OTHER
        assert hub.fetch(Repository("dataset", "owner/rows", COMMIT), ["test.tsv"]).name == OTHER
        assert hub.fetch(ROWS, ["test.tsv"], force=True).name == OTHER
        assert hub.used() == {"dataset owner/rows": OTHER}
    assert hub.fetch(ROWS, ["test.tsv"]).name == remote.repos["datasets", "owner/rows"].main


def test_a_former_name_is_recorded_under_the_present_one(remote):
    former = Repository("model", "old-name", known_as="new/name")
    folder = hub.fetch(former, ["config.json"])  # the hub redirects
    assert hub.repositories() == ["old-name"]
    assert hub.used() == {"model new/name": folder.name}
    with hub.pinned({"model new/name": OTHER}):
        assert hub.fetch(former, ["config.json"]).name == OTHER


def test_offline_everything_works_that_was_fetched_once(remote, monkeypatch):
    folder = hub.fetch(ROWS, ["*.tsv"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    remote.log.clear()
    assert hub.fetch(ROWS, ["*.tsv"]) == folder
    with refuses("hub.unreachable", "train.bin", "HF_HUB_OFFLINE") as caught:
        hub.fetch(ROWS, ["train.bin"])
    assert caught.value.exit_code == 3
    with refuses("hub.other_commit", f"owner/rows@{folder.name}"):
        hub.fetch(Repository("dataset", "owner/rows", COMMIT), ["test.tsv"])
    assert remote.log == []


def test_huggingface_hub_and_cse_share_the_cache(remote):
    folder = hub.fetch(ROWS, ["*.tsv"])
    theirs = snapshot_download("owner/rows", repo_type="dataset", allow_patterns="*.tsv", local_files_only=True)
    assert Path(theirs) == folder
    snapshot_download("new/name", revision=COMMIT)
    remote.log.clear()
    assert hub.fetch(Repository("model", "new/name", COMMIT), ["config.json"]).name == COMMIT
    assert remote.log == []


def test_without_a_listing_the_caller_says_what_is_complete(remote):
    folder = hub.fetch(ROWS, ["*.*"])
    next((ROWS.folder / "trees").iterdir()).unlink()
    assert hub.cached(ROWS, ["test.tsv", "*.bin"]) == folder
    assert hub.cached(ROWS, ["test.tsv", "*.csv"]) is None
    assert hub.cached(ROWS, ["test.tsv"], complete=lambda folder: False) is None
    assert hub.cached(ROWS, ["other.tsv"], complete=lambda folder: True) == folder


def test_a_damaged_listing_is_asked_for_again(remote):
    folder = hub.fetch(ROWS, ["*.*"])
    listing = ROWS.folder / "trees" / f"{folder.name}.json"
    kept = listing.read_text()
    listing.write_text("{")
    assert len(hub.look_up(ROWS)[1]) == 5
    assert json.loads(listing.read_text()) == json.loads(kept)


def test_the_token_goes_to_the_hub_alone(remote, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.fetch(ROWS, ["train.bin"])
    assert asked(remote, "/cdn/")
    assert all("authorized" in line for line in asked(remote) if "/cdn/" not in line)
    assert not any("authorized" in line for line in asked(remote, "/cdn/"))


def test_xet_is_used_if_the_hub_offers_it(remote, monkeypatch):
    def xet_get(*, incomplete_path, xet_file_data, expected_size, tqdm_class, **_):
        assert xet_file_data.file_hash == "f" * 64
        incomplete_path.write_bytes(b"x" * 5000)
        with tqdm_class(total=expected_size) as bar:
            bar.update_transfer(5000)
            bar.update(5000)

    monkeypatch.setattr(file_download, "xet_get", xet_get)
    remote.fail({"match": "train.bin", "xet": "f" * 64})
    told = []
    with reporting(lambda *event: told.append(event)):
        hub.fetch(ROWS, ["train.bin"])
    assert told == [("owner/rows/train.bin", 5000, 5000, "")]
    assert not asked(remote, "GET /datasets") + asked(remote, "/cdn/")


PASSING = [
    ("/revision/", {"status": 500, "times": 2}),
    ("/revision/", {"status": 429, "times": 2, "headers": {"Retry-After": "0"}}),
    ("/revision/", {"drop": True, "times": 1}),
    ("/resolve/", {"status": 503, "times": 3}),
    ("/cdn/", {"status": 502, "times": 2}),
    ("/cdn/", {"drop_after": 2000, "times": 1}),
]


@pytest.mark.parametrize(("where", "rule"), PASSING, ids=str)
def test_faults_that_pass_are_overcome(remote, where, rule):
    remote.fail({"match": where, **rule})
    told = []
    with reporting(lambda *event: told.append(event)):
        folder = hub.fetch(ROWS, ["train.bin"])
    assert (folder / "train.bin").read_bytes() == b"x" * 5000
    assert told[-1] == ("owner/rows/train.bin", 5000, 5000, "")


LASTING = [
    ("/revision/", {"gated": True}, "hub.gated", 3, "hf auth login"),
    ("/revision/", {"status": 401}, "hub.unknown_repository", 2, "hf auth login"),
    ("/revision/", {"status": 403}, "hub.forbidden", 3, "403"),
    ("/revision/", {"status": 404}, "hub.missing_file", 3, "tree/main"),
    ("/revision/", {"status": 500}, "hub.unreachable", 3, "hf download owner/rows"),
    ("/revision/", {"drop": True}, "hub.unreachable", 3, "interrupted"),
    ("/revision/", {"body": "<html>Please log in"}, "hub.invalid_response", 3, "HF_ENDPOINT"),
    ("/resolve/", {"status": 404}, "hub.missing_file", 3, "train.bin"),
    ("/resolve/", {"body": "<html>Please log in"}, "hub.invalid_response", 3, "HF_ENDPOINT"),
    ("/cdn/", {"status": 500}, "hub.unreachable", 3, "500 made to fail"),
    ("/cdn/", {"drop_after": 0}, "hub.unreachable", 3, "interrupted"),
    ("/cdn/", {"truncate": 1000}, "hub.unreachable", 3, "size 1000"),
    ("/cdn/", {"corrupt": True}, "download.wrong_bytes", 3, "train.bin: wrong bytes: SHA-256"),
]


@pytest.mark.parametrize(("where", "rule", "code", "exit_code", "value"), LASTING, ids=str)
def test_every_refusal_is_one_message_and_leaves_nothing(remote, where, rule, code, exit_code, value):
    remote.fail({"match": where, **rule})
    with refuses(code, "data set 'owner/rows'", value) as caught:
        hub.fetch(ROWS, ["train.bin"])
    assert caught.value.exit_code == exit_code
    assert hub.cached(ROWS, ["train.bin"]) is None
    assert not [
        path for path in ROWS.folder.rglob("*") if path.is_file() and path.parent.name in ("blobs", "snapshots")
    ]
    remote.fail()
    assert files(hub.fetch(ROWS, ["train.bin"])) == ["train.bin"]


def test_small_files_are_verified_too(remote):
    remote.fail({"match": "/resolve/", "corrupt": True})
    with refuses("download.wrong_bytes", "test.tsv: wrong bytes: git SHA-1"):
        hub.fetch(ROWS, ["test.tsv"])
    assert hub.cached(ROWS, ["test.tsv"]) is None


def test_unknown_names_revisions_and_files(remote):
    with refuses("hub.unknown_repository", "owner/none", "Did you mean 'rows'?"):
        hub.fetch(Repository("dataset", "owner/none"), ["x"], hint=" Did you mean 'rows'?")
    with refuses("hub.unknown_revision", "'old'"):
        hub.fetch(Repository("dataset", "owner/rows", "old"), ["x"])
    with refuses("hub.missing_file", "none.tsv", "test.tsv"):
        hub.fetch(ROWS, ["test.tsv", "none.tsv"])
    for name in ("two words", "a/b/c", "a--b", "../x", "owner/x.git"):
        with refuses("hub.invalid_name", name):
            hub.fetch(Repository("dataset", name), ["x"])


def test_a_cache_that_cannot_be_written_is_one_message(remote, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with refuses("disk.not_writable", "Permission denied"):
        hub.fetch(ROWS, ["test.tsv"])


def test_a_full_disk_is_told_before_it_is_full(remote, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 1000))
    with refuses("disk.full", ROWS.folder) as caught:
        hub.fetch(ROWS, ["train.bin"])
    assert caught.value.exit_code == 4
    assert not asked(remote, "resolve")


def test_patterns():
    assert hub.matches("a.json", "*.json")
    assert hub.matches("data/test-0.parquet", "data/test-*")
    assert hub.matches("data/[en].csv", "data/[en].csv")
    assert hub.matches("data/e.csv", "data/[en].csv")
    assert not hub.matches("onnx/a.json", "*.json")
    assert not hub.matches("A.json", "a.json")


CODE = """
from registry.resources.hub import Repository, fetch
from registry.errors import CseError
try:
    print(fetch(Repository("dataset", "owner/rows"), ["train.bin"]))
except CseError as error:
    print(error.exit_code, error)
"""


def program(**variables):
    """Start a program of its own that fetches a file."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS_", "CSE_"))}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "NO_PROXY": "127.0.0.1,localhost", **variables}
    return subprocess.Popen([sys.executable, "-c", CODE], env=environment, stdout=subprocess.PIPE, text=True)


def test_a_killed_download_is_repeated(remote, tmp_path):
    remote.fail({"match": "/cdn/", "rate": 500})  # ten seconds
    running = program(HF_ENDPOINT=remote.endpoint, HF_HOME=str(tmp_path / "hf"))
    deadline = time.monotonic() + 60
    while not asked(remote, "GET /cdn/") and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    assert running.communicate()[0] == ""
    assert hub.cached(ROWS, ["train.bin"]) is None
    (left,) = (ROWS.folder / "blobs").iterdir()
    os.utime(left, (0, 0))
    remote.fail()
    assert (hub.fetch(ROWS, ["train.bin"]) / "train.bin").read_bytes() == b"x" * 5000
    assert not left.exists()


def test_a_mirror_and_offline_mode_are_honored(remote, tmp_path):
    first, _ = program(HF_ENDPOINT=remote.endpoint, HF_HOME=str(tmp_path / "hf")).communicate()
    assert first.strip() == str(hub.cached(ROWS, ["train.bin"]))
    remote.log.clear()
    again, _ = program(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hf")).communicate()
    assert again == first
    nothing, _ = program(HF_HUB_OFFLINE="1", HF_ENDPOINT=remote.endpoint, HF_HOME=str(tmp_path / "no")).communicate()
    assert nothing.startswith("3 ")
    assert "HF_HUB_OFFLINE is set" in nothing
    assert remote.log == []


def test_a_silent_hub_fails_in_time(remote, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(hub, "PATIENCE", 0.3)
        assert hub.unreachable() == f"the Hub at {endpoint} does not respond"
        with refuses("hub.unreachable", "127.0.0.1 does not respond"):
            hub.fetch(ROWS, ["test.tsv"])
    hub.responds.cache_clear()
    monkeypatch.setattr(constants, "ENDPOINT", remote.endpoint)
    assert hub.unreachable() is None
    assert hub.unreachable() is None
    assert len(remote.log) == 1
