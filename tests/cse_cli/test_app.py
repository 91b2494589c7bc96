"""What `cse` itself says: its version, and what is wrong with options."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cse_cli import __version__, app
from tests.cse_cli.jobs.running import cse


def test_version(capsys):
    assert cse("--version", capsys=capsys) == (0, f"cse {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("rnu",), "no such command 'rnu'. Did you mean 'run'?\n  → `cse --help` shows what it takes"),
        (("run", "--sed", "1"), "no such option: --sed"),
        (("run", "--seed", "x"), "invalid value for '--seed': should be a whole number, not \"x\"\n"),
        (("run", "--seed", "-1"), "invalid value for '--seed': should be at least 0, not \"-1\"\n"),
        (("run", "--seeds"), "option '--seeds' requires an argument\n  → `cse run --help` shows what it takes"),
        (("leaderboard", "--format", "xml"), "invalid value for '--format': 'xml' is not one of 'table', 'md'"),
        (("compare",), "missing argument 'runs'\n  → `cse compare --help` shows what it takes"),
        (("data", "nothing"), "no such command 'nothing'\n  → `cse data --help` shows what it takes"),
    ],
)
def test_wrong_options_are_told_as_all_errors_are(arguments, error, capsys):
    code, out, err = cse(*arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {error}")
    assert "→ `cse " in err
    assert "─" not in err


def test_without_a_command_help_is_shown(capsys):
    code, out, err = cse(capsys=capsys)
    assert code == 2
    assert "Commands" in out
    assert "error" not in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("check", ""), "unknown recipe ''"),
        (("data", "pack", ""), "unknown recipe ''"),
        (("show", "studies/ifcl_ablation"), "'studies/ifcl_ablation' is a study, not a recipe"),
    ],
)
def test_the_name_of_nothing_and_of_something_else(arguments, says, capsys):
    code, out, err = cse(*arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert says in err


def test_a_whole_disk_is_not_looked_through_for_recipes(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.toml").touch()
    monkeypatch.setattr("cse_cli.data.files.MOST_ENTRIES", 0)
    code, _, err = cse("check", str(tmp_path), capsys=capsys)
    assert code == 2
    assert "→ name a folder that holds recipes and little else" in err


def test_closed_streams_take_everything(monkeypatch, capsys):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", None)
    assert cse("check", "nothing", capsys=capsys) == (2, "", "")


def test_what_an_encoding_has_not_is_written_out_and_json_stays_json(monkeypatch, capsys):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("cse_cli.app.app", lambda **_: out.write('"μ → 😀"') and 0)
    cse(capsys=capsys)
    out.flush()
    assert json.loads(out.buffer.getvalue()) == "μ → 😀"


def test_a_current_folder_that_is_gone_is_told(tmp_path, monkeypatch, capsys):
    def gone() -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "cwd", gone)
    code, out, err = cse("list", capsys=capsys)
    assert (code, out) == (2, "")
    assert err == "error: the current folder is not there any more\n  → go to another one: cd ~\n"


@pytest.mark.parametrize(
    "error",
    [MemoryError("no more"), RuntimeError(f"DefaultCPUAllocator: not there: you tried to allocate {10**9} bytes")],
)
def test_memory_that_is_not_there_is_told_by_every_command(error, capsys):
    with pytest.raises(SystemExit) as ended:
        app._end(error)
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith("\n  → lower the batch size or the length of sentences\n")


def test_an_error_that_nobody_expected_is_raised():
    with pytest.raises(RuntimeError, match="what is this"):
        app._end(RuntimeError("what is this"))
