"""The options one service is started with. No heavy import: the process that parses them starts at once."""

from __future__ import annotations

import argparse
import ipaddress
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from service.messages.objectives import Objectives
from service.messages.pipes import our_python
from service.messages.settings import Scale, Settings

APP_NAME: Final = "Text-Completion-App"
DEPLOYMENT_NAME: Final = "BatchTextGenerator"
REQUEST_TIMEOUT_S: Final = 600.0
"""A request that is not complete after this time fails, in the replica as in Ray's proxy."""

AUTO_MODEL: Final = "auto"
STUB_MODEL: Final = "stub"
"""Names no model: the small one, or where the service starts on this machine, what suits its GPU."""
SMALL_MODEL: Final = "SmolLM2-135M-Instruct"
LARGE_MODEL: Final = "HuggingFaceTB/SmolLM2-1.7B-Instruct"
LARGE_MODEL_GPU_BYTES: Final = 8_000_000_000
"""The memory of a GPU from which on `auto` takes the large model."""

ALLOW_VARIABLE: Final = "BATCHSCOPE_ALLOW_HOSTS"
"""Holds further names by which clients may call, `NAME` or `NAME:PORT`, with commas between; under `serve run` too."""

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
DEFAULT_APP: Final = "service.app:build"
LOOPBACK: Final = "127.0.0.1"


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a replica needs.

    Attributes:
        workload: `text`, or what `service.workloads.catalog.find` finds; `model` and `dtype` are for `text` alone.
        model: `AUTO_MODEL`, the small model's name, a local folder, a GGUF file, a hub id or a stub (`is_stub`).
        device, dtype: `auto` or torch's names; dtype `int8` has weights and inputs in 8 bits or fewer.
        deterministic: a prompt's completion does not depend on the requests beside it, to the last bit; for `text`.
        settings: in force until the first `PUT /batching`.
        replicas, max_ongoing_requests: in force until the first `PUT /deployment`; see `Scale`.
        hold: objectives that a deployment of its own keeps by moving settings; ``None`` for none.
    """

    workload: str = "text"
    model: str = AUTO_MODEL
    device: str = "auto"
    dtype: str = "auto"
    deterministic: bool = False
    replicas: int = Scale().replicas
    settings: Settings = Settings()
    max_ongoing_requests: int = Scale().max_ongoing_requests
    hold: Objectives | None = None


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `python -m service` is asked to run.

    Attributes:
        port: the one port to listen on; ``None`` for 8000 or the next free one, 0 for any free one.
        address: of a Ray cluster to run on, instead of a local one of our own.
        token_file: holds the bearer token that every request must carry.
        allow_hosts: further names by which clients may call the service, as `NAME` or `NAME:PORT`.
        name, route_prefix: of the Serve application.
        app: `module:function` that builds the Serve application from `ServiceOptions`.
        parent_pid: the service ends with this process; ``None`` for the one that started it.
    """

    service: ServiceOptions = ServiceOptions()
    host: str = LOOPBACK
    port: int | None = None
    address: str | None = None
    token_file: str | None = None
    allow_hosts: tuple[str, ...] = ()
    name: str = APP_NAME
    route_prefix: str = "/"
    app: str = DEFAULT_APP
    parent_pid: int | None = None


class Attachment(msgspec.Struct, frozen=True):
    """A service that runs already and outlives the program that looks at it.

    Attributes:
        url: where it answers.
        token_file: holds its bearer token; empty for none.
    """

    url: str
    token_file: str = ""

    @property
    def command(self) -> list[str]:
        """The command that reports it as a service that is started here."""
        return [*our_python("service", "attach"), *self.address]

    @property
    def address(self) -> tuple[str, ...]:
        """Its options on the command line of a program that asks it."""
        token = ("--token-file", self.token_file) if self.token_file else ()
        return ("--url", self.url, *token)


def is_stub(model: str) -> bool:
    """Whether no model is meant, but `service.engine.stub`; times may stand behind a question mark."""
    return model.partition("?")[0] == STUB_MODEL


def address_of(text: str) -> str | None:
    """The address of a server that `text` is, without a trailing slash; ``None`` where it is none.

    >>> address_of("http://127.0.0.1:8000/v1"), address_of("gpt2"), address_of("http://x:99999")
    ('http://127.0.0.1:8000', None, None)
    """
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return text.rstrip("/").removesuffix("/v1") if is_usable else None


def address(text: str) -> str:
    """`address_of` as the type of a command line's option; raises `argparse.ArgumentTypeError`."""
    found = address_of(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address such as http://127.0.0.1:8000")
    return found


def host_and_port(text: str) -> tuple[str, int | None] | None:
    """The name and the port that a Host header or a user spells, in small letters; ``None`` where it is neither.

    >>> host_and_port("GPU-box:9000"), host_and_port("[::1]"), host_and_port("http://x"), host_and_port("x:99999")
    (('gpu-box', 9000), ('[::1]', None), None, None)
    """
    match = _HOST.fullmatch(text.lower())
    if match is None:
        return None
    port = None if match[2] is None else int(match[2])
    return None if port is not None and not 0 < port < 65536 else (match[1], port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service that listens on `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: str | Path) -> str:
    """The token in the file at `path`; raises `OSError` or `UnicodeError`."""
    return Path(path).read_text(encoding="ascii").strip()
