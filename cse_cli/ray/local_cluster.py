"""Start a Ray cluster of two nodes on this machine: `python -m cse_cli.ray.local_cluster CPUS`.

It prints the address of the cluster, and ends the cluster when its stdin is closed, also because its parent died. It is
a separate process because Ray replaces the signal handlers of the process that starts nodes, and makes it the leader of
a process group, which Ctrl-C in the terminal does not reach.
"""

from __future__ import annotations

import os
import sys
from tempfile import TemporaryDirectory

_STORE_BYTES = 80 * 2**20
"""Memory of a node for objects. No large object goes through Ray."""


def main() -> None:
    """Start the nodes, each with CPUS slots, and end them when stdin is closed."""
    # In its own directory: `auto` finds the clusters of Ray's usual directory, and must not find this one.
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
