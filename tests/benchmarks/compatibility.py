"""Clients of OpenAI's against the service, with nothing changed: `python -m tests.benchmarks.compatibility DIR`.

Each client has an environment of its own below DIR, which is made where it is not there yet. The table that is printed
says of each way to ask whether an answer came, or in which words it was refused.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from service.engine.model.resolve import DEFAULT_MODEL, resolve
from tests.benchmarks.measure import batchscope
from tests.benchmarks.openai_clients import CLIENTS, Client

LONGEST_S: Final = 120.0
SHOWN: Final = 100  # characters of an answer
REFUSALS: Final = ("This service does not offer", "GET /openapi.json describes")
"""Words of the service's own."""


class ClientError(Exception):
    """Why a client cannot be installed; its last words."""


def environment(folder: Path, client: Client) -> Path:
    """Where its programs run; raises `ClientError`."""
    place = folder / client.name.replace(" ", "-")
    if not place.exists() and client.language == "python":
        venv.create(place, with_pip=True)
        pip = (str(place / "bin" / "python"), "-m", "pip", "--quiet")
        _install(place, *pip, "install", *client.packages)
        if client.unwanted:
            _install(place, *pip, "uninstall", "--yes", *client.unwanted)
    elif not place.exists():
        place.mkdir()
        if client.language == "node":
            _install(place, "npm", "install", "--no-audit", "--no-fund", *client.packages)
    return place


def _install(place: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClientError(_last_line(done.stderr))


def asked(client: Client, place: Path, way: str, variables: dict[str, str]) -> str:
    """What its program says, or why it failed."""
    program = client.program(way)
    command = {
        "python": [str(place / "bin" / "python"), "-c", program],
        "node": ["node", "--input-type=module", "--eval", program],
        "shell": ["sh", "-c", program],
    }[client.language]
    try:
        with TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # for what a program leaves
            done = subprocess.run(
                command,
                cwd=place,
                env=os.environ | variables | {"TMPDIR": scratch},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=LONGEST_S,
            )
    except subprocess.TimeoutExpired:
        return f"**silent** for {LONGEST_S:.0f} s"
    if done.returncode == 0 and done.stdout.strip():
        return f"works: {_in_a_cell(done.stdout)}"
    lines = (done.stdout + done.stderr).splitlines()
    refused = [line for line in lines if any(words in line for words in REFUSALS)]
    if refused:
        return f"refused: {_in_a_cell(refused[-1])}"
    return f"**fails**: {_in_a_cell(_last_line(done.stderr))}"


def _in_a_cell(text: str) -> str:
    """A line of a table's cell, cut where it is long."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= SHOWN else f"{line[:SHOWN]} …"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    print("| client | asks for | what came |\n| --- | --- | --- |", flush=True)
    with batchscope("--port", "0") as ready:
        variables = {
            "OPENAI_BASE_URL": f"{ready.url}/v1",
            "OPENAI_API_KEY": "none",
            "MODEL": ready.model,
            "TOKENIZER": str(resolve(DEFAULT_MODEL).path),
        }
        for client in [each for each in CLIENTS if each.name in options.names]:
            named = f"{client.name} ({', '.join(client.packages)})" if client.packages else client.name
            try:
                place = environment(folder, client)
            except ClientError as error:
                print(f"| {named} | | not installed: {_in_a_cell(str(error))} |", flush=True)
                continue
            for way in client.ways:
                print(f"| {named} | {way} | {asked(client, place, way, variables)} |", flush=True)
    return 0


def _options() -> argparse.Namespace:
    names = [client.name for client in CLIENTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the environments are made, one for each client")
    parser.add_argument(
        "names", nargs="*", default=names, metavar="client", help=f"of {', '.join(names)} (default: all)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
