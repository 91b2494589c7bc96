"""Runs on a Ray cluster: two nodes of this machine, one of which dies; drivers that are stopped; and refusals."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from cse_cli.core.paths import home
from cse_cli.jobs.engine import Engine
from cse_cli.jobs.request import Placement
from cse_cli.runs.events import Pruned
from cse_cli.runs.index import all_runs
from cse_cli.runs.record import request_end
from registry.errors import CseError
from tests.cse_cli.jobs.test_engine import HERE, Watch, begin, begin_trial, end, equal
from tests.cse_cli.recipe.tiny_study import grid, times
from tests.support.errors import refuses
from tests.support.forked import Forked
from tests.support.ports import unused_port
from tests.support.programs import running_steps, until
from tests.support.records import points, states
from tests.support.shrunken import recipe, small

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

_NODES = """
import sys
from ray.cluster_utils import Cluster
gpus = int(sys.argv[1])
head, *others = [{"num_cpus": int(cpus), "num_gpus": gpus} for cpus in sys.argv[2:]]
cluster = Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": False})
added = [cluster.add_node(**other) for other in others]
print(cluster.address, *(node.all_processes["raylet"][0].process.pid for node in added), flush=True)
for line in sys.stdin:
    cluster.add_node(num_cpus=int(line))
cluster.shutdown()
"""


class Nodes:
    """A cluster in the care of a process; what it started is gone after the block of `nodes`.

    Args:
        process: That has started the nodes.
        address: Of the cluster.
        raylets: Process of each node but the head.
    """

    def __init__(self, process: subprocess.Popen[str], address: str, raylets: list[psutil.Process]) -> None:
        self.process, self.address, self.raylets = process, address, raylets

    def add(self, cpus: int) -> None:
        """Add a node."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{cpus}\n")
        self.process.stdin.flush()

    def kill(self, number: int) -> None:
        """End a node and all that runs on it, as a power cut would."""
        raylet = self.raylets[number]
        everything = [raylet, *raylet.children(recursive=True)]
        for one in everything:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGSTOP)  # so that none hears of another's end
        for one in everything:
            with suppress(psutil.NoSuchProcess):
                one.kill()


