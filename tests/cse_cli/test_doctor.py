"""`cse doctor` names what is broken, changes nothing, and reaches its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cse_cli.cli import doctor
from cse_cli.core import environment
from registry.resources import hub
from tests.support.records import recorded, result


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "unreachable", lambda: "HF_HUB_OFFLINE forbids asking the hub")


def found(about: str) -> doctor.Check:
    (check,) = [check for check in doctor.examine() if check.about == about]
    return check


def test_a_new_machine_has_no_problem_and_stays_as_it_was(home: Path) -> None:
    checks = doctor.examine()
    assert [check for check in checks if check.state == "problem"] == []
    assert found("runs").text == "none yet"
    assert found("Hugging Face Hub").state == "note"
    assert "losses" in found("components").text
    assert found("precision").text.startswith("fp32")
    assert "mini_en" in found("shipped models").text
    assert not home.exists()


def test_versions_that_differ_from_the_published_figures_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"torch": "2.13.0+cu130", "pydantic_core": "2.50.5"}
    monkeypatch.setattr(environment, "_packages", lambda: same | {"numpy": "1.0", "accelerate": "1", "own": "1"})
    assert environment.differing_versions() == {
        "accelerate": {"here": "1", "figures": "1.15.0"},
        "numpy": {"here": "1.0", "figures": "2.4.6"},
    }
    assert found("packages").text == "numpy 1.0 (figures: 2.4.6), accelerate 1 (figures: 1.15.0)"
    monkeypatch.setattr(environment, "_packages", lambda: same)
    assert found("packages") == doctor.Check("packages", "ok", "those of the published figures")


def test_runs_are_counted_by_state(home: Path) -> None:
    for _ in range(2):
        recorded(end=None).close()
    recorded(result())
    assert found("runs").text == "1 FINISHED, 2 LOST"


def test_damaged_runs_are_named(home: Path) -> None:
    result_, about, events = recorded(result()), recorded(result()), recorded(result())
    (result_.path / "result.json").write_text("{}")
    (about.path / "run.toml").write_text("x")
    with (events.path / "events.jsonl").open("a") as file:
        file.write("x\n")
    states = {check.about: check.state for check in doctor.examine() if check.about.startswith("run ")}
    assert states == {
        f"run {result_.run_id[:8]}": "problem",
        f"run {about.run_id[:8]}": "problem",
        f"run {events.run_id[:8]}": "note",
    }


def test_what_is_broken_is_a_problem(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSE_DATA", "/no/such/folder")
    monkeypatch.setenv("CSE_MODELS", "/no/such/folder")
    problems = {check.about for check in doctor.examine() if check.state == "problem"}
    assert problems == {"CSE_DATA", "CSE_MODELS"}


def test_a_broken_plug_in_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from registry import LOSSES

    monkeypatch.setitem(LOSSES.broken, "other (other.loss)", "ImportError: no")
    assert found("plug-in other (other.loss)").state == "problem"


def test_a_check_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def _sick() -> Iterator[doctor.Check]:
        raise RuntimeError("oh")
        yield

    def _well() -> Iterator[doctor.Check]:
        yield doctor.Check("well", "ok", "fine")

    checks: tuple[Callable[[], Iterator[doctor.Check]], ...] = (_sick, _well)
    monkeypatch.setattr(doctor, "_CHECKS", checks)
    assert [(check.about, check.text) for check in doctor.examine()] == [("sick", "RuntimeError: oh"), ("well", "fine")]


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command("doctor")(doctor.doctor)
    app.command("other")(lambda: None)
    return app


def test_the_report_for_a_person_marks_what_is_found(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "file"))
    answer = CliRunner().invoke(app, ["doctor"])
    assert answer.exit_code == 1
    lines = [" ".join(line.split()) for line in answer.stdout.splitlines()]
    assert f"✗ state directory {tmp_path / 'file'} is a file: set CSE_HOME to a directory" in lines
    assert "– CSE_DATA not set" in lines
    assert answer.stdout.splitlines()[-1].startswith("problems: state directory")


def test_the_report_is_markdown_and_exits_0(app: typer.Typer, home: Path) -> None:
    answer = CliRunner().invoke(app, ["doctor", "--md"])
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.split("\n")
    assert lines[0] == "## cse doctor"
    assert "no problems found" in lines
    assert all(line.startswith(("- ", "## ")) for line in lines if line and line != "no problems found")


def test_the_document_has_every_package_and_check(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSE_MODELS", "/no/such/folder")
    answer = CliRunner().invoke(app, ["doctor", "--json"])
    assert answer.exit_code == 1
    document = json.loads(answer.stdout)
    assert document["schema_version"] == 1
    assert any(line.startswith("mlflow-skinny==") for line in document["environment"]["packages"])
    assert [check["about"] for check in document["checks"] if check["state"] == "problem"] == ["CSE_MODELS"]
