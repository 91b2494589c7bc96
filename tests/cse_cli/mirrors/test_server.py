"""A real MLflow server: gone in the middle of a run and back again; and the pages `cse ui` shows."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cse_cli.mirrors import follower
from cse_cli.mirrors import ui as pages
from cse_cli.mirrors.command import sync
from cse_cli.mirrors.follower import follow
from cse_cli.mirrors.mirror import State
from cse_cli.mirrors.store import open_store
from cse_cli.mirrors.ui import free_port
from tests.cse_cli.mirrors.test_follow import until
from tests.cse_cli.mirrors.test_mlflow import fill
from tests.support.errors import refuses
from tests.support.ports import unused_port
from tests.support.records import recorded
from tests.support.trackers import points, there

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), DIRECT.open(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
        return bool(answer.status == 200)
    return False


@contextlib.contextmanager
def server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server that keeps the artifacts itself."""
    options = {
        "--backend-store-uri": f"sqlite:///{folder}/server.db",
        "--artifacts-destination": str(folder / "kept"),
        "--host": "127.0.0.1",
        "--port": str(port),
        "--workers": "1",
    }
    command = [sys.executable, "-m", "mlflow", "server", *(part for pair in options.items() for part in pair)]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while not answers(port):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
        assert process.poll() is None  # else another one answers
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.process
def test_a_server_may_go_away_in_the_middle_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    port = unused_port()
    address = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(follower, "SEND_SECONDS", 0.1)
    monkeypatch.setattr(follower, "RETRY_SECONDS", 0.1)
    with server(tmp_path, port):
        record = recorded(end=None, resolved={"title": "SimCSE"})
        sending = follow(record.about)
        for step in range(10):
            record.metrics({"loss": float(step)}, step)
        until(lambda: State.read(record.run_id, "mlflow") is not None)
        until(lambda: len(points(record.run_id, "loss")) == 10)
    begin = time.monotonic()
    for step in range(10, 20):
        record.metrics({"loss": float(step)}, step)
    assert time.monotonic() - begin < 10
    until(lambda: "does not respond" in capfd.readouterr().err)

    with server(tmp_path, port):
        for step in range(20, 30):
            record.metrics({"loss": float(step)}, step)
        fill(record)
        sending.close()
        assert points(record.run_id, "loss") == [(s, float(s)) for s in range(30)]
        run = there(record.run_id)
        assert run.info.status == "FINISHED"
        names = {one.path for one in open_store().client.list_artifacts(run.info.run_id)}
        assert names >= {"run.toml", "recipe.toml", "result.json", "series", "events.jsonl"}
        (model,) = open_store().client.search_logged_models([run.info.experiment_id])
        assert {metric.key for metric in model.metrics} == {"eval/avg", "eval/gain"}
    assert capfd.readouterr().out == ""


@pytest.mark.process
@pytest.mark.exhaustive
def test_a_server_that_hangs_at_the_end_gets_the_rest_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    port = unused_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with server(tmp_path, port) as process:
        record = recorded(end=None)
        sending = follow(record.about)
        until(lambda: State.read(record.run_id, "mlflow") is not None)
        os.killpg(process.pid, signal.SIGSTOP)
        record.metrics({"loss": 1.0}, 1)
        record.end("finished")
        begin = time.monotonic()
        sending.close()
        assert time.monotonic() - begin < 30
        assert "To send the rest: cse runs sync" in capfd.readouterr().err
        os.killpg(process.pid, signal.SIGCONT)
        until(lambda: answers(port))
        until(lambda: threading.active_count() == 1 or not any("mirror" in t.name for t in threading.enumerate()))
        sync()
        assert (there(record.run_id).info.status, points(record.run_id, "loss")) == ("FINISHED", [(1, 1.0)])


one_by_one = pytest.mark.xdist_group("ports from 5000 up")
"""Of tests whose servers choose a port: what one takes and frees, another beside it would take."""


