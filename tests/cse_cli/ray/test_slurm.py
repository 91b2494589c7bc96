"""The batch file of docs/cluster.md under a Slurm of one node, in a namespace of processes that ends with the test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cse_cli.recipe.tiny_study import grid, runs, times
from tests.support.ports import unused_port
from tests.support.shrunken import recipe, small

MISSING = [name for name in ("slurmctld", "slurmd", "munged", "unshare") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.process,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="Slurm's daemons and `unshare` need root"),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install -e '.[ray]'"),
]

PAGE = Path(__file__).parents[3] / "docs" / "cluster.md"

START = """
set -e
cd {folder}
dd if=/dev/urandom of=munge.key bs=1 count=1024 2>/dev/null
chmod 400 munge.key
mkdir -m 755 munge state
munged --key-file=$PWD/munge.key --socket=$PWD/munge/socket --pid-file=$PWD/munge/pid \\
  --log-file=$PWD/munge/log --seed-file=$PWD/munge/seed --force
slurmctld
slurmd
until scontrol ping | grep -q UP && sinfo -h -o %t | grep -q idle; do sleep 0.2; done
cd {work}
{command}
"""

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def batch_file(folder: Path, heading: str, **changes: str) -> Path:
    """Write the batch file that stands below a heading of the page, less its demand for GPUs."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    script = re.search(r"```bash\n(#!/bin/bash\n.*?)```", text, re.DOTALL)
    assert script is not None
    lines = [line for line in script[1].splitlines() if "--gpus" not in line]
    changed = "\n".join(lines) + "\n"
    for before, after in changes.values():
        assert before in changed, before
        changed = changed.replace(before, after)
    (folder / "job.sh").write_text(changed, encoding="utf-8")
    return folder / "job.sh"


def under_slurm(command: str, work: Path) -> str:
    """Run a command where Slurm runs, and return what the jobs wrote."""
    cpus = len(os.sched_getaffinity(0))
    with TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        host = os.uname().nodename.partition(".")[0]
        ports = unused_port(), unused_port()
        text = CONFIGURATION.format(host=host, folder=folder, ports=ports, cpus=cpus)
        Path(folder, "slurm.conf").write_text(text, encoding="utf-8")
        environment = {
            **os.environ,
            "SLURM_CONF": f"{folder}/slurm.conf",
            "RAY_TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        done = subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c",
             START.format(folder=folder, work=work, command=command)],
            env=environment, capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        written = "".join(file.read_text(errors="replace") for file in sorted(work.glob("slurm-*.out")))
        logs = "".join(file.read_text(errors="replace") for file in Path(folder).glob("*.log"))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{written}{logs[-3000:]}"
    return written


def test_a_study_on_a_ray_cluster_that_the_batch_file_starts(tmp_path):
    recipe(tmp_path, small(tmp_path), steps=20, evaluate_every=0)
    study = grid(tmp_path, "[0.05, 0.1]", seeds="2")
    batch_file(
        tmp_path,
        "On Slurm",
        nodes=("--nodes=4", "--nodes=1"),
        cpus=("--cpus-per-task=32", f"--cpus-per-task={len(os.sched_getaffinity(0))}"),
        study=("studies/mini/ifcl_queue_length", f"{study} --device cpu"),
    )
    written = under_slurm("sbatch --wait job.sh", tmp_path)
    assert "4 runs: 0 finished, 4 to run" in written
    assert [status for _, _, status, _ in runs()] == ["FINISHED"] * 4, written
    assert set(times().values()) == {1}


def test_an_array_of_seeds(tmp_path):
    recipe(tmp_path, small(tmp_path), steps=20, evaluate_every=0)
    batch_file(
        tmp_path,
        "Without Ray: a job array",
        array=("--array=0-4", "--array=0-1%1"),
        cpus=("--cpus-per-task=8", "--cpus-per-task=1"),
        recipe=("mini/simcse_en", "small.toml --device cpu"),
    )
    written = under_slurm("sbatch --wait job.sh", tmp_path)
    assert [(seed, status) for _, seed, status, _ in runs()] == [(0, "FINISHED"), (1, "FINISHED")], written
