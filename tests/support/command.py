"""The command line run inside the test's own process."""

import json
import sys
from functools import cache
from typing import Any

import pytest
import typer.main

from cse_cli.app import app, run
from registry.errors import CseError

typer.main.get_command = cache(typer.main.get_command)  # reads every command's options anew at each call: 0.1 s


def exit_code_of(*arguments: str) -> int:
    """Run `cse` and return its exit code."""
    before = sys.argv
    sys.argv = ["cse", *arguments]
    try:
        with pytest.raises(SystemExit) as ended:
            run()
    finally:
        sys.argv = before
    return int(ended.value.code or 0)


def cse(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run `cse` and return exit code, stdout and stderr."""
    code = exit_code_of(*arguments)
    written = capsys.readouterr()
    return code, written.out, written.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Run `cse` with --json, which succeeds and warns of nothing, and return its document."""
    code, out, err = cse(*arguments, "--json", capsys=capsys)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def refused(*arguments: str) -> CseError:
    """Run `cse` and return the error that ends it, with its code, message and exit code."""
    with pytest.raises(CseError) as ended:
        app(list(arguments), prog_name="cse", standalone_mode=False)
    return ended.value
