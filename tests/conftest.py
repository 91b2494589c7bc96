"""What every test gets: a state directory of its own, no real data unless it asks, one thread."""

from __future__ import annotations

import gc
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.support.shrunken import Small

# Before torch and tokenizers are imported: tests run two at a time, and one thread adds in one order.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ["HF_HUB_OFFLINE"] = "1"  # a test that needs a hub uses `tests.fake_hub`

# Started in the background of a shell, pytest ignores Ctrl-C, and so would every program that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("any machine", deadline=None)  # no test depends on the machine's speed
hypothesis.settings.load_profile("any machine")

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ROOT.parent / "shared"
FOLDERS = {
    "CSE_DATA": Path(os.environ.get("CSE_DATA") or BESIDE / "data").absolute(),
    "CSE_MODELS": Path(os.environ.get("CSE_MODELS") or BESIDE / "models").absolute(),
}


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the names of tests, one of which had 200,000 characters."""
    return f"{val[:57]}..." if isinstance(val, str) and len(val) > 60 else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a module that has no test to run.

    Its `pytestmark` has a mark that `-m "not (…)"` leaves out, or it has none of the marks of `-m "(…) and …"`.
    """
    found = re.match(r"(not )?\(([\w ]+)\)", config.option.markexpr)
    if found is None or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    text, marks = collection_path.read_text(encoding="utf-8"), {*found[2].split(" or ")}
    own = re.search(r"^pytestmark = .*?(?=^\S)", text, re.MULTILINE | re.DOTALL) if found[1] else None
    named = {*re.findall(r"pytest\.mark\.(\w+)", text if not found[1] else own[0] if own else "")}
    return True if bool(named & marks) == bool(found[1]) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `data` where the real data is not on this machine, and say which folder is missing."""
    missing = [f"{folder} ({variable})" for variable, folder in FOLDERS.items() if not folder.is_dir()]
    if missing:
        skip = pytest.mark.skip(reason=f"no such folder: {', '.join(missing)}")
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(skip)


_number = count()


@pytest.fixture(autouse=True)
def home(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Point the state directory at a folder of the test's own, and return it; nothing is created.

    It is in `tmp_path` if the test has one, which takes longer to create and delete than most tests.
    """
    own = tmp_path_factory.getbasetemp() / f"home-{next(_number)}"
    folder = (request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else own) / "cse-home"
    monkeypatch.setenv("CSE_HOME", str(folder))
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CSE_MIRRORS", "none")  # a test that needs a mirror sets its own
    for variable, real in FOLDERS.items():
        if request.node.get_closest_marker("data"):
            monkeypatch.setenv(variable, str(real))
        else:
            monkeypatch.delenv(variable, raising=False)
    yield folder
    shutil.rmtree(own, ignore_errors=True)


@pytest.fixture(autouse=True)
def quick_databases(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Copy MLflow's tables from a database made once, and wait for no disk; other processes do none of it."""
    if "cse_cli.mirrors.mlflow" in sys.modules or "mirrors" in request.path.parts:
        from tests.support.databases import created, read_revisions_once, wait_for_no_disk

        wait_for_no_disk()
        read_revisions_once()
        made = tmp_path_factory.getbasetemp() / "created.db"

        def copy(new: Path) -> None:
            new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.write_bytes(created(made))

        monkeypatch.setattr("cse_cli.mirrors.mlflow.create_database", copy)


@pytest.fixture(autouse=True)
def memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free no memory between runs: tiny models need not go at once; it took 7 % of the tests' time."""
    if "cse_cli.jobs.engine" in sys.modules:
        monkeypatch.setattr("cse_cli.jobs.engine.free_memory", lambda: None)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draw the same numbers whichever tests ran before."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(0)  # `torch.manual_seed` notes where it was called from


@pytest.fixture
def data() -> Path:
    """Return the folder of the real data sets; for tests marked `data`."""
    return FOLDERS["CSE_DATA"]


@pytest.fixture
def models() -> Path:
    """Return the folder of the small encoders; for tests marked `data`."""
    return FOLDERS["CSE_MODELS"]


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """What any recipe can be shrunk to: tiny models and a few sentences."""
    from tests.support.shrunken import small

    return small(tmp_path_factory.mktemp("parts"))


@pytest.fixture
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of pairs in place of every data set's, and of labeled rows."""
    from registry.resources import catalog
    from tests.support import labeled
    from tests.support.fakes import all_here
    from tests.support.shrunken import pairs

    labeled.serve(monkeypatch)
    all_here(monkeypatch)
    monkeypatch.setattr(catalog, "read_pairs", pairs)
    monkeypatch.setattr(catalog, "fingerprint", lambda name, split: f"{name}-{split}")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no figures of runs and searches: half the time of a tiny run."""
    monkeypatch.setattr("cse_cli.analysis.figures.draw_run", lambda *_: [])
    monkeypatch.setattr("cse_cli.tuning.plots.draw", lambda *_: [])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look no more at what the imports made, a million objects, when memory is collected: a run does so at its end."""
    if "PYTEST_XDIST_WORKER" in os.environ and any(item.get_closest_marker("slow") for item in session.items):
        import tests.support.preloaded  # noqa: F401 - what most of them import later
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which tests/registry/test_versions.py writes its file."""
    parser.addoption("--write-versions", action="store_true", help="write tests/registry/versions.json")
