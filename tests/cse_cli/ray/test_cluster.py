"""Runs on a Ray cluster: two nodes of this machine, one of which dies; drivers that are stopped; and refusals."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from cse_cli.core.events import Pruned
from cse_cli.jobs.executor import STALL_SECONDS, SerialExecutor

from cse_cli.core.paths import home
from cse_cli.jobs import placement as placements
from cse_cli.jobs.placement import Placement
from cse_cli.runs.index import all_runs
from registry.errors import CseError, MissingError
from tests.cse_cli.jobs.test_executor import Watch, ended, job
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


class Elsewhere(SerialExecutor):
    """Executor of another package."""

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        self.placement = placement


class TestRefused:
    def test_without_ray(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        with refuses("ray.not_installed", "--cluster auto", "pip install 'cse-registry[ray]'") as caught:
            Placement(cluster="auto").open()
        assert caught.value.exit_code == 2

    @pytest.mark.parametrize("device", ["cuda:1", "tpu"])
    def test_a_device_that_ray_chooses(self, device):
        with refuses("ray.device_of_cluster", f"--device {device}"):
            Placement(cluster="auto", device=device).open()

    def test_another_package_has_an_executor(self, monkeypatch):
        point = EntryPoint("slurm", "tests.cse_cli.ray.test_cluster:Elsewhere", placements.GROUP)
        monkeypatch.setattr(placements, "entry_points", lambda group: [point])
        place = Placement(cluster="slurm://gpu", device="cuda:1")
        opened = place.open()
        assert isinstance(opened, Elsewhere)
        assert opened.placement == place


@pytest.mark.usefixtures("no_cluster")
class TestNoCluster:
    pytestmark = needs_ray

    @pytest.fixture
    def no_cluster(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        recipe(tmp_path, small(tmp_path))

    def refused(self, address: str, folder: Path) -> str:
        """Return what is said, by a process of its own: nothing of Ray is left in this one."""
        began = time.monotonic()
        process = Forked(["cse_cli", "run", "small.toml", "--device", "cpu", "--cluster", address], folder)
        out, err = process.communicate(timeout=90)
        assert (process.returncode, out) == (3 if "not an address" not in err else 2, "")
        assert time.monotonic() - began < 60, "25 s to connect, and a loaded machine"
        assert err.count("\n") <= 2, err
        assert err.startswith("error: --cluster ")
        assert "Traceback" not in err
        return err

    @pytest.mark.parametrize("scheme", ["", "ray://"])
    def test_nothing_listens(self, scheme, tmp_path):
        assert "cannot connect (Connection refused)" in self.refused(f"{scheme}127.0.0.1:{unused_port()}", tmp_path)

    def test_what_listens_is_no_cluster(self, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            err = self.refused(f"127.0.0.1:{silent.getsockname()[1]}", tmp_path)
        assert "no Ray cluster responds within 25 s" in err

    def test_no_address(self, tmp_path):
        assert "not an address of a Ray cluster" in self.refused("somewhere", tmp_path)


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
        key = "recipe_hash", "seed", "last_state", "scores", "curve"
        of = [sorted([each[name] for name in key] for each in each_of["results"]) for each_of in (one, serial)]
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
class TestExecutor:
    """In this process, for what an observer does."""

    pytestmark = needs_ray

    @pytest.fixture
    def file(self, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        return recipe(tmp_path, small(tmp_path), steps=40, evaluate_every=10, checkpoint_every=10)

    @pytest.fixture
    def place(self, cluster: Nodes) -> Placement:
        return Placement(cluster=cluster.address, device="cpu", stall_timeout=STALL_SECONDS)

    def test_an_observer_ends_a_run_while_another_goes_on(self, file, place):
        def prune(step: int) -> None:
            if step == 10:
                raise Pruned("enough")

        pruned, whole = Watch(prune), Watch()
        with place.open() as executor:
            assert (executor.slots, executor.one_by_one) == (2, False)
            first, second = executor.submit(job(file), pruned), executor.submit(job(file, seed=4), whole)
            assert isinstance(ended(executor, first).exception(), Pruned)
            result = ended(executor, second).result()
            failed = executor.submit(job(file, "encoders.online.model=/no"), Watch())
            assert isinstance(ended(executor, failed).exception(), MissingError)
        assert (pruned.steps, whole.steps) == ([0, 10], [0, 10, 20, 30, 40])
        with SerialExecutor() as executor:
            alone = executor.submit(job(file, seed=4), Watch()).result()
        assert (result.last_state, result.scores, result.curve) == (alone.last_state, alone.scores, alone.curve)

    def test_a_run_that_hangs_or_dies_goes_on_in_another_process(self, file, place):
        numbers = [signal.SIGSTOP, signal.SIGKILL]

        def stop(step: int) -> None:
            if step == 20 and numbers:
                (one,) = running_workers()
                one.send_signal(numbers.pop())

        watch = Watch(stop)
        with Placement(cluster=place.cluster, device="cpu", stall_timeout=40.0).open() as executor:
            result = ended(executor, executor.submit(job(file), watch)).result()
        assert result.steps == 40
        assert watch.done == [0, 10, 10]
        assert len(set(watch.run_ids)) == 1
        told = [text for text in watch.warnings if "process" in text]
        assert "its process was killed by SIGKILL" in told[0]
        assert "its process was killed: no progress report for 40 s; resuming run" in told[1]

    def test_two_processes_share_a_run_of_one_node(self, file, tmp_path):
        with nodes(1, 2, folder=tmp_path) as started:
            place = Placement(processes=2, cluster=started.address, device="cpu")
            with place.open() as executor:
                assert executor.slots == 1
                shared = ended(executor, executor.submit(job(file), Watch())).result()
        assert shared.steps == 40

    def test_gpus_are_taken_where_there_are_any(self, file, tmp_path):
        """Ray counts them, this machine has none: a run on one fails, and by that shows where it was to be done."""
        with nodes(1, 1, folder=tmp_path, gpus=4) as started:
            with Placement(processes=2, cluster=started.address).open() as executor:
                assert executor.slots == 4
            with Placement(cluster=started.address, workers=3).open() as executor:
                assert executor.slots == 3
                error = ended(executor, executor.submit(job(file), Watch())).exception()
        assert isinstance(error, CseError)
        assert "--device: 'cuda' does not exist: 0 CUDA devices found" in error.message

    def test_the_cluster_grows(self, file, tmp_path):
        with nodes(1, folder=tmp_path) as started, Placement(cluster=started.address, device="cpu").open() as executor:
            assert executor.slots == 1
            future = executor.submit(job(file, "train.steps=100000"), Watch())
            started.add(2)
            executor.wait()
            assert (executor.slots, future.done()) == (3, False)
            executor.close(cancel=True)
        assert states() in ([], ["STOPPED"])

    def test_a_node_that_does_not_see_the_state_directory(self, cluster, monkeypatch):
        from cse_cli.ray.executor import RayExecutor

        monkeypatch.setattr(RayExecutor, "_make_setting", _without_marker)
        with refuses("ray.home_not_shared", "/nowhere"):
            Placement(cluster=cluster.address, device="cpu").open()

    def test_no_room(self, cluster):
        with refuses("ray.too_few_resources", "3 CPU"):
            Placement(processes=3, cluster=cluster.address, device="cpu").open()
        with refuses("ray.no_gpu", "--device cuda"):
            Placement(cluster=cluster.address, device="cuda").open()


def _without_marker(executor: object, threads: int | None) -> object:
    from cse_cli.ray.relay import Setting

    from cse_cli._version import __version__

    return Setting(__version__, {}, threads, Path.cwd(), Path("/nowhere/at/all"), 1)
