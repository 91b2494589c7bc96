"""What ran is written down: versions, settings without secrets, and the commit of the recipe's own repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cse_cli.core.environment import environment, git_commit, settings


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


def test_a_clean_recipe_has_the_commit_and_a_changed_one_a_plus(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    recipe = repository / "recipe.toml"
    assert git_commit(recipe) == git_commit(repository) == commit
    (repository / "notes.txt").write_text("untracked, and not the recipe")
    assert git_commit(recipe) == commit
    recipe.write_text("a = 2\n")
    assert git_commit(recipe) == f"{commit}+"


def test_a_recipe_git_does_not_know_has_a_plus(repository: Path) -> None:
    new = repository / "new.toml"
    new.write_text("")
    assert git_commit(new) == git(repository, "rev-parse", "HEAD") + "+"


def test_an_ignored_folder_is_not_of_this_repository(repository: Path) -> None:
    installed = repository / "venv" / "recipes" / "quickstart.toml"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    assert git_commit(installed) is None


def test_without_a_commit_or_git_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "--quiet")
    assert git_commit(tmp_path / "recipe.toml") is None
    monkeypatch.setenv("PATH", "")
    assert git_commit(tmp_path) is None


def test_the_environment_is_json_with_versions(tmp_path: Path) -> None:
    found = json.loads(json.dumps(environment(tmp_path / "recipe.toml")))
    assert all(found[name] for name in ("cse", "python", "torch", "transformers", "mlflow", "platform", "cpus"))
    assert found["git"] is None
    assert f"torch=={found['torch']}" in found["packages"]


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
