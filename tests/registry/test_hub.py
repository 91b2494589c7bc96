import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from registry import hub
from registry.errors import MissingError
from tests.tiny import tiny_bert


def snapshot(cache, repository):
    """Lay a model out as the hub's cache does."""
    root = cache / ("models--" + repository.replace("/", "--"))
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("abc")
    return tiny_bert(root / "snapshots", name="abc")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_a_complete_snapshot_is_used_without_asking_the_hub(cache, monkeypatch):
    monkeypatch.setattr(hub, "unreachable", lambda: pytest.fail("the hub was asked"))
    folder = snapshot(cache, "owner/small")
    assert hub.fetch("owner/small") == folder
    assert hub.repositories() == ["owner/small"]


def test_a_snapshot_without_weights_does_not_count(cache, monkeypatch):
    monkeypatch.setattr(hub, "unreachable", lambda: "the hub does not answer")
    (snapshot(cache, "owner/small") / "model.safetensors").unlink()
    with pytest.raises(MissingError, match="owner/small"):
        hub.fetch("owner/small")


CODE = """
import time
from registry.models import locate
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


def test_offline_mode_is_obeyed(tmp_path):
    message, _ = failed_lookup(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert "HF_HUB_OFFLINE forbids" in message


def test_a_hub_that_accepts_and_never_answers_costs_less_than_five_seconds(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        message, seconds = failed_lookup(HF_ENDPOINT=endpoint, HF_HOME=str(tmp_path), NO_PROXY="127.0.0.1")
    assert f"the hub at {endpoint} does not answer" in message
    assert "hf download owner/no-such-model" in message
    assert seconds < 5


def test_a_host_that_does_not_exist_costs_less_than_five_seconds(tmp_path):
    message, seconds = failed_lookup(HF_ENDPOINT="https://hub.invalid", HF_HOME=str(tmp_path))
    assert "the hub at https://hub.invalid does not answer" in message
    assert seconds < 5
