"""The program's own end: what a signal does before and after a run."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from cse_cli.__main__ import main
from tests.conftest import ROOT

HEAVY = {"torch", "transformers", "mlflow", "datasets", "pandas", "scipy", "optuna"}
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as `main` does for what it starts: later tests start more
    before = {number: signal.getsignal(number) for number in NUMBERS}
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_signal_during_an_import(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        try:
            signal.raise_signal(number)
        except (KeyboardInterrupt, SystemExit) as error:
            raise RecursionError from error

    monkeypatch.setattr("cse_cli.app.run", run)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 128 + number


@pytest.mark.parametrize("number", NUMBERS)
def test_signal_during_a_finalizer(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def run() -> None:
        del [Finalized()][0]
        time.sleep(10)
        raise AssertionError("it went on")

    monkeypatch.setattr("cse_cli.app.run", run)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 128 + number
    assert capsys.readouterr().err == ""


def test_an_error_without_a_signal_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> None:
        raise RecursionError

    monkeypatch.setattr("cse_cli.app.run", run)
    with pytest.raises(RecursionError):
        main()


# What a command imports before it does anything. `benchmarks/start.py` measures the seconds.


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
        f"sys.stderr.write(' '.join(sorted({HEAVY - may!r} & set(sys.modules))))\n"
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
