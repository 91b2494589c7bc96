"""Repositories of the hub, against a fake one: what is asked, what is kept, what a user is told."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from huggingface_hub import constants, snapshot_download

from registry.resources import hub
from registry.resources.repository import Repository
from tests.fake_hub.fixture import hurry, impatient, use
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
    (tmp_path / "content" / "aliases.json").write_text('{"old-name": "new/name"}')
    return tmp_path / "content"


@pytest.fixture
def remote(content, tmp_path, monkeypatch):
    hurry(monkeypatch)
    with FakeHub(content) as running:
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
    assert hub.missing_files(ROWS, ["test.tsv"]) == []
    assert [file.name for file in hub.missing_files(ROWS, ["*.*"])] == ["train.bin"]
    assert hub.cached(ROWS, ["*.*"]) is None
    assert remote.log == []


def test_nothing_else_is_left_in_the_cache(remote):
    hub.fetch(ROWS, ["*.*"])
    kept = [path.relative_to(ROWS.folder).parts[0] for path in ROWS.folder.rglob("*") if path.is_file()]
    assert sorted(kept) == ["blobs"] * 2 + ["refs"] + ["snapshots"] * 2 + ["trees"]


def test_only_what_is_lacking_is_fetched(remote):
    folder = hub.fetch(ROWS, ["*.*"])
    (folder / "train.bin").unlink()
    (ROWS.folder / "blobs" / next(file for file in hub.remote_files(ROWS) if file.name == "train.bin").blob).unlink()
    remote.log.clear()
    hub.fetch(ROWS, ["*.*"])
    assert len(asked(remote, "resolve")) == len(asked(remote, "/cdn/")) == len(remote.log) / 2 == 1


def test_a_file_that_lost_bytes_is_not_there(remote):
    blob = (hub.fetch(ROWS, ["train.bin"]) / "train.bin").resolve()
    blob.write_bytes(b"x")
    assert hub.cached(ROWS, ["train.bin"]) is None
    assert (hub.fetch(ROWS, ["train.bin"]) / "train.bin").read_bytes() == b"x" * 5000


def test_force_fetches_what_has_wrong_bytes_and_nothing_else(remote):
    folder = hub.fetch(ROWS, ["*.*"])
    (folder / "train.bin").resolve().write_bytes(b"y" * 5000)
    assert hub.fetch(ROWS, ["*.*"]) == folder
    assert (folder / "train.bin").read_bytes() == b"y" * 5000
    remote.log.clear()
    hub.fetch(ROWS, ["*.*"], force=True)
    assert (folder / "train.bin").read_bytes() == b"x" * 5000
    assert len(asked(remote, "resolve")) == 1


def test_a_branch_stays_where_it_was_until_it_is_forced(remote, content):
    before = hub.fetch(ROWS, ["test.tsv"])
    (content / "datasets/owner/rows/test.tsv").write_bytes(b"repaired\n")
    remote.load()
    assert hub.fetch(ROWS, ["test.tsv"]) == before
    after = hub.fetch(ROWS, ["test.tsv"], force=True)
    assert (before / "test.tsv").read_bytes() == b"a\tb\n"
    assert (after / "test.tsv").read_bytes() == b"repaired\n"
    assert hub.fetch(ROWS, ["test.tsv"]) == after


def test_a_commit_is_asked_for_and_recorded(remote):
    hub.fetch(Repository("dataset", "owner/rows", COMMIT), ["test.tsv"])
    assert hub.used() == {"dataset owner/rows": COMMIT}
    assert not (ROWS.folder / "refs").exists()
    hub.forget()
    assert hub.used() == {}


def test_the_commit_of_the_run_wins(remote):
    hub.fetch(ROWS, ["test.tsv"])
    with hub.pinned({"dataset owner/rows": OTHER}):
        assert hub.commit_of(Repository("dataset", "owner/rows", COMMIT)) == OTHER
        assert hub.fetch(Repository("dataset", "owner/rows", COMMIT), ["test.tsv"]).name == OTHER
        assert hub.fetch(ROWS, ["test.tsv"]).name == OTHER
        assert hub.used() == {"dataset owner/rows": OTHER}
    assert hub.fetch(ROWS, ["test.tsv"]).name == remote.repos["datasets", "owner/rows"].main


def test_a_name_that_moved_is_kept_under_the_new_one(remote):
    found = hub.resolve(Repository("model", "old-name"))
    assert found.id == "new/name"
    assert hub.fetch(Repository("model", "old-name"), ["config.json"]) == hub.fetch(found, ["config.json"])
    assert hub.repositories() == ["new/name"]
    assert hub.repositories("dataset") == []


def test_offline_everything_works_that_was_fetched_once(remote, monkeypatch):
    folder = hub.fetch(ROWS, ["*.tsv"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub.fetch(ROWS, ["*.tsv"]) == folder
    with refuses("hub.unreachable", "HF_HUB_OFFLINE"):
        hub.fetch(ROWS, ["train.bin"])
    with refuses("hub.other_commit", f"owner/rows@{folder.name}"):
        hub.fetch(Repository("dataset", "owner/rows", COMMIT), ["test.tsv"])


def test_huggingface_hub_and_cse_share_the_cache(remote, content):
    folder = hub.fetch(ROWS, ["*.tsv"])
    theirs = snapshot_download("owner/rows", repo_type="dataset", allow_patterns="*.tsv", local_files_only=True)
    assert Path(theirs) == folder
    snapshot_download("new/name", revision=COMMIT)
    remote.log.clear()
    found = hub.fetch(Repository("model", "new/name", COMMIT), ["config.json"])
    assert found.name == COMMIT
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
    assert len(hub.remote_files(ROWS)) == 5
    assert json.loads(listing.read_text()) == json.loads(kept)


def test_the_token_goes_to_the_hub_alone(remote, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.fetch(ROWS, ["train.bin"])
    assert len(remote.log) == 3  # revision, resolve, the file
    assert asked(remote, "/cdn/")
    assert all("authorized" in line for line in asked(remote) if "/cdn/" not in line)
    assert not any("authorized" in line for line in asked(remote, "/cdn/"))


ANSWERS = [
    ({"gated": True}, "hub.gated", 3, "hf auth login"),
    ({"status": 401}, "hub.unknown_repository", 2, "hf auth login"),
    ({"status": 403}, "hub.forbidden", 3, "403"),
    ({"status": 404}, "hub.missing_file", 3, "tree/main"),
    ({"status": 500}, "hub.unreachable", 3, "hf download owner/rows"),
    ({"hang": 2}, "hub.unreachable", 3, "127.0.0.1 does not respond"),
]
BYTES = [
    ({"drop_after": 0}, "hub.unreachable", 3, "interrupted"),
    ({"corrupt": True}, "download.wrong_bytes", 3, "cse data download --force rows"),
]
REFUSALS = [(where, *case) for where in ("/resolve/", "/api/.*/revision") for case in ANSWERS]
REFUSALS += [("/resolve/", *case) for case in BYTES]


@pytest.mark.parametrize(("where", "rule", "code", "exit_code", "value"), REFUSALS, ids=str)
def test_every_refusal_is_one_message(remote, where, rule, code, exit_code, value):
    remote.fail({"match": where, **rule})
    with refuses(code, "data set 'owner/rows'", value) as caught, impatient() if "hang" in rule else nullcontext():
        hub.fetch(ROWS, ["train.bin"], repair="cse data download --force rows")
    assert caught.value.exit_code == exit_code
    remote.fail()
    assert files(hub.fetch(ROWS, ["train.bin"])) == ["train.bin"]


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


def test_a_file_system_without_links_has_copies(remote, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    folder = hub.fetch(ROWS, ["test.tsv"])
    assert not (folder / "test.tsv").is_symlink()
    assert (folder / "test.tsv").read_bytes() == b"a\tb\n"


@pytest.mark.parametrize("answer", ["<html>Please log in", "[]", '{"id": 1}'])
def test_a_network_that_wants_a_login_is_no_hub(remote, answer):
    remote.fail({"match": "/revision/", "body": answer})
    with refuses("hub.invalid_response", "HF_ENDPOINT"):
        hub.fetch(ROWS, ["x"])


def test_a_cache_that_cannot_be_written_is_one_message(remote, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with refuses("disk.not_writable", "Permission denied"):
        hub.fetch(ROWS, ["test.tsv"])


def test_a_former_name_is_recorded_under_the_present_one(remote):
    present = hub.fetch(Repository("model", "new/name"), ["config.json"])
    root = present.parents[1]
    root.rename(root.with_name("models--old-name"))
    hub.forget()
    former = Repository("model", "old-name", known_as="new/name")
    assert hub.fetch(former, ["config.json"]).name == present.name
    assert hub.used() == {"model new/name": present.name}
    with hub.pinned({"model new/name": OTHER}):
        assert hub.commit_of(former) == OTHER
        assert hub.fetch(Repository("model", "old-name"), ["config.json"]).name in (OTHER, present.name)


def test_the_commit_of_the_run_holds_for_a_former_name_too(remote):
    with hub.pinned({"model new/name": OTHER}):
        assert hub.fetch(Repository("model", "old-name"), ["config.json"]).name == OTHER
    assert hub.used() == {"model new/name": OTHER}


@pytest.mark.parametrize(
    ("name", "pattern", "same"),
    [
        ("a.json", "*.json", True),
        ("onnx/a.json", "*.json", False),
        ("data/test-0.parquet", "data/test-*", True),
        ("data/[en].csv", "data/[en].csv", True),
        ("data/e.csv", "data/[en].csv", True),
        ("A.json", "a.json", False),
    ],
)
def test_patterns(name, pattern, same):
    assert hub.matches(name, pattern) is same


CODE = """
import time
import httpx2, huggingface_hub  # seconds on a loaded machine
from registry.resources import download
download.READ_TIMEOUT, download.SILENCE = 0.5, 1.5
from registry.resources.models import locate
from registry.errors import CseError
began = time.monotonic()
try:
    locate("owner/no-such-model")
