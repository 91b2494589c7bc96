"""What a command costs before it does anything: imports. `benchmarks/start.py` measures the seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from cse_cli.data.check import check, recipe_files
from tests.test_code import HEAVY, ROOT

TORCH_SECONDS = 1.6
"""Processor time of `import torch` where the limits were set; a slower or busier machine is slower at both."""


def cpu_seconds(code: str, **environment: str) -> float:
    """Return user and system time of a child."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT, env=os.environ | environment) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


def cse(*words: str) -> str:
    return f"import sys; sys.argv = {['cse', *words]!r}; from cse_cli.__main__ import main; main()"


@pytest.fixture(scope="module")
def slowness() -> float:
    return min(cpu_seconds("import torch") for _ in range(2)) / TORCH_SECONDS


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "wait4"), reason="the operating system does not tell a child's CPU time")
@pytest.mark.parametrize(
    ("words", "limit"),
    [(["--help"], 0.3), (["list"], 3), (["show", "info_nce"], 3), (["check", "ifcl_en"], 3)],
)
def test_commands_cost_no_more_than_their_limit(words, limit, slowness):
    assert min(cpu_seconds(cse(*words)) for _ in range(2)) < limit * slowness


@pytest.mark.process
def test_every_recipe_and_every_cell_of_every_study_cost_less_than_three_seconds(slowness):
    """More than five hundred recipes; imports do not count."""
    files = recipe_files([])
    check(files[0])
    before = time.process_time()
    assert all(check(file)["valid"] for file in files)
    assert time.process_time() - before < 3 * slowness


@pytest.mark.process
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
