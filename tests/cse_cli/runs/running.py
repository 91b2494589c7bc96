"""The command line run inside the test's own process."""

from __future__ import annotations

import sys

import pytest

from cse_cli.app import run


def cse(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run `cse` and return exit code, stdout and stderr."""
    before = sys.argv
    sys.argv = ["cse", *arguments]
    try:
        with pytest.raises(SystemExit) as ended:
            run()
    finally:
        sys.argv = before
    written = capsys.readouterr()
    return int(ended.value.code or 0), written.out, written.err
