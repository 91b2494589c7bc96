"""What a command costs before it does anything: imports. `benchmarks/start.py` measures the seconds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.test_imports import HEAVY, ROOT


def help_command() -> list[str]:
    return [sys.executable, "-m", "cse_cli", "--help"]


def cpu_seconds(command: list[str]) -> float:
    """Return user and system time of one child: what it costs, however busy the machine is."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="the operating system does not tell a child's CPU time")
def test_help_costs_less_than_three_tenths_of_a_second():
    assert min(cpu_seconds(help_command()) for _ in range(5)) < 0.3


@pytest.mark.parametrize(
    ("words", "may"),
    [(["--help"], set()), (["list"], {"torch"}), (["show", "info_nce"], {"torch"}), (["check", "ifcl_en"], {"torch"})],
    ids=" ".join,
)
def test_commands_import_nothing_heavy_that_they_do_not_need(words, may):
    code = (
        "import sys\n"
        f"sys.argv = {['cse', *words]!r}\n"
        "from cse_cli.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"sys.stderr.write(' '.join(sorted({set(HEAVY) - may!r} & set(sys.modules))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout
    assert done.stderr == ""
