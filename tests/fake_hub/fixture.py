"""The fake hub as fixtures: content made once a session, a server and an empty cache for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from tests.fake_hub.content import SHARED, make
from tests.fake_hub.server import FakeHub

ROWS = 2_000
"""Lines of wiki1m_for_simcse.txt in tests; the catalog counts a million."""


@pytest.fixture(scope="session")
def hub_content(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the content folder, made once for all processes of a session."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the fake hub's content is made from ../shared")
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if folder.name.startswith("popen-") else folder) / "hub_content"
    with FileLock(f"{folder}.lock"):
        if not (folder / "aliases.json").is_file():
            make(folder, rows=ROWS)
    return folder


@pytest.fixture
def fake_hub(hub_content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Run a hub with all content; this process and its children use it, with an empty cache."""
    with FakeHub(hub_content) as hub:
        use(hub, tmp_path / "hf", monkeypatch)
        yield hub


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests of a test be repeated at once, by `cse` and by huggingface_hub."""
    from huggingface_hub import file_download
    from huggingface_hub.utils import _http

    monkeypatch.setattr("registry.resources.download.PAUSE", 0.01)
    without_pauses = SimpleNamespace(sleep=lambda _: None)
    monkeypatch.setattr(file_download, "time", without_pauses)
    monkeypatch.setattr(_http, "time", without_pauses)


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
    ours.unreachable.cache_clear()
    close_session()  # its connections are to the hub of the test before
