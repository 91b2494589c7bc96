"""A process that uses a fake hub, with an empty cache."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fake_hub.server import FakeHub


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests of a test be repeated at once, by `cse` and by huggingface_hub."""
    from huggingface_hub import file_download
    from huggingface_hub.utils import _http

    monkeypatch.setattr("registry.resources.download.PAUSE", 0.01)
    for module in (file_download, _http):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: None))


def use(hub: FakeHub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and its children ask `hub`, with the cache in `home`, and no models or data elsewhere."""
    from huggingface_hub import close_session, constants

    from registry.resources import hub as ours

    for name in ("CSE_DATA", "CSE_MODELS", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix("https://huggingface.co")
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.endpoint + template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)  # it sends a request of its own
    ours.forget()
    ours.pin({})
    ours.responds.cache_clear()
    close_session()  # its connections are to the hub of the test before
