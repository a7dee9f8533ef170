"""The tutorials' clients: what they ask in parallel Ray tasks, and by handle, of what `serve run` serves.

`python tutorial_client.py text|adder|house-price ADDRESS`. The requests and calls are those that stand in

- text: "Serve a Text Generator with Request Batching" of Ray's documentation, as it is with 2.60;
- adder: its predecessor "Batching Tutorial", of Ray 0.8 (`batch_adder_v0`) and 1.x (`BatchAdder`). What gave the
  handle, `serve.get_handle` and `BatchAdder.get_handle`, is `serve.get_app_handle` now; the route, there /adder, is
  that of `serve run`;
- house-price: "Ray Serve Batching: Throughput Optimization" of adhdecode, which names the fields of the JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ray
import requests
from ray import serve
from ray.serve.handle import DeploymentHandle

LIMIT_S = 900
NUMBERS = list(range(9))
TEXTS = [
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
HOUSES = [[1000 + 100 * number, 9000, 800, 1960, 1990, 2, number % 3, 2] for number in NUMBERS]


@ray.remote
def send_text(url: str, text: str) -> str:
    return requests.get(f"{url}/?text={text}", timeout=LIMIT_S).text


@ray.remote
def send_number(url: str, number: int) -> int:
    return int(requests.get(f"{url}/?number={number}", timeout=LIMIT_S).text)


@ray.remote
def send_houses(url: str, features: list[list[float]]) -> list[float]:
    predictions: list[float] = requests.post(url, json={"features": features}, timeout=LIMIT_S).json()["predictions"]
    return predictions


def by_handle(handle: DeploymentHandle[Any], inputs: list[Any]) -> list[Any]:
    responses = [handle.handle_batch.remote(each) for each in inputs]
    return [response.result(timeout_s=LIMIT_S) for response in responses]


def in_one_list(handle: DeploymentHandle[Any], inputs: list[Any]) -> list[Any]:
    return list(handle.handle_batch.remote(inputs).result(timeout_s=LIMIT_S))


def ask_for_texts(url: str) -> list[list[Any]]:
    by_http = ray.get([send_text.remote(url, text) for text in TEXTS])
    handle = serve.get_deployment_handle("BatchTextGenerator", app_name="Text-Completion-App")
    return [by_http, by_handle(handle, TEXTS)]


def ask_for_sums(url: str) -> list[list[Any]]:
    by_http = ray.get([send_number.remote(url, number) for number in NUMBERS])
    handle = serve.get_app_handle("default")
    return [by_http, by_handle(handle, NUMBERS), in_one_list(handle, NUMBERS)]


def ask_for_prices(url: str) -> list[list[Any]]:
    (by_http,) = ray.get([send_houses.remote(url, HOUSES)])
    return [by_http, in_one_list(serve.get_app_handle("default"), HOUSES)]


CLIENTS = {"text": (TEXTS, ask_for_texts), "adder": (NUMBERS, ask_for_sums), "house-price": (HOUSES, ask_for_prices)}

if __name__ == "__main__":
    ray.init(namespace="serve")
    inputs, ask = CLIENTS[sys.argv[1]]
    print(json.dumps({"inputs": inputs, "answers": ask(sys.argv[2])}))
