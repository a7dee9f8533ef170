"""A Ray with Serve on a free port, as somebody may have it already; prints both addresses, ends with standard input."""

from __future__ import annotations

import json
import sys

import ray
from ray import serve

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    print(json.dumps({"address": ray.get_runtime_context().gcs_address}), flush=True)
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()
