"""A Ray cluster of two nodes on this machine, to try one out: `python -m cse_cli.jobs.local_cluster CPUS`.

A process of its own, the leader of a session: Ray makes the one that starts its nodes the leader of a process group,
which Ctrl-C at the terminal would not reach any more, and takes its signals. It prints the cluster's address, and ends
all when its standard input is closed, which is also when the process that started it has died.
"""

from __future__ import annotations

import os
import sys
from tempfile import TemporaryDirectory

_STORE_BYTES = 80 * 2**20
"""What a node keeps for objects: nothing large goes through Ray."""


def main() -> None:
    """Start the nodes, with so many CPUs each, and end them when nobody needs them any more."""
    # A folder of its own: in Ray's usual one, `auto` would find this cluster instead of a real one.
    with TemporaryDirectory(prefix="cse-ray-", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        from ray.cluster_utils import Cluster

        node = {"num_cpus": int(sys.argv[1]), "object_store_memory": _STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            cluster.add_node(**node)
            sys.stdout.write(f"{cluster.address}\n")
            sys.stdout.flush()
            sys.stdin.read()
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
