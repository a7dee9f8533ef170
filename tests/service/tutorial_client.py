"""The tutorial's own clients, as written there: queries in parallel Ray tasks, and a list by handle."""

from __future__ import annotations

import json
import sys

import ray
import requests
from ray import serve

url = sys.argv[1]


@ray.remote
def send_query(text: str) -> str:
    resp = requests.get(f"{url}/?text={text}", timeout=120)
    return resp.text


if __name__ == "__main__":
    ray.init(namespace="serve")
    texts = [
        "Once upon a time,",
        "Hi my name is Lewis and I like to",
        "My name is Mary, and my favorite",
        "My name is Clara and I am",
        "My name is Julien and I like to",
        "Today I accidentally",
        "My greatest wish is to",
        "In a galaxy far far away",
        "My best talent is",
    ]
    by_http = ray.get([send_query.remote(text) for text in texts])

    handle = serve.get_deployment_handle("BatchTextGenerator", app_name="Text-Completion-App")
    responses = [handle.handle_batch.remote(text) for text in texts]
    by_handle = [response.result(timeout_s=120) for response in responses]
    print(json.dumps({"texts": texts, "by_http": by_http, "by_handle": by_handle}))
