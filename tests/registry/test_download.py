"""Files over a network that fails: against a server of our own, with shorter time limits."""

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from registry.resources import download
from registry.resources.download import Download, DownloadError, digest, reporting
from tests.fake_hub.fixture import hurry, impatient, use
from tests.fake_hub.server import FakeHub
from tests.support.errors import refuses

pytestmark = pytest.mark.process

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)
WAITS = "another process is downloading it"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    (tmp_path / "content" / "raw").mkdir(parents=True)
    (tmp_path / "content" / "raw" / "file").write_bytes(CONTENT)
    hurry(monkeypatch)
    with FakeHub(tmp_path / "content") as server:
        use(server, tmp_path / "hf", monkeypatch)
        yield server


@pytest.fixture
def target(tmp_path):
    return tmp_path / "downloads" / "file"


def fetch(hub, target, **known):
    Download(f"{hub.endpoint}/raw/file", target, **{"size": SIZE, "sha256": SHA256} | known).run()


def there(target):
    return sorted(path.name for path in target.parent.iterdir())


def test_a_file_arrives_and_nothing_else(hub, target):
    fetch(hub, target)
    assert target.read_bytes() == CONTENT
    assert there(target) == ["file"]
    fetch(hub, target)
    assert len(hub.log) == 1


@pytest.mark.parametrize(
    "rule",
    [
        {"status": 500, "times": 2},
        {"status": 503, "times": 4},
        {"status": 429, "times": 2, "headers": {"Retry-After": "0"}},
        {"status": 408, "times": 1},
        {"hang": 3, "times": 1},
        {"drop_after": 0, "times": 3},
        {"drop_after": 200_000, "times": 1},
        {"drop_after": 100_000},
        {"truncate": 1000, "times": 1},
        {"corrupt": True, "times": 1},
    ],
    ids=str,
)
def test_faults_that_pass_are_overcome(hub, target, rule):
    hub.fail({"match": "/raw/", **rule})
    fetch(hub, target)
    assert target.read_bytes() == CONTENT
    assert there(target) == ["file"]


LASTING = [
    ({"status": 500}, "500 made to fail (5 tries", []),
    ({"hang": 3}, "127.0.0.1 does not respond", []),
    ({"drop_after": 0}, "interrupted", []),
    ({"truncate": 1000}, "5 tries", ["file.part"]),
    ({"corrupt": True}, SHA256, []),
    ({"status": 404}, "404", []),
    ({"status": 403}, "403", []),
    ({"status": 429, "headers": {"Retry-After": "100"}}, "wait 100 s", []),
]


@pytest.mark.parametrize(("rule", "value", "left"), LASTING, ids=str)
def test_faults_that_stay_are_one_message(hub, target, rule, value, left):
    hub.fail({"match": "/raw/", **rule})
    code = "download.wrong_bytes" if "corrupt" in rule else "download.failed"
    began = time.monotonic()
    with refuses(code, value, "the file") as caught, impatient() if "hang" in rule else nullcontext():
        fetch(hub, target, label="the file")
    assert time.monotonic() - began < 20, "the 100 s of Retry-After are not waited for"
    assert caught.value.exit_code == 3
    assert [name for name in there(target) if name != "file.lock" and target.with_name(name).stat().st_size] == left
    hub.fail()
    fetch(hub, target)
    assert target.read_bytes() == CONTENT
    assert there(target) == ["file"]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_for_good_is_not_tried_again(hub, target, status):
    hub.fail({"match": "/raw/", "status": status, "headers": {"X-Error-Code": "GatedRepo"}})
    with pytest.raises(DownloadError) as caught:
        fetch(hub, target)
    assert (caught.value.status, caught.value.hub_code) == (status, "GatedRepo")
    assert len(hub.log) == 1


def test_a_part_of_an_earlier_process_is_continued(hub, target):
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(CONTENT[:700_000])
    fetch(hub, target)
    assert target.read_bytes() == CONTENT
    assert ["bytes=700000-" in line for line in hub.log] == [True]


@pytest.mark.parametrize(
    "part", [b"\1" * 700_000, b"\1" * SIZE, b"\1" * (SIZE + 5)], ids=["short", "whole", "too long"]
)
def test_a_part_with_wrong_bytes_is_fetched_anew(hub, target, part):
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(part)
    fetch(hub, target)
    assert target.read_bytes() == CONTENT
    assert there(target) == ["file"]


