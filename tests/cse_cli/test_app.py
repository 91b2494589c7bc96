"""What `cse` itself says: its version, and what is wrong with options."""

from __future__ import annotations

import pytest

from cse_cli import __version__
from tests.cse_cli.runs.running import cse


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