@contextlib.contextmanager
def ui() -> Iterator[subprocess.Popen[str]]:
    """Start `cse ui`; it is gone after the block, also when the test fails."""
    command = [sys.executable, "-c", "from cse_cli.mirrors.command import ui; ui(None, True)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the address that `cse ui` shows, and the page there; fail with its message if it ends instead."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline().strip()
    assert line, process.stderr.read()
    url, _, page = line.partition("/#/")
    return url, page


def status(address: str, host: str) -> int:
    """Return what a server answers to a browser that knows it by the name `host`."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET", "/ajax-api/2.0/mlflow/experiments/search?max_results=1", headers={"Host": host})
        return connection.getresponse().status


@pytest.mark.process
@one_by_one
@pytest.mark.exhaustive
def test_two_at_once_serve_this_machine_and_end_with_ctrl_c() -> None:
    record = recorded(group="mini/simcse_en")
    open_store()  # by migrations that both would wait for

    with ui() as first, ui() as second:
        addresses, servers = [], []
        for process in (first, second):
            url, page = said(process)
            place = there(record.run_id).info.experiment_id  # sent by the command
            assert page == f"experiments/{place}/runs?workflowType=machine_learning&viewStateShareKey=cse"
            assert url.startswith("http://127.0.0.1:")
            addresses.append(url.removeprefix("http://"))
            servers += psutil.Process(process.pid).children(recursive=True)
        assert len(set(addresses)) == 2
        for address, process in zip(addresses, (first, second), strict=True):
            with DIRECT.open(f"http://{address}/", timeout=60) as answer:
                assert b"<html" in answer.read()
            assert [status(address, host) for host in (address, "localhost:8000", "localhost")] == [200] * 3
            assert [status(address, host) for host in ("example.org", "10.example.org", "10.0.0.1:80")] == [403] * 3
            process.send_signal(signal.SIGINT)
        for process in (first, second):
            assert process.wait(timeout=30) == 0
            assert "Traceback" not in (process.stderr.read() if process.stderr else "")
    assert len(servers) == 4
    assert psutil.wait_procs(servers, timeout=24)[1] == []


@pytest.mark.process
@one_by_one
def test_the_server_ends_when_the_command_is_killed(home: Path) -> None:
    with ui() as process:
        port = int(said(process)[0].rpartition(":")[2])
        servers = psutil.Process(process.pid).children(recursive=True)
        assert answers(port)
        process.kill()
    assert len(servers) == 2
    assert psutil.wait_procs(servers, timeout=24)[1] == []


def test_a_port_in_use_is_refused_and_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with refuses("mirrors.port_in_use", port):
            free_port(port)
        assert free_port(None) != port


def test_without_the_server_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "distributions", lambda name: [])
    with refuses("mirrors.ui_not_installed", "pip install 'cse-registry[ui]'"):
        pages.require_server()


def test_the_server_is_local_and_hides_the_password(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "postgresql://cse:hunter2@127.0.0.1/runs"

    def started(arguments: list[str], env: dict[str, str], **_: object) -> None:
        assert "hunter2" not in str(arguments)
        assert arguments[1] == "-P"
        assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
        assert not {"MLFLOW_TRACKING_URI", "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE"} & env.keys()
        assert env["MLFLOW_BACKEND_STORE_URI"] == address
        raise KeyError("started")

    home.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr(subprocess, "Popen", started)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(KeyError, match="started"):
            pages.serve("experiments", unused_port(), no_browser=True)
    finally:
        signal.signal(signal.SIGTERM, before)


SERVER = """
import http.server, sys
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy).serve_forever()
"""


@pytest.fixture
def others(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Ports that another program takes between our look at them and our server's start: the first one."""
    home.mkdir(parents=True)
    taken: list[int] = []

    def listening(port: int) -> list[str]:
        return [sys.executable, "-c", SERVER, str(port)]

    before = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as stack:

        def server(port: int) -> list[str]:
            if not taken:
                other = stack.enter_context(subprocess.Popen(listening(port), stderr=subprocess.DEVNULL))
                stack.callback(other.kill)
                while not answers(port):
                    assert other.poll() is None
                taken.append(port)
            return listening(port)

        monkeypatch.setattr(pages, "_server", server)
        yield taken
    signal.signal(signal.SIGTERM, before)


@pytest.mark.process
def test_a_port_that_another_program_took_is_not_shown(
    home: Path, others: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    with refuses("mirrors.no_server", "Address already in use"):
        pages.serve("experiments", unused_port(), no_browser=True)
    assert capsys.readouterr().out == ""


@pytest.mark.process
@one_by_one
def test_the_next_port_is_used_if_another_program_took_one(
    home: Path, others: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def leave(url: str, *_: object) -> None:
        shown.append(url)
        raise KeyboardInterrupt

    monkeypatch.setattr(pages, "show", leave)
    pages.serve("experiments", None, no_browser=True)
    assert len(shown) == 1
    assert not shown[0].startswith(f"http://127.0.0.1:{others[0]}/")
