"""Files at an address, over a network that fails, and the files that components name."""

import errno
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants

from registry.resources import catalog
from registry.resources import download as module
from registry.resources.catalog import own_file
from registry.resources.download import KnownFile, digest, download, known_files, reporting
from tests.fake_hub.fixture import hurry, use
from tests.fake_hub.server import FakeHub
from tests.support.errors import refuses

pytestmark = pytest.mark.process

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    raw = tmp_path / "content" / "raw"
    raw.mkdir(parents=True)
    (raw / "file").write_bytes(CONTENT)
    with zipfile.ZipFile(raw / "vectors.zip", "w") as packed:
        packed.writestr("deep/vectors.txt", "a 1 2\nb 3 4\n")
        packed.writestr("deep/words.txt", "a\nb\n")
        packed.writestr("other.txt", "not kept")
    hurry(monkeypatch)
    with FakeHub(tmp_path / "content") as server:
        use(server, tmp_path / "hf", monkeypatch)
        yield server


@pytest.fixture
def target(tmp_path):
    return tmp_path / "downloads" / "file"


def fetch(hub, target, **known):
    download(f"{hub.endpoint}/raw/file", target, **{"size": SIZE, "sha256": SHA256} | known)


def there(target):
    return sorted(path.name for path in target.parent.iterdir())


def test_a_file_arrives_once_and_nothing_else(hub, target):
    told = []
    with reporting(lambda *event: told.append(event)):
        fetch(hub, target, label="the file")
    assert target.read_bytes() == CONTENT
    assert there(target) == ["file"]
    assert told[-1] == ("the file", SIZE, SIZE, "")
    fetch(hub, target)
    assert len(hub.log) == 1
    fetch(hub, target, force=True)
    assert len(hub.log) == 2


@pytest.mark.parametrize(
    "rule",
    [
        {"status": 500, "times": 2},
        {"status": 429, "times": 2, "headers": {"Retry-After": "0"}},
        {"hang": 2, "times": 1},
        {"drop": True, "times": 3},
        {"drop_after": 100_000, "times": 7},
    ],
    ids=str,
)
def test_faults_that_pass_are_overcome(hub, target, rule, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    hub.fail({"match": "/raw/", **rule})
    fetch(hub, target, size=0, sha256=None)
    assert target.read_bytes() == CONTENT
    assert there(target) == ["file"]


LASTING = [
    ({"status": 500}, "500 made to fail", 4),
    ({"drop": True}, "interrupted", 4),
    ({"truncate": 1000}, "SHA-256", 1),
    ({"corrupt": True}, f"instead of {SHA256}", 1),
    ({"status": 404}, "404", 1),
    ({"status": 403}, "403", 1),
]


@pytest.mark.parametrize(("rule", "value", "requests"), LASTING, ids=str)
def test_faults_that_stay_are_one_message_and_leave_nothing(hub, target, rule, value, requests):
    hub.fail({"match": "/raw/", **rule})
    code = "download.wrong_bytes" if "SHA" in value or "instead" in value else "download.failed"
    with refuses(code, value, "the file") as caught:
        fetch(hub, target, label="the file")
    assert caught.value.exit_code == 3
    assert len(hub.log) == requests
    assert not target.exists()
    hub.fail()
    fetch(hub, target)
    assert target.read_bytes() == CONTENT
    assert there(target) == ["file"]


def test_a_killed_download_is_repeated(hub, target):
    hub.fail({"match": "/raw/", "rate": 150_000})  # seven seconds
    code = "from registry.resources.download import download\nfrom pathlib import Path\n"
    code += f"download({hub.endpoint + '/raw/file'!r}, Path({str(target)!r}))"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    deadline = time.monotonic() + 60
    while not hub.log and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not target.exists()
    hub.fail()
    fetch(hub, target)
    assert target.read_bytes() == CONTENT
    assert there(target) == ["file"]


def test_several_at_once_fetch_once(hub, target):
    threads = [threading.Thread(target=fetch, args=(hub, target)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == CONTENT
    assert len(hub.log) == 1


def test_a_full_disk_and_a_folder_that_may_not_be_written(hub, target, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 1000))
    with refuses("disk.full", target) as caught:
        fetch(hub, target)
    assert caught.value.exit_code == 4
    assert hub.log == []

    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with refuses("disk.not_writable", target, "Permission denied"):
        fetch(hub, target)


def test_offline_mode_forbids_every_address(hub, target, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with refuses("download.failed", "HF_HUB_OFFLINE"):
        fetch(hub, target)
    assert hub.log == []


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/x", "http://[broken/x"])
def test_invalid_addresses(hub, target, url):
    with refuses("download.failed", "the file"):
        download(url, target, label="the file")


@pytest.mark.parametrize(("asked", "pause"), [("3", 3), ("100", 60), ("soon", 0.01), ("", 0.01)])
def test_the_pause_that_a_server_asks_for_is_kept_to(hub, target, monkeypatch, asked, pause):
    paused = []
    monkeypatch.setattr(time, "sleep", paused.append)
    hub.fail({"match": "/raw/", "status": 503, "times": 1, "headers": {"Retry-After": asked}})
    told = []
    with reporting(lambda *event: told.append(event)):
        fetch(hub, target, label="the file")
    assert pause in paused
    assert told[0] == ("the file", 0, None, f"waiting {pause:.0f} s: 503 made to fail")


def test_digests_of_git(tmp_path):
    (tmp_path / "hello").write_bytes(b"hello\n")
    assert digest(tmp_path / "hello", git=True) == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object


@pytest.fixture
def vectors(hub, tmp_path, monkeypatch):
    """An archive of two vectors and their words that components can name."""
    content = (tmp_path / "content/raw/vectors.zip").read_bytes()
    known = KnownFile(
        "vectors.txt", "Two words", "CC0", f"{hub.endpoint}/raw/vectors.zip", len(content),
        hashlib.sha256(content).hexdigest(), ("deep/vectors.txt", "deep/words.txt"),
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog, "known_files", lambda: {"vectors.txt": known})
    return known


def test_a_known_file_is_downloaded_once_and_found_by_its_name(vectors, hub, tmp_path):
    assert own_file("vectors.txt") is None
    path = vectors.fetch()
    assert path.read_text() == "a 1 2\nb 3 4\n"
    assert there(path) == ["vectors.txt", "words.txt"]
    assert own_file("vectors.txt") == path
    hub.log.clear()
    assert vectors.fetch() == path
    assert hub.log == []
    (tmp_path / "vectors.txt").write_text("mine")
    assert own_file("vectors.txt") == tmp_path / "vectors.txt"


def test_known_files_are_kept_as_they_are_or_refused(vectors):
    alone = replace(vectors, name="vectors.zip", members=())
    assert alone.cached() is None
    assert digest(alone.fetch()) == vectors.sha256
    assert alone.cached() == alone.fetch()
    with refuses("download.wrong_bytes", "0" * 64):
        replace(vectors, sha256="0" * 64).fetch()
    assert vectors.cached() is None
    with refuses("data.missing_file", "deep/numbers"):
        replace(vectors, members=("deep/vectors.txt", "deep/numbers.txt")).fetch()


def test_the_table_is_complete():
    assert known_files()
    for name, known in known_files().items():
        assert (known.members or (known.url,))[0].endswith(name)
        assert re.fullmatch("[0-9a-f]{64}", known.sha256)
        assert known.url.startswith("https://")