def test_a_part_that_no_checksum_vouches_for_is_not_continued(hub, target):
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(b"\1" * 700_000)
    fetch(hub, target, sha256=None)
    assert target.read_bytes() == CONTENT


def test_without_size_and_digest_the_server_is_trusted(hub, target):
    hub.fail({"match": "/raw/", "drop_after": 300_000, "times": 1})
    fetch(hub, target, size=None, sha256=None)
    assert target.read_bytes() == CONTENT


def test_a_file_of_another_length_is_refused(hub, target):
    with refuses("download.failed", "instead of 1000"):
        fetch(hub, target, size=1000, sha256=None)
    assert not target.exists()


def test_an_empty_file(hub, target, tmp_path):
    (tmp_path / "content" / "raw" / "file").write_bytes(b"")
    fetch(hub, target, size=0, sha256=hashlib.sha256(b"").hexdigest())
    assert target.read_bytes() == b""


def test_digests_of_git(tmp_path):
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    blob = "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert digest(path, git=True) == blob
    assert Download("", path, 6, git_sha1=blob).fault(path) is None
    assert Download("", path, 7).fault(path) == "6 bytes instead of 7"
    assert "git SHA-1" in Download("", path, 6, git_sha1="0" * 40).fault(path)


def test_a_killed_download_goes_on(hub, target):
    hub.fail({"match": "/raw/", "rate": 150_000})  # seven seconds
    code = "from registry.resources.download import Download\nfrom pathlib import Path\n"
    code += f"Path({str(target.parent)!r}).mkdir()\n"
    code += f"Download({hub.endpoint + '/raw/file'!r}, Path({str(target)!r}), {SIZE}, {SHA256!r}).run()"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    part = target.with_name("file.part")
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = part.stat().st_size
    assert 0 < kept < SIZE
    hub.fail()
    fetch(hub, target)
    assert target.read_bytes() == CONTENT
    assert [f"bytes={kept}-" in line for line in hub.log] == [True]
    assert there(target) == ["file"]


def test_two_at_once_fetch_once(hub, target, monkeypatch):
    monkeypatch.setattr(download, "READ_TIMEOUT", 60.0)
    hub.fail({"match": "/raw/", "until": (both_wait := threading.Event())})
    told = []

    def hear(label, done, total, note):
        told.append(note)
        if told.count(WAITS) == 2:
            both_wait.set()

    with reporting(hear):
        threads = [threading.Thread(target=fetch, args=(hub, target)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert target.read_bytes() == CONTENT
    assert len(hub.log) == 1
    assert told.count(WAITS) == 2


def test_a_full_disk_is_told_before_it_is_full(hub, target, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 1000))
    with refuses("disk.full", target) as caught:
        fetch(hub, target)
    assert caught.value.exit_code == 4
    assert not target.exists()


def test_a_folder_that_may_not_be_written(hub, target, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with refuses("disk.not_writable", target, "Permission denied"):
        fetch(hub, target)


def test_progress_goes_up_to_the_size_and_waiting_is_told(hub, target):
    hub.fail({"match": "/raw/", "status": 429, "times": 1, "headers": {"Retry-After": "0"}})
    told = []
    with reporting(lambda *event: told.append(event)):
        fetch(hub, target, label="the file")
    assert told[0] == ("the file", 0, None, "waiting 0.0 s: 429 made to fail")
    assert told[-1] == ("the file", SIZE, SIZE, "")
    assert [done for _, done, _, _ in told] == sorted(done for _, done, _, _ in told)


def test_offline_mode_forbids_every_address(hub, target, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with refuses("download.failed", "HF_HUB_OFFLINE"):
        fetch(hub, target)
    assert hub.log == []


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/x", "http://[broken/x"])
def test_invalid_addresses(target, url):
    with pytest.raises(DownloadError):
        Download(url, target).run()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3), ("0", 0), ("soon", None), ("", None), ("-1", None)],
)
def test_retry_after_in_seconds(value, seconds):
    assert download._retry_after(Answer(value)) == seconds


def test_retry_after_as_a_date():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    assert 18 <= download._retry_after(Answer(later)) <= 20
    assert download._retry_after(Answer("Wed, 21 Oct 2015 07:28:00 GMT")) == 0


class Answer:
    def __init__(self, retry_after):
        self.headers = {"Retry-After": retry_after}
