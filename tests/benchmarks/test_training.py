"""The benchmark of training: the three ways compute the same, and a whole run says what it measured."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.training import agreement, material, memory
from benchmarks.training.__main__ import main
from benchmarks.training.material import Setting

pytestmark = pytest.mark.slow

needs_peer = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec("accelerate") is None, reason="needs the extra bench"
)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """A tiny model without dropout, and generated text."""
    folder = tmp_path_factory.mktemp("bench")
    text, parallel = material.write_text("generated", folder, 200)
    model = material.write_model("tiny", folder / "model", None, text, 0.0, material.SPREAD["tiny"])
    return Setting(model, text, parallel, batch=16)


def test_a_plain_loop_has_our_losses(setting: Setting) -> None:
    found = agreement.compare(setting, 3, ["plain"])
    assert found.holds
    assert found.largest <= 1e-6
    first, *_, last = found.losses["cse"]
    assert 0 < last < first  # it trains, and the loss is far from log 16, where all sentences would look alike
    assert first < 2.7


@needs_peer
@pytest.mark.process
@pytest.mark.parametrize("peer", ["sbert", "shipped"])
def test_sentence_transformers_has_our_losses(setting: Setting, peer: str) -> None:
    assert agreement.compare(setting, 2, [peer]).largest <= 1e-6


def test_another_temperature_is_found_out(setting: Setting) -> None:
    other = replace(setting, options=("losses.info_nce.temperature=0.0501",))
    assert not agreement.compare(other, 1, ["plain"]).holds


@pytest.mark.process
def test_a_whole_run_writes_both_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")  # it sets this itself, for good
    page = tmp_path / "page.md"
    turns = ["--rounds", "2", "--steps", "2", "--warm", "1", "--agree", "2", "--rows", "300", "--batch", "8"]
    ways = ["--shape", "tiny", "--texts", "generated", "--peers", "plain", "--recipes", "simcse_en"]
    where = ["--json", str(tmp_path / "all.json"), "--markdown", str(page)]
    more = ["--parts", "peers", "methods", "--variants", "train.clip_norm=0.5"]
    assert main([*turns, *ways, *where, *more]) == 0
    found = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert found["agreement"]["holds"] is True
    assert [way["name"] for way in found["peers"][0]["ways"]] == ["cse", "plain loop"]
    assert all(way["wall_median"] > 0 and way["gigaflop"] > 0 for way in found["peers"][0]["ways"])
    assert 0 < found["peers"][0]["tokens"]["padding"] < 0.6
    assert [way["name"] for way in found["variants"]["ways"]] == ["default", "train.clip_norm=0.5"]
    text = page.read_text(encoding="utf-8")
    assert "the same." in text
    assert "| plain loop |" in text


@pytest.mark.process
def test_memory_is_that_of_a_new_process(setting: Setting) -> None:
    held = bytearray(2**30)  # of this process, which getrusage would count as the other's too
    found = memory.of("cse", setting)
    assert 100 < found["before"] <= found["process"] < 1024
    assert len(held) == 2**30


def test_ways_that_differ_end_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "LIMIT", -1.0)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    given = ["--shape", "tiny", "--texts", "generated", "--peers", "plain", "--agree", "1", "--rows", "100"]
    where = ["--json", str(tmp_path / "all.json"), "--markdown", str(tmp_path / "page.md"), "--batch", "8", "--parts"]
    assert main([*given, *where]) == 1
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["agreement"]["holds"] is False
    assert "**NOT the same**" in (tmp_path / "page.md").read_text(encoding="utf-8")
