"""No command imports modules of the folder it is called in, nor does any process that it starts: as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cse_cli.data.columns import BLOCK
from tests.support.ports import unused_port
from tests.support.programs import gone, runs
from tests.support.seq2seq import tiny_t5
from tests.support.shrunken import Small, recipe

pytestmark = pytest.mark.process

PLANTED = ("mlflow", "numpy", "optuna", "psutil", "signal", "socket", "struct", "torch", "typer", "uvicorn")
"""Libraries of this project and of Python, one or another of which every process imports."""
SCRIPT = "from cse_cli.__main__ import main\nif __name__ == '__main__':\n    main()\n"
"""What pip installs as `cse`: Python then looks into the script's folder first, not into the current one."""


@pytest.fixture
def folder(tmp_path: Path, parts: Small) -> Path:
    """A folder with a recipe and a stranger's modules, each of which leaves a file and ends its process."""
    where = tmp_path / "here"
    where.mkdir()
    recipe(where, parts, "quickstart")
    for name in PLANTED:
        (where / f"{name}.py").write_text(f"import os\nopen('ran-{name}', 'w').close()\nos._exit(9)\n")
    return where


def start(folder: Path, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    script = folder.parent / "cse"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), *map(str, arguments)]
    known = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])} | environment
    return subprocess.Popen(command, cwd=folder, env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ran(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("ran-*"))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=250)
    return process.returncode, err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "quickstart.toml", "--seeds", "2", "--workers", "2"],
        pytest.param(["run", "quickstart.toml", "--processes", "2"], marks=pytest.mark.exhaustive),
        pytest.param(
            ["tune", "quickstart.toml", "--param", "learning_rate", "--trials", "2", "--workers", "2"],
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["workers", "processes", "search"],
)
def test_runs_and_searches_in_several_processes(arguments: list[str], folder: Path) -> None:
    code, err = ended(start(folder, *arguments, "--device", "cpu"))
    assert (code, ran(folder)) == (0, []), err


def test_the_pages(folder: Path) -> None:
    with start(folder, "ui", "--no-browser", "--port", port := unused_port()) as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        servers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        code, err = ended(process)
    assert (code, ran(folder)) == (0, []), err
    assert address.startswith(f"http://127.0.0.1:{port}"), err
    assert len(servers) == 2
    assert gone(servers, seconds=40)


def make_column(folder: Path) -> subprocess.Popen[str]:
    """Start a run with a column whose blocks two processes make."""
    (folder / "long.txt").write_text("".join(f"the dog {i}\n" for i in range(BLOCK + 2)))
    made = f"data.columns.translation={{ name = 'translate', model = '{tiny_t5(folder.parent)}', prefix = '' }}"
    settings = ["--set", "data.file=long.txt", "--set", "train.steps=2", "--set", made]
    return start(folder, "run", "quickstart.toml", *settings, "--seeds", "2", "--workers", "2", "--device", "cpu")


@pytest.mark.exhaustive
def test_a_column_made_in_several_processes(folder: Path) -> None:
    code, err = ended(make_column(folder))
    assert (code, ran(folder)) == (0, []), err


def spawned(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [each for each in psutil.Process(process.pid).children() if runs(each, "spawn_main")]


@pytest.mark.exhaustive
def test_a_killed_process_that_makes_a_column_is_one_message(folder: Path) -> None:
    with make_column(folder) as process:
        while len(children := spawned(process)) < 2:
            assert process.poll() is None, process.communicate()[1]
        children[0].kill()
        code, err = ended(process)
    assert (code, ran(folder)) == (1, []), err
    assert "error: a worker process was killed" in err
    assert "Traceback" not in err
    assert gone(children)
