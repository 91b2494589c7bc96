"""The Weights & Biases mirror: what it writes offline is read back from its file."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

wandb = pytest.importorskip("wandb")

from cse_cli.mirrors.mirror import State, load  # noqa: E402
from cse_cli.mirrors.mirror import send_missing as sync  # noqa: E402
from tests.support.records import recorded, result  # noqa: E402

pytestmark = pytest.mark.slow

_BLOCK = 32768


def written(folder: Path) -> list[Any]:
    """Return the records in the file of an offline run: a log in LevelDB's format with messages of W&B.

    The process of W&B writes the file after `finish` has returned, so wait for the last record.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.rglob("*.wandb")
    until = time.monotonic() + 20
    records: list[Any] = []
    while not any(one.HasField("exit") for one in records) and time.monotonic() < until:
        time.sleep(0.05)
        records = [Record.FromString(content) for content in chunks(file.read_bytes())]
    return records


def chunks(content: bytes) -> Iterator[bytes]:
    place, parts = 7, b""  # behind the header of the file
    while place + 7 <= len(content):
        if _BLOCK - place % _BLOCK < 7:
            place += _BLOCK - place % _BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield parts
            parts = b""


def values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def test_offline_file_has_the_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    resolved = {"title": "SimCSE", "train": {"steps": 20}}
    record = recorded(end=None, resolved=resolved, seed=3, name="my run", group="mini/simcse_en", tags={"for": "paper"})
    for step in (10, 20):
        record.metrics({"train/loss": 1 / step}, step)
    record.metrics({"eval/avg": 61.5}, 20)
    record.event("dataset", name="stsb", digest="d1", context="evaluation", source="stsb")
    record.file("result.json", result().to_json())
    record.end("failed", "the loss is NaN")

    ((_, error),) = sync(load("wandb"))
    assert error is None
    state = State.read(record.run_id, "wandb")
    assert state is not None
    assert (state.id, state.uri) == (record.run_id, "offline")
    assert state.size == (record.path / "events.jsonl").stat().st_size

    found = written(record.path / "mirrors" / "wandb")
    (run,) = [one.run for one in found if one.HasField("run")]
    named = run.run_id, run.display_name, run.run_group, list(run.tags)
    assert named == (record.run_id, "my run", "mini/simcse_en", ["for=paper"])
    config = values(run.config.update)
    assert (config["train.steps"], config["seed"]) == ("20", "3")
    history = [values(one.history.item) for one in found if one.HasField("history")]
    values_of_steps = [(one["step"], one.get("train/loss"), one.get("eval/avg")) for one in history]
    assert values_of_steps == [(10, 0.1, None), (20, 0.05, None), (20, None, 61.5)]
    later = {key: value for one in found if one.HasField("config") for key, value in values(one.config.update).items()}
    assert later["data.evaluation.stsb"] == "d1"
    assert [one.exit.exit_code for one in found if one.HasField("exit")] == [1]
    assert any(file.path == "result.json" for one in found if one.HasField("files") for file in one.files.files)
