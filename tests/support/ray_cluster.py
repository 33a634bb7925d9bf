"""A local Ray cluster that outlives the drivers of a test: held by a process.

    python tests/support/ray_cluster.py 4       # CPUs; prints the address
                                                # and ends when standard input does

`ray stop` would end every cluster of the machine. A token in the environment says who
may use the cluster: Ray would else put one into the user's home.
"""

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@contextlib.contextmanager
def cluster(num_cpus, **environment):
    """A cluster's address; its workers find the modules of tests."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    # Next to tests that keep all cores busy, workers of lower priority, as Ray's are,
    # would get next to no time.
    own |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", **environment}
    os.environ.update(own)
    paths = os.pathsep.join(map(str, (ROOT, HERE)))
    # Sockets below it have long names, and may have 107 letters at most.
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:
        with subprocess.Popen(
            [sys.executable, __file__, str(num_cpus), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
            text=True,
        ) as process:
            try:
                for line in process.stdout:
                    if line.startswith("address "):
                        yield line.split()[1]
                        break
                else:
                    raise RuntimeError("no cluster")
            finally:
                process.stdin.close()
                for name in own:
                    del os.environ[name]


def hold(num_cpus, folder):
    import ray

    context = ray.init(
        num_cpus=num_cpus,
        num_gpus=0,
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=folder,
    )
    print("address", context.address_info["gcs_address"], flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    hold(int(sys.argv[1]), sys.argv[2])
