"""What a command imports before it does anything. `benchmarks/start.py` measures the seconds."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.test_code import HEAVY, ROOT


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "may"),
    [
        (["--help"], set()), (["list"], set()), (["list", "recipes"], set()), (["list", "losses"], set()),
        (["show", "info_nce"], {"torch"}), (["check", "ifcl_en"], {"torch"}),
    ],
    ids=" ".join,
)  # fmt: skip
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


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("handler", "code"), [("SIG_DFL", None), ("SIG_IGN", 7)])
def test_a_signal_outside_of_a_run_ends_the_command_in_order(number, handler, code):
    program = (
        "import atexit, os, signal, sys, cse_cli.app\n"
        f"signal.signal({int(number)}, signal.{handler})\n"
        "atexit.register(lambda: print('closed'))\n"
        f"cse_cli.app.run = lambda: (os.kill(os.getpid(), {int(number)}), sys.exit(7))\n"
        "from cse_cli.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (code or 128 + number, "closed\n", "")
