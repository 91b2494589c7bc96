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

from registry import transfer
from registry.errors import DiskError
from registry.transfer import TransferError, checksum, download, faults, get, reporting
from tests.fake_hub.fixture import hurry, impatient, use
from tests.fake_hub.server import FakeHub

pytestmark = pytest.mark.process

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)
WAITS = "another process is fetching it"


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
    download(f"{hub.endpoint}/raw/file", target, **{"size": SIZE, "sha256": SHA256} | known)


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


@pytest.mark.parametrize(
    ("rule", "said", "left"),
    [
        ({"status": 500}, r"500 made to fail \(5 tries", []),
        ({"hang": 3}, "127.0.0.1 does not answer", []),
        ({"drop_after": 0}, "broke off", []),
        ({"truncate": 1000}, "416|has not the 1048576 bytes", ["file.part"]),
        ({"corrupt": True}, "twice with wrong bytes: SHA-256 [0-9a-f]{64} instead of " + SHA256, []),
        ({"status": 404}, "404", []),
        ({"status": 403}, "403", []),
        ({"status": 429, "headers": {"Retry-After": "100"}}, "says to retry after 100 s", []),
    ],
    ids=str,
)
def test_faults_that_stay_are_one_message(hub, target, rule, said, left):
    hub.fail({"match": "/raw/", **rule})
    began = time.monotonic()
    with pytest.raises(TransferError, match=said) as caught, impatient() if "hang" in rule else nullcontext():
        fetch(hub, target, label="the file")
    assert time.monotonic() - began < 20, "nobody waits for 100 s"
    assert caught.value.exit_code == 3
    assert caught.value.message.startswith("the file could not be fetched")
    assert [name for name in there(target) if name != "file.lock"] == left
    hub.fail()
    fetch(hub, target)
    assert target.read_bytes() == CONTENT
    assert there(target) == ["file"]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_for_good_is_not_tried_again(hub, target, status):
    hub.fail({"match": "/raw/", "status": status, "headers": {"X-Error-Code": "GatedRepo"}})
    with pytest.raises(TransferError) as caught:
        fetch(hub, target)
    assert (caught.value.status, caught.value.code) == (status, "GatedRepo")
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


def test_without_size_and_checksum_a_file_is_what_the_server_says(hub, target):
    hub.fail({"match": "/raw/", "drop_after": 300_000, "times": 1})
    fetch(hub, target, size=None, sha256=None)
    assert target.read_bytes() == CONTENT


def test_a_file_of_another_length_is_refused(hub, target):
    with pytest.raises(TransferError, match="has not the 1000 bytes"):
        fetch(hub, target, size=1000, sha256=None)
    assert not target.exists()


def test_an_empty_file(hub, target, tmp_path):
    (tmp_path / "content" / "raw" / "file").write_bytes(b"")
    fetch(hub, target, size=0, sha256=hashlib.sha256(b"").hexdigest())
    assert target.read_bytes() == b""


def test_git_checksums(tmp_path):
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    assert checksum(path, git=True) == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert faults(path, 6, None, "ce013625030ba8dba906f756967f9e9ca394464a") is None
    assert faults(path, 7, None, None) == "6 bytes instead of 7"
    assert "git SHA-1" in faults(path, 6, None, "0" * 40)


def test_a_killed_download_goes_on(hub, target):
    hub.fail({"match": "/raw/", "rate": 150_000})  # seven seconds
    code = f"from registry.transfer import download\nfrom pathlib import Path\nPath({str(target.parent)!r}).mkdir()\n"
    code += f"download({hub.endpoint + '/raw/file'!r}, Path({str(target)!r}), size={SIZE}, sha256={SHA256!r})"
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
    monkeypatch.setattr(transfer, "READ_TIMEOUT", 60.0)
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
    with pytest.raises(DiskError, match="no room on the disk") as caught:
        fetch(hub, target)
    assert caught.value.exit_code == 4
    assert not target.exists()


def test_a_folder_that_may_not_be_written(hub, target, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DiskError, match="Permission denied"):
        fetch(hub, target)


def test_progress_goes_up_to_the_size_and_waiting_is_told(hub, target):
    hub.fail({"match": "/raw/", "status": 429, "times": 1, "headers": {"Retry-After": "0"}})
    told = []
    with reporting(lambda *event: told.append(event)):
        fetch(hub, target, label="the file")
    assert told[0] == ("the file", 0, SIZE, "waiting 0.0 s: 429 made to fail")
    assert told[-1] == ("the file", SIZE, SIZE, "")
    assert [done for _, done, _, _ in told] == sorted(done for _, done, _, _ in told)


def test_a_host_that_never_answered_gets_one_short_try_until_it_does(hub, monkeypatch):
    hub.fail({"match": "/raw/", "hang": 60})
    with pytest.raises(TransferError, match="does not answer"), impatient():
        get(f"{hub.endpoint}/raw/file")
    began = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "READ_TIMEOUT", 30.0)
        patch.setattr(transfer, "SECOND_PATIENCE", 0.1)
        with pytest.raises(TransferError, match="1 try"):
            get(f"{hub.endpoint}/raw/file")
    assert time.monotonic() - began < 15
    hub.fail()
    assert get(f"{hub.endpoint}/raw/file").content == CONTENT
    hub.fail({"match": "/raw/", "hang": 3, "times": 1})
    assert get(f"{hub.endpoint}/raw/file").content == CONTENT


def test_offline_mode_forbids_every_address(hub, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(TransferError, match="HF_HUB_OFFLINE"):
        get(f"{hub.endpoint}/raw/file")
    assert hub.log == []


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/x", "http://[broken/x"])
def test_addresses_that_are_none(hub, url):
    with pytest.raises(TransferError):
        get(url)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3), ("0", 0), ("soon", None), ("", None), ("-1", None)],
)
def test_retry_after_in_seconds(value, seconds):
    assert transfer._retry_after(Answer(value)) == seconds


def test_retry_after_as_a_date():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    assert 18 <= transfer._retry_after(Answer(later)) <= 20
    assert transfer._retry_after(Answer("Wed, 21 Oct 2015 07:28:00 GMT")) == 0


class Answer:
    def __init__(self, retry_after):
        self.headers = {"Retry-After": retry_after}
