"""What `cse` itself says: its version, and what is wrong with options."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cse_cli import app
from cse_cli._version import __version__
from tests.support.command import cse


def test_version(capsys):
    assert cse("--version", capsys=capsys) == (0, f"cse {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("rnu",), "no such command 'rnu'. Did you mean 'run'?\n  → see the options: cse --help"),
        (("run", "--sed", "1"), "no such option: --sed"),
        (("run", "--seed", "x"), "invalid value for '--seed': should be a whole number, not \"x\"\n"),
        (("run", "--seed", "-1"), "invalid value for '--seed': should be at least 0, not \"-1\"\n"),
        (("run", "--seeds"), "option '--seeds' requires an argument\n  → see the options: cse run --help"),
        (("leaderboard", "--format", "xml"), "invalid value for '--format': 'xml' is not one of 'table', 'md'"),
        (("compare",), "missing argument 'runs'\n  → see the options: cse compare --help"),
        (("data", "nothing"), "no such command 'nothing'\n  → see the options: cse data --help"),
    ],
)
def test_usage_errors(arguments, error, capsys):
    code, out, err = cse(*arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {error}")
    assert "→ see the options: cse" in err
    assert "─" not in err


def test_without_a_command_help_is_shown(capsys):
    code, out, err = cse(capsys=capsys)
    assert code == 2
    assert "Commands" in out
    assert "error" not in err


def test_closed_streams_take_everything(monkeypatch, capsys):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", None)
    assert cse("check", "nothing", capsys=capsys) == (2, "", "")


def test_json_in_a_narrow_encoding(monkeypatch, capsys):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("cse_cli.app.app", lambda **_: out.write('"μ → 😀"') and 0)
    cse(capsys=capsys)
    out.flush()
    assert json.loads(out.buffer.getvalue()) == "μ → 😀"


def test_deleted_current_directory(tmp_path, monkeypatch, capsys):
    def gone() -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "cwd", gone)
    code, out, err = cse("list", capsys=capsys)
    assert (code, out) == (2, "")
    assert "cd ~" in err


@pytest.mark.parametrize(
    "error",
    [MemoryError("no more"), RuntimeError(f"DefaultCPUAllocator: not there: you tried to allocate {10**9} bytes")],
)
def test_missing_memory_is_one_message(error, capsys):
    with pytest.raises(SystemExit) as ended:
        app._end(error)
    assert ended.value.code == 1
    assert "→ lower the batch size" in capsys.readouterr().err


def test_an_error_that_nobody_expected_is_raised():
    with pytest.raises(RuntimeError, match="what is this"):
        app._end(RuntimeError("what is this"))
