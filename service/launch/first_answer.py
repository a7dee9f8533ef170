"""A first prompt over HTTP: ready is what has answered, and is ours."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from service.messages.life import StartError
from service.messages.workload import WorkloadAbout
from service.ray_serve.doors import INSTANCE_HEADER

LIMIT_S: Final = 120.0
ROUTES_LIMIT_S: Final = 10.0
POLL_S: Final = 0.1

# Serve says this for a moment, until its proxy has heard of the application.
_NOT_YET: Final = (404, 503)


@dataclass(frozen=True)
class Answers:
    """What the service says of itself."""

    model: str
    device: str
    dtype: str
    context_length: int | None
    workload: WorkloadAbout


@dataclass(frozen=True)
class Caller:
    """Asks the service at `host` and `port`, and takes answers of `instance` alone."""

    host: str
    port: int
    instance: str
    token: str | None = None

    def first_answer(self) -> Answers:
        """Have an example computed and ask what computed it; raises `StartError`."""
        self._wait_for_routes()
        workload = msgspec.convert(self._ask("GET", "/workload"), WorkloadAbout)
        self._ask("POST", "/v1/completions", {"prompt": workload.examples[0], "max_tokens": 1})
        health = self._ask("GET", "/healthz")
        (model,) = self._ask("GET", "/v1/models")["data"]
        return Answers(health["model"], health["device"], health["dtype"], model["context_length"], workload)

    def _wait_for_routes(self) -> None:
        deadline = time.monotonic() + ROUTES_LIMIT_S
        while self._exchange("GET", "/healthz")[0] in _NOT_YET and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        status, text = self._exchange(method, path, body)
        if status != 200:
            raise StartError(
                f"The model was loaded but {path} answered {status}: {text[:300].decode(errors='replace')} "
                "The log says more."
            )
        return json.loads(text)

    def _exchange(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            if response.getheader(INSTANCE_HEADER) != self.instance:
                raise StartError(
                    f"Another program answers on port {self.port}. End it, or name another port with --port."
                )
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise StartError(f"The service does not answer on port {self.port}: {error}. Start it again.") from error
        finally:
            connection.close()
