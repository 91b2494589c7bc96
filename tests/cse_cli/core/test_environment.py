"""What ran is written down: versions, settings without secrets, and the commit of the recipe's own repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cse_cli.core.environment import environment, git_commit, settings, without_password


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "someone")
    folder = tmp_path / "their work"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "recipe.toml").write_text("a = 1\n")
    (folder / ".gitignore").write_text("venv/\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_is_the_one_the_repository_is_at(repository: Path) -> None:
    recipe = repository / "recipe.toml"
    assert git_commit(recipe) == git_commit(repository) == git(repository, "rev-parse", "HEAD")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "second")
    assert git_commit(recipe) == git(repository, "rev-parse", "HEAD")


def test_no_program_of_a_strangers_repository_runs(repository: Path, tmp_path: Path) -> None:
    trace = tmp_path / "it ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{trace}'\ncat\n")
    program.chmod(0o755)
    (repository / ".gitattributes").write_text("*.toml filter=x\n")
    for key in ("core.fsmonitor", "filter.x.clean", "core.pager", "alias.rev-parse"):
        git(repository, "config", key, str(program))
    (repository / "recipe.toml").write_text("a = 2\n")
    assert git_commit(repository / "recipe.toml") is not None
    assert not trace.exists()
    subprocess.run(["git", "-C", str(repository), "status"], check=False, capture_output=True)
    assert trace.exists(), "git itself does run it"


def test_without_a_commit_or_a_repository_there_is_none(repository: Path, tmp_path: Path) -> None:
    assert git_commit(tmp_path / "recipe.toml") is None
    for head in ("", "ref: ../../../etc/passwd", "ref: refs/heads/none"):
        (repository / ".git" / "HEAD").write_text(head)
        assert git_commit(repository) is None


def test_the_environment_is_json_with_versions(tmp_path: Path) -> None:
    found = json.loads(json.dumps(environment(tmp_path / "recipe.toml")))
    assert all(found[name] for name in ("cse", "python", "torch", "transformers", "mlflow-skinny", "platform", "cpus"))
    assert found["git"] is None
    assert f"torch=={found['torch']}" in found["packages"]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://cse:hunter2@host:5432/db", "postgresql://cse:***@host:5432/db"),
        ("postgresql://cse:hun@ter2@host/db", "postgresql://cse:***@host/db"),
        ("postgresql://cse:hun/ter2@host/db", "postgresql://cse:***@host/db"),
        ("postgresql://cse:5432/hunter2@host/db", "postgresql://cse:***@host/db"),
        ("postgresql://cse:hun ter2@host/db", "postgresql://cse:***@host/db"),
        ("postgresql://:hunter2@host/db", "postgresql://:***@host/db"),
        ("postgresql://host/db?user=cse&password=hunter2&sslmode=require",
         "postgresql://host/db?user=cse&password=***&sslmode=require"),
        ("mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Dhunter2", "mssql+pyodbc:///?odbc_connect=***"),
        ("http://hunter2@host:5000", "http://***@host:5000"),
        ("HTTPS://hunter2:@host", "HTTPS://***@host"),
        ("https://me:hun@ter2@host/x", "https://me:***@host/x"),
        ("http://me:hun#ter2@host/x", "http://me:***@host/x"),
        ("https://host/x?token=hunter2", "https://host/x?token=***"),
        ("no route to 'http://me:hunter2@host' of https://hunter2@other", "no route to 'http://me:***@host' of "
         "https://***@other"),
    ],
)  # fmt: skip
def test_no_password_and_no_token_is_left_in_an_address(address: str, shown: str) -> None:
    assert without_password(address) == shown
    assert without_password(shown) == shown


@pytest.mark.parametrize(
    "address",
    ["sqlite:////home/a@b/c:d@e/mlflow.db", "http://host:5000/models/x@main", "http://host/x@main",
     "postgresql://cse@host/db", "http://host:5000/#/experiments?key", "me@host: nothing to hide"],
)  # fmt: skip
def test_an_address_without_a_password_is_shown_whole(address: str) -> None:
    assert without_password(address) == address


def test_settings_show_what_matters_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSE_DATA", "/data")
    monkeypatch.setenv("CSE_API_TOKEN", "hunter2")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2@host")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")
    monkeypatch.setenv("UNRELATED", "x")
    found = settings()
    assert found["CSE_DATA"] == "/data"
    assert found["MLFLOW_TRACKING_URI"] == "http://me:***@host"
    assert "hunter2" not in str(found)
    assert "UNRELATED" not in found
    assert "MLFLOW_DISABLE_TELEMETRY" not in found