@contextmanager
def nodes(*cpus: int, folder: Path, gpus: int = 0) -> Iterator[Nodes]:
    """Start a cluster: a head, and a node for each further number of CPUs; each with GPUs that Ray only counts."""
    ray = TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)  # a path short enough for its sockets
    process = subprocess.Popen(
        [sys.executable, "-c", _NODES, *map(str, (gpus, *cpus))],
        env={**os.environ, **LOOPBACK, "RAY_TMPDIR": ray.name},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    known: list[psutil.Process] = []
    try:
        assert process.stdout is not None
        address, *pids = process.stdout.readline().split()
        yield Nodes(process, address, [psutil.Process(int(pid)) for pid in pids])
    finally:
        with suppress(psutil.NoSuchProcess):
            known = psutil.Process(process.pid).children(recursive=True)
        assert process.stdin is not None
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        for one in known:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        ray.cleanup()


def running_workers() -> list[psutil.Process]:
    """Return the processes that do runs for this test's state directory, on whatever node."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if "cse_cli.jobs.worker" in one.cmdline() and one.environ().get("CSE_HOME") == str(home()):
                found.append(one)
    return found


def none_left(seconds: float) -> list[psutil.Process]:
    """Return the runs that are still at work after so many seconds."""
    until = time.monotonic() + seconds
    while (left := running_workers()) and time.monotonic() < until:
        time.sleep(0.2)
    return left


needs_ray = [
    pytest.mark.process,
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install -e '.[ray]'"),
    pytest.mark.timeout(900),
]
STEPS = 60


class TestRefused:
    def test_without_ray(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        with refuses("cluster.not_installed", "--cluster auto", 'pip install "ray[client]') as caught:
            Engine(Placement(cluster="auto"))
        assert caught.value.exit_code == 2

    @pytest.mark.parametrize("device", ["cuda:1", "tpu"])
    def test_a_device_that_ray_chooses(self, device):
        with refuses("cluster.device", f"--device {device}"):
            Engine(Placement(cluster="auto", device=device))


class TestNoCluster:
    pytestmark = needs_ray

    @pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "somewhere"])
    def test_nothing_listens(self, address, tmp_path, monkeypatch):
        """By a process of its own: nothing of Ray is left in this one."""
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
        recipe(tmp_path, small(tmp_path))
        began, named = time.monotonic(), address.format(port=unused_port())
        process = Forked(["cse_cli", "run", "small.toml", "--device", "cpu", "--cluster", named], tmp_path)
        out, err = process.communicate(timeout=90)
        assert (process.returncode, out) == (3, ""), err
        assert time.monotonic() - began < 60
        assert f"error: --cluster {named}: " in err
        assert "→ start a cluster with `ray start --head`" in err
        assert "Traceback" not in err


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with nodes(1, 1, folder=tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LOOPBACK.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    recipe(tmp_path, small(tmp_path), steps=STEPS, evaluate_every=20, checkpoint_every=5)
    return tmp_path


def cse(study: str, address: str, *more: str, folder: Path) -> Forked:
    return Forked(
        ["cse_cli", "run", study, "--device", "cpu", "--json", "--cluster", address, *more], folder, **LOOPBACK
    )


def far(count: int, step: int) -> bool:
    """Tell whether so many runs at work have done so many steps."""
    return sum(done >= step for done in running_steps()) >= count


class TestStudy:
    pytestmark = needs_ray

    def test_a_node_dies_half_way(self, folder, tmp_path):
        """All runs come to their end, none twice, and all with the numbers of runs in a row."""
        with nodes(1, 1, folder=tmp_path) as started:
            process = cse(grid(folder, seeds="4"), started.address, folder=folder)
            until(lambda: states().count("FINISHED") >= 4 and far(2, 10), process)
            started.kill(0)
            out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        (one,) = json.loads(out)["studies"]
        assert (one["ran"], states()) == (12, ["FINISHED"] * 12)
        assert set(times().values()) == {1}
        assert "was lost with its node" in err
        assert "from its last checkpoint" in err
        for run in all_runs():
            steps = [step for step, _ in points(run.run_id, "train/loss")]
            assert steps == [1, *range(10, STEPS + 1, 10)]
        assert not none_left(5)

        alone = Forked(
            ["cse_cli", "run", "tiny.toml", "--device", "cpu", "--json"], folder, CSE_HOME=f"{tmp_path}/alone"
        )
        out, err = alone.communicate(timeout=600)
        assert alone.returncode == 0, err
        (serial,) = json.loads(out)["studies"]
        key = "seed", "last_state", "scores", "curve"
        of = [
            sorted([each["identity"]["settings"], *(each[name] for name in key)] for each in each_of["results"])
            for each_of in (one, serial)
        ]
        assert of[0] == of[1]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_the_driver_is_stopped(self, number, folder, cluster, record_property):
        """Five times at a moment of chance: no process is left, no run is RUNNING, and all go on."""
        grid(folder, more='set = ["train.steps=100000"]')
        took = []
        for _ in range(int(os.environ.get("CSE_TEST_STOPS", "1"))):
            process = cse("tiny.toml", cluster.address, folder=folder)
            until(lambda: len(running_workers()) == 2 and far(2, 1), process)
            time.sleep(random.uniform(0, 3))
            began = time.monotonic()
            os.kill(process.pid, number)
            _, err = process.communicate(timeout=60)
            code = 128 + number if number != signal.SIGKILL else -number
            assert process.returncode == code, err
            assert not none_left(20)
            took.append(time.monotonic() - began)
            assert "Traceback" not in err
            assert states() == ["STOPPED"] * 2, err
        record_property("seconds", [round(seconds, 1) for seconds in took])
        assert max(took) < 20
        assert set(times().values()) == {1}, "the runs went on, and did not start anew"


@pytest.mark.usefixtures("loopback")
class TestEngine:
    """In this process, for what a receiver of events does."""

    pytestmark = needs_ray

    @pytest.fixture
    def file(self, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        return recipe(tmp_path, small(tmp_path), steps=40, evaluate_every=10, checkpoint_every=10, collapse_cosine=1.0)

    def test_a_search_ends_a_run_while_another_goes_on(self, file, cluster):
        def prune(run_id: str, step: int) -> None:
            if step == 10:
                request_end(run_id, "enough")

        pruned, whole = Watch(prune), Watch()
        with Engine(Placement(cluster=cluster.address, device="cpu")) as engine:
            assert (engine.slots, engine.device) == (2, None)
            first, second = begin_trial(engine, file, pruned), begin(engine, file, whole, seed=4)
            ends = dict(engine.ended())
            while len(ends) < 2:
                ends.update(engine.ended())
        assert isinstance(ends[first], Pruned)
        assert (pruned.steps("evaluated"), whole.steps("evaluated")) == ([0, 10], [0, 10, 20, 30, 40])
        with Engine(HERE) as engine:
            assert equal(ends[second], end(engine, begin(engine, file, seed=4)))

    def test_a_run_that_hangs_or_dies_goes_on_in_another_process(self, file, cluster):
        numbers = [signal.SIGSTOP, signal.SIGKILL]

        def stop(_: str, step: int) -> None:
            if step == 20 and numbers:
                (one,) = running_workers()
                one.send_signal(numbers.pop())

        watch = Watch(stop)
        with Engine(Placement(cluster=cluster.address, device="cpu", stall_timeout=60.0)) as engine:
            assert end(engine, begin_trial(engine, file, watch)).steps == 40
        assert watch.steps("started") == [0, 10, 10]
        told = [text for text in watch.warnings if "process" in text]
        assert "its process was killed by SIGKILL" in told[0]
        assert "its process was killed: no progress report for 60 s; continuing run" in told[1]

    def test_two_processes_share_a_run_of_one_node(self, file, tmp_path):
        with (
            nodes(1, 2, folder=tmp_path) as started,
            Engine(Placement(processes=2, cluster=started.address, device="cpu")) as engine,
        ):
            assert engine.slots == 1
            assert end(engine, begin(engine, file)).steps == 40

    def test_gpus_are_taken_where_there_are_any(self, file, tmp_path):
        """Ray counts them, this machine has none: a run on one fails, and by that shows where it was to be done."""
        with nodes(1, 1, folder=tmp_path, gpus=4) as started:
            with Engine(Placement(processes=2, cluster=started.address)) as engine:
                assert engine.slots == 4
            with Engine(Placement(cluster=started.address, workers=3)) as engine:
                assert engine.slots == 3
                error = end(engine, begin(engine, file))
        assert isinstance(error, CseError)
        assert "--device: 'cuda' does not exist: 0 CUDA devices found" in error.message

    def test_the_cluster_grows(self, file, tmp_path):
        with (
            nodes(1, folder=tmp_path) as started,
            Engine(Placement(cluster=started.address, device="cpu")) as engine,
        ):
            assert engine.slots == 1
            started.add(2)
            until(lambda: engine.slots == 3)

    def test_no_node_is_large_enough(self, cluster):
        with refuses("cluster.too_small", "3 CPU"):
            Engine(Placement(processes=3, cluster=cluster.address, device="cpu"))
        with refuses("cluster.too_small", "1 GPU", "--device cpu"):
            Engine(Placement(cluster=cluster.address, device="cuda"))