except CseError as error:
    print(time.monotonic() - began, error)
"""


def failed_lookup(**variables):
    """Return message and seconds of looking up an unknown model in a fresh process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS_", "CSE_"))}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment | variables, capture_output=True, text=True, check=True
    )
    seconds, _, message = done.stdout.partition(" ")
    return message, float(seconds)


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE=1", "HF_ENDPOINT=https://hub.invalid"])
def test_without_a_hub_the_reason_is_named(tmp_path, variable):
    name, value = variable.split("=")
    message, _ = failed_lookup(HF_HOME=str(tmp_path), **{name: value})
    assert (name if value == "1" else "hub.invalid") in message


def test_a_silent_hub_fails_in_time(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        message, seconds = failed_lookup(HF_ENDPOINT=endpoint, HF_HOME=str(tmp_path), NO_PROXY="127.0.0.1")
    assert "127.0.0.1 does not respond" in message
    assert "hf download owner/no-such-model" in message
    assert seconds < 15


def test_whether_the_hub_answers_is_asked_once_and_quickly(remote, monkeypatch):
    assert hub.unreachable() is None
    assert hub.unreachable() is None
    assert len(remote.log) == 1
    hub.unreachable.cache_clear()
    monkeypatch.setattr(hub, "PATIENCE", 0.2)
    remote.fail({"match": "^/$", "hang": 60})
    began = time.monotonic()
    assert hub.unreachable() == f"the Hub at {remote.endpoint} does not respond"
    assert time.monotonic() - began < 15
    hub.unreachable.cache_clear()
