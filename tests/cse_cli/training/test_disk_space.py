"""A full disk is one message. The run is FAILED and can be resumed."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from cse_cli.runs.events import EventLog
from cse_cli.runs.index import all_runs, finished_results
from cse_cli.training import checkpoint
from registry.paths import no_room
from tests.support.command import cse
from tests.support.shrunken import recipe

pytestmark = pytest.mark.usefixtures("few_pairs", "undrawn")


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Have the system refuse to write more to a file, as it does on a full disk: EFBIG instead of ENOSPC."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def file(tmp_path, parts):
    return recipe(tmp_path, parts, steps=6, evaluate_every=2)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("checkpoint", errno.ENOSPC),
        ("best-2", errno.EDQUOT),
        ("model", errno.ENOSPC),
        ("metrics", errno.EDQUOT),
    ],
)
def test_disk_fills_during_a_run_and_the_run_resumes(file, home, monkeypatch, capsys, place, number):
    whole = cse("run", str(file), "--device", "cpu", capsys=capsys)
    assert whole[0] == 0, whole[2]
    (expected,) = finished_results()

    with monkeypatch.context() as full:
        fill(full, place, number)
        code, out, err = cse("run", str(file), "--device", "cpu", "--again", capsys=capsys)

    (run,) = [run for run in all_runs() if run.run_id != expected.run_id]
    short, folder = run.about.short, run.about.path
    assert (code, out) == (4, ""), err
    assert "Traceback" not in err
    first, then = err[err.index("error: ") :].strip().split("\n")
    assert first.startswith(f"error: run {short} stopped because {folder}")
    assert first.endswith(f": {os.strerror(number)}")
    assert then.endswith(f"cse run --resume {short}")
    assert run.state == "FAILED"
    assert run.reason.startswith(f"run {short} stopped because ")
    assert not [name for name in files(folder) if name.endswith((".partial", ".tmp")) or name.startswith(".model")]
    assert "checkpoint.pt" in files(folder)

    code, _, err = cse("run", "--resume", short, "--device", "cpu", capsys=capsys)
    assert code == 0, err
    results = {result.run_id: result for result in finished_results()}
    assert results[run.run_id].last_state == expected.last_state
    assert results[run.run_id].scores == expected.scores


def fill(monkeypatch: pytest.MonkeyPatch, place: str, number: int) -> None:
    """Have one kind of file find the disk full, after the second checkpoint."""
    save, append = torch.save, EventLog.append

    def full_for_tensors(content, path):
        if Path(path).name.startswith(place) and content.get("progress", {"step": 4})["step"] >= 4:
            Path(path).write_bytes(b"half a file")
            raise OSError(number, os.strerror(number), str(path))
        save(content, path)

    def full_for_metrics(events, kind, **data):
        if kind == "metrics" and data["step"] >= 4:
            raise OSError(number, os.strerror(number))
        append(events, kind, **data)

    def full_for_models(*_, **__):
        raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})")

    monkeypatch.setattr(torch, "save", full_for_tensors)
    if place == "metrics":
        monkeypatch.setattr(EventLog, "append", full_for_metrics)
    if place == "model":
        monkeypatch.setattr("transformers.modeling_utils.safe_save_file", full_for_models)


def test_torch_error_names_the_full_disk(tmp_path):
    file = tmp_path / "checkpoint.pt"
    checkpoint.write(file, {"step": 1})
    with files_no_larger_than(200_000), pytest.raises(OSError, match="File too large") as caught:
        checkpoint.write(file, {"weights": torch.ones(100_000)}, keep=tmp_path / "checkpoint-previous.pt")
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(file))
    assert files(tmp_path) == {"checkpoint.pt"}
    assert checkpoint.load(file) == {"step": 1}


def test_disk_that_was_full_for_a_moment_is_named_too(tmp_path, monkeypatch):
    """Another process frees space after torch's writer has failed, so that the next block is written."""
    save = torch.save

    def on_a_full_disk(content, path):
        with files_no_larger_than(200_000):
            save(content, path)

    monkeypatch.setattr(torch, "save", on_a_full_disk)
    with pytest.raises(OSError, match="No space left") as caught:
        checkpoint.write(file := tmp_path / "checkpoint.pt", {"weights": torch.ones(100_000)})
    assert (caught.value.errno, caught.value.filename, files(tmp_path)) == (errno.ENOSPC, str(file), set())


def test_error_of_the_device_is_not_a_full_disk(tmp_path, monkeypatch):
    def of_the_device(_, path):
        Path(path).touch()
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch, "save", of_the_device)
    with pytest.raises(RuntimeError, match="CUDA"):
        checkpoint.write(tmp_path / "checkpoint.pt", {"step": 1})
    assert files(tmp_path) == set()


def test_safetensors_error_names_the_full_disk(tmp_path):
    with files_no_larger_than(100_000), pytest.raises(Exception, match=r"os error 27|code: 27") as caught:
        save_file({"weights": torch.ones(100_000)}, tmp_path / "model.safetensors")
    assert no_room(caught.value) == "File too large"
    assert no_room(ValueError("another")) is None
