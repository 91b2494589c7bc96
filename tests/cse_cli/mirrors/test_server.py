"""A real MLflow server: gone in the middle of a run and back again; and the pages `cse ui` shows."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cse_cli.mirrors import mirror, ui
from cse_cli.mirrors.mirror import Follower, State
from cse_cli.mirrors.ui import free_port
from tests.cse_cli.mirrors.test_follow import until
from tests.cse_cli.mirrors.test_mlflow import fill
from tests.support.errors import refuses
from tests.support.forked import Forked
from tests.support.ports import unused_port
from tests.support.records import recorded
from tests.support.trackers import client, points, there

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
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(mirror, "SEND_SECONDS", 0.1)
    monkeypatch.setattr(mirror, "RETRY_SECONDS", 0.1)
    with server(tmp_path, port):
        record = recorded(end=None, resolved={"title": "SimCSE"})
        sending = Follower(record.run_id)
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
        names = {one.path for one in client().list_artifacts(run.info.run_id)}
        assert names >= {"run.toml", "recipe.toml", "result.json", "series", "events.jsonl"}
        (model,) = client().search_logged_models([run.info.experiment_id])
        assert {metric.key for metric in model.metrics} == {"eval/avg", "eval/gain"}
        assert capfd.readouterr().out == ""
        ui.serve(None, browser=False)
        place = f"http://127.0.0.1:{port}/#/experiments/{run.info.experiment_id}/runs?"
        assert capfd.readouterr().out.splitlines()[-1].startswith(place)


def status(address: str, host: str) -> int:
    """Return what a server answers to a browser that knows it by the name `host`."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET", "/ajax-api/2.0/mlflow/experiments/search?max_results=1", headers={"Host": host})
        return connection.getresponse().status


@pytest.mark.process
def test_the_ui_is_for_this_machine_and_ends_with_the_command(tmp_path: Path) -> None:
    """The command is killed. `tests/test_current_folder.py` ends it with Ctrl-C."""
    record, port = recorded(group="mini/simcse_en"), unused_port()
    (tmp_path / "served.py").write_text(f"from cse_cli.mirrors.ui import serve\nserve({port}, browser=False)\n")
    with Forked(["served"], tmp_path, PYTHONPATH=str(tmp_path)) as process:
        try:
            url, _, page = process.stdout.readline().strip().partition("/#/")
            assert url == f"http://127.0.0.1:{port}"
            assert page.startswith(f"experiments/{there(record.run_id).info.experiment_id}/runs?")
            servers = psutil.Process(process.pid).children(recursive=True)
            with DIRECT.open(url, timeout=60) as answer:
                assert b"<html" in answer.read()
            address = f"127.0.0.1:{port}"
            assert [status(address, host) for host in (address, "localhost:8000", "localhost")] == [200] * 3
            assert [status(address, host) for host in ("example.org", "10.example.org", "10.0.0.1:80")] == [403] * 3
        finally:
            process.kill()
        assert process.wait(timeout=30) == -signal.SIGKILL
    assert len(servers) == 2
    assert psutil.wait_procs(servers, timeout=40)[1] == []


def test_a_port_in_use_is_refused_and_skipped() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with refuses("mirrors.port_in_use", port):
            free_port(port)
        assert free_port(None) != port


def test_without_the_server_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "distributions", lambda name: [])
    with refuses("mirrors.ui_not_installed", 'pip install "mlflow'):
        ui.serve(None, browser=False)


@pytest.mark.slow
def test_a_server_that_exits_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "_options", lambda port: ["--port=none"])
    with refuses("mirrors.no_server", "'none' is not a valid integer"):
        ui.serve(None, browser=False)


def test_the_server_is_local_and_hides_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "postgresql://cse:hunter2@127.0.0.1/runs"

    def started(arguments: list[str], env: dict[str, str], **_: object) -> None:
        assert "hunter2" not in str(arguments)
        assert arguments[1] == "-P"
        assert "--host=127.0.0.1" in arguments
        assert not {"MLFLOW_TRACKING_URI", "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE"} & env.keys()
        assert env["MLFLOW_BACKEND_STORE_URI"] == address
        raise KeyError("started")

    monkeypatch.setenv("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr(ui, "_send", lambda *_, **__: True)
    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(KeyError, match="started"):
        ui.serve(unused_port(), browser=False)
