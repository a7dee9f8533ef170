"""`python -m service.ray_serve.release ADDRESS`: take our application off a cluster on which its driver has died."""

from __future__ import annotations

import sys

import ray

from service.ray_serve import application


def main() -> None:
    ray.init(address=sys.argv[1], log_to_driver=False)
    application.delete()


if __name__ == "__main__":
    main()
