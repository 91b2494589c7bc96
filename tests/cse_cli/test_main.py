"""The program's own end: what a signal does before and after a run."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator

import pytest

from cse_cli.__main__ import main

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
