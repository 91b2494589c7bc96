"""The state directory, where it cannot be one; and a disk that is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from registry.paths import state_directory, write_atomically
from tests.support.command import cse
from tests.support.shrunken import Small, recipe


@pytest.mark.slow
@pytest.mark.parametrize("command", [("run",), ("tune", "--param", "temperature")])
def test_a_file_in_place_of_the_state_directory_is_told(
    command: tuple[str, ...], tmp_path: Path, parts: Small, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "file").touch()
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "file"))
    name, *options = command
    code, out, err = cse(name, str(recipe(tmp_path, parts)), *options, capsys=capsys)
    assert (code, out) == (4, "")
    assert f"the state directory {tmp_path / 'file'} is not writable: File exists" in " ".join(err.split())
    assert "set CSE_HOME to another directory" in err


@pytest.mark.slow
@pytest.mark.usefixtures("few_pairs")
def test_a_full_disk_is_one_message(
    tmp_path: Path, parts: Small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "x"))

    monkeypatch.setattr("cse_cli.training.trainer.Trainer.run", full)
    code, out, err = cse("run", str(recipe(tmp_path, parts)), capsys=capsys)
    assert (code, out) == (4, "")
    told = " ".join(err.split())
    assert f"{tmp_path / 'x'} could not be written: No space left on device" in told
    assert "cse run --resume" in told
    assert "Traceback" not in err
    code, out, _ = cse("runs", "ls", "--json", capsys=capsys)
    assert '"FAILED"' in out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", "text")
    assert os.read(reader, 9) == b"text"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(IsADirectoryError):
        write_atomically(Path(), "text")


def test_a_home_of_nobody_is_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CSE_HOME", "~nobody-of-this-name/x")
    assert state_directory() == tmp_path / "~nobody-of-this-name" / "x"
