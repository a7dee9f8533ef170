"""A Ray as somebody may have it already, with its files in the folder that is its argument.

Prints its address; starts Serve on each port that standard input names.
"""

from __future__ import annotations

import json
import sys

import ray
from ray import serve

from service.launch.checks import quiet_port
from service.ray_serve.clusters import essential_processes

PROCESSORS = 4
"""As Ray counts them: one is for a replica, and with those left tasks run in parallel, also on a machine of two."""

if __name__ == "__main__":
    told, sys.stdout = sys.stdout, sys.stderr  # where Ray prints what it has to say
    folder = sys.argv[1]
    with essential_processes(quiet_port()):  # others take longer than Ray waits where tests take the processor
        ray.init("local", num_cpus=PROCESSORS, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
    print(json.dumps({"address": ray.get_runtime_context().gcs_address}), file=told, flush=True)
    for port in sys.stdin:
        serve.shutdown()  # the Serve that an application that was refused has left, at another port
        serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
        print(json.dumps({"url": f"http://127.0.0.1:{int(port)}"}), file=told, flush=True)
    serve.shutdown()
    ray.shutdown()
