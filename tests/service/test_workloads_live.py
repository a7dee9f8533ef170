"""Functions other than text on the real service: the tutorial's adder, and one of the user's own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests

from service.commands import load
from service.messages.life import Failed, StageProgress
from tests.service import HANG_S
from tests.service.conftest import Service, ServiceProcess, error_of, served

README = Path(__file__).parents[2] / "service" / "README.md"
QUERIES = 9
BATCHSCOPE = ("-P", "-c", "import sys; from gui.__main__ import main; sys.exit(main())", "serve")


@pytest.fixture(scope="module")
def adder(adder_service: Service) -> Service:
    adder_service.change(max_batch_size=4)
    return adder_service


def ask(url: str, number: int) -> str:
    return requests.get(f"{url}/?number={number}", timeout=HANG_S).text


def test_that_nine_queries_at_once_are_added_in_three_batches(adder: Service) -> None:
    with adder.telemetry() as telemetry, ThreadPoolExecutor(QUERIES) as pool:
        answers = list(pool.map(lambda number: ask(adder.url, number), range(QUERIES)))
        telemetry.read_until_done(QUERIES)
    assert answers == [str(number + 1) for number in range(QUERIES)]
    batches = (batch for frame in telemetry.frames for batch in frame.batches)
    sizes = {batch.id: batch.size for batch in batches if batch.formed_s > telemetry.opened_s}
    assert sum(sizes.values()) == QUERIES
    assert len(sizes) <= 3
    assert max(sizes.values()) == 4


def test_that_each_input_of_a_list_is_a_request_of_its_own(adder: Service) -> None:
    answer = requests.post(adder.url, json={"inputs": [1, 2, 3, 4, 5]}, timeout=HANG_S)
    assert (answer.status_code, answer.json()) == (200, {"outputs": [2, 3, 4, 5, 6]})


def test_that_lines_are_asked_for_as_completions_are(adder: Service) -> None:
    answer = adder.complete(["3", "4"]).json()
    assert [choice["text"] for choice in answer["choices"]] == ["4", "5"]
    assert answer["usage"] == {"prompt_tokens": 0, "completion_tokens": 2, "total_tokens": 2}


def test_that_a_load_without_prompts_sends_its_examples(adder: Service, capsys: pytest.CaptureFixture[str]) -> None:
    assert load.main(["--url", adder.url, "--pattern", "burst", "--count", "12", "--duration", "0.1"]) == 0
    told = capsys.readouterr().out
    assert "12 sent, 12 answered in" in told
    assert "numbers/s" in told


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/?number=three", None, "'three' cannot be read; write a line such as '0'."),
        ("/?text=3", None, "Ask with /?number=…, such as '0'."),
        ("/", {"inputs": [1, 2.5]}, "The adder takes a whole number such as 3, not '2.5'."),
        ("/", {"numbers": [1]}, 'The body must be {"inputs": […]} with 1 to 256 of them.'),
    ],
)
def test_that_what_is_no_number_is_refused_in_words(adder: Service, path: str, body: Any, sentence: str) -> None:
    method = "GET" if body is None else "POST"
    answer = requests.request(method, adder.url + path, json=body, timeout=HANG_S)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, sentence)


@pytest.mark.parametrize(("method", "path"), [("POST", "/"), ("PUT", "/batching"), ("PUT", "/deployment")])
def test_that_json_of_great_depth_is_refused_in_words(adder: Service, method: str, path: str) -> None:
    answer = requests.request(method, adder.url + path, data=b'{"inputs":' + b"[" * 100_000, timeout=HANG_S)
    assert (answer.status_code, error_of(answer)["message"]) == (400, "The body is nested too deeply.")


@pytest.mark.parametrize(("path", "setting"), [("/batching", "stride_s"), ("/deployment", "replicas")])
def test_that_a_nested_setting_is_refused_in_words(adder: Service, path: str, setting: str) -> None:
    nested = b"[" * 700 + b"]" * 700
    answer = requests.put(adder.url + path, data=b'{"%b": %b}' % (setting.encode(), nested), timeout=HANG_S)
    assert (answer.status_code, error_of(answer)["param"]) == (422, setting)


def test_that_a_length_of_thousands_of_digits_is_refused_in_words(adder: Service) -> None:
    url = urllib.parse.urlsplit(adder.url)
    connection = http.client.HTTPConnection(url.netloc, timeout=HANG_S)
    with contextlib.closing(connection):
        connection.request("POST", "/", headers={"Content-Length": "0" * 5000 + "1000001"})
        answer = connection.getresponse()
        assert (answer.status, json.load(answer)["error"]["code"]) == (413, "body_too_large")


def test_that_more_inputs_than_the_queue_can_ever_hold_are_not_asked_for_again(adder: Service) -> None:
    usual = requests.get(f"{adder.url}/batching", timeout=HANG_S).json()["settings"]
    adder.change(max_queued_requests=4)
    answers = [
        requests.post(adder.url, json={"inputs": [1, 2, 3, 4, 5]}, timeout=HANG_S),
        adder.complete(list("12345")),
    ]
    adder.change(**usual)
    for answer in answers:
        assert answer.status_code == 400
        assert "Retry-After" not in answer.headers
        assert "Send at most 4 in one request" in error_of(answer)["message"]


def test_that_a_function_of_ones_own_is_served_as_the_readme_has_it(tmp_path: Path) -> None:
    code = re.search(r"<!-- the workload of one's own -->\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "squares.py").write_text(code[1])
    for name in ("service", "gui"):  # packages of the user's that bear the names of ours
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('raise ImportError("a foreign package")')
    for service in served("--workload", "squares:Squares", folder=tmp_path, program=BATCHSCOPE):
        answer = requests.post(service.url, json={"inputs": [3, -1.5]}, timeout=HANG_S)
        assert answer.json() == {"outputs": [9, 2.25]}
        assert (service.ready.workload.name, service.ready.workload.examples) == ("squares", ("3", "-1.5"))


STUCK = """
from threading import Event

from service.workloads.workload import Workload


class Stuck(Workload):
    name, description, examples = "stuck", "Never returns where an input is 0.", ("1",)
    longest_call_s = 1.0

    def __call__(self, inputs):
        if 0 in inputs:
            Event().wait()
        return inputs
"""


@pytest.mark.promise("T24")
def test_that_a_function_that_never_returns_costs_its_replica_and_no_request_an_answer(tmp_path: Path) -> None:
    """T24. Each request that the replica held gets an error that says why, and another replica takes its place."""
    (tmp_path / "stuck.py").write_text(STUCK)
    arguments = ("--workload", "stuck:Stuck", "--max-batch-size", "2")
    for service in served(*arguments, folder=tmp_path, program=BATCHSCOPE):
        with ThreadPoolExecutor(6) as pool:
            refused = list(pool.map(call, [service] * 6, [0] * 6))
        while (answer := call(service, 7)).status_code != 200:  # Serve asks for a replica's health every two seconds
            refused.append(answer)
        assert answer.json() == {"outputs": [7]}
        assert {each.status_code for each in refused} == {500}
        for each in refused:
            assert error_of(each)["message"].startswith("The engine has made no step for 1.")


STUCK_CHECK = """
from threading import Event

from service.workloads.workload import Workload


class Stuck(Workload):
    name, description, examples = "stuck", "Never returns from the check of a 0.", ("1",)

    def check(self, value):
        if value == 0:
            Event().wait()
        return value

    def __call__(self, inputs):
        return inputs
"""


@pytest.mark.promise("T24")
def test_that_a_check_that_never_returns_costs_its_replica_and_no_request_an_answer(tmp_path: Path) -> None:
    """T24. It holds the event loop of the replica, in which its health check is answered and requests are, too."""
    (tmp_path / "stuck.py").write_text(STUCK_CHECK)
    for service in served("--workload", "stuck:Stuck", folder=tmp_path, program=BATCHSCOPE):
        assert call(service, 7).json() == {"outputs": [7]}
        lost = call(service, 0)
        assert (lost.status_code, error_of(lost)["code"]) == (500, "replica_lost")
        while (answer := call(service, 7)).status_code != 200:  # until another replica has started
            assert error_of(answer)["code"] == "replica_lost"
        assert answer.json() == {"outputs": [7]}


def call(service: Service, number: int) -> requests.Response:
    return requests.post(service.url, json={"inputs": [number]}, timeout=HANG_S)


POISONED = """
import asyncio

from service.workloads.workload import Workload

RAISED = (ValueError, KeyError, MemoryError, RecursionError, SystemExit, asyncio.CancelledError, StopIteration)
ENDLESS = []
ENDLESS.append(ENDLESS)
BAD_OUTPUTS = dict(enumerate((float("nan"), object(), ENDLESS, b"bytes"), len(RAISED)))


class Poisoned(Workload):
    name, description, examples = "poisoned", "Fails in thirteen ways where an input is below 0.", ("1",)

    def __call__(self, inputs):
        kinds = [-each % 13 for each in inputs if each < 0]
        for kind in kinds:
            if kind < len(RAISED):
                raise RAISED[kind]("poison")
        outputs = [BAD_OUTPUTS.get(-each % 13, 0) if each < 0 else 3 * each for each in inputs]
        if 11 in kinds:
            return outputs + [0]
        return 0 if 12 in kinds else outputs
"""
GROUP = 8
GROUPS, MANY_GROUPS = 260, 1_001  # of eight inputs one is poison, of each kind as often
IN_FLIGHT = 64
WHY = re.compile(
    r"The workload poisoned failed on this input: (\w+: .*poison.*|it returned .+)"
    r"|The result cannot be written as JSON: .+"
)


@pytest.mark.promise("T04")
async def test_that_a_poisonous_input_fails_alone_and_says_so(tmp_path: Path, is_long: bool) -> None:
    """T04. Of thirteen kinds, each raised or returned in a batch of eight, whose other inputs have their outputs."""
    (tmp_path / "poisoned.py").write_text(POISONED)
    count = GROUP * (MANY_GROUPS if is_long else GROUPS)
    inputs = [-number // GROUP if number % GROUP == 3 else number for number in range(count)]
    left = iter(inputs)
    answers: dict[int, tuple[int, Any]] = {}

    async def client(session: aiohttp.ClientSession, url: str) -> None:
        for each in left:
            async with session.post(url, json={"inputs": [each]}) as response:
                answers[each] = response.status, await response.json()

    arguments = ("--workload", "poisoned:Poisoned", "--max-batch-size", str(GROUP))
    for service in served(*arguments, folder=tmp_path, program=BATCHSCOPE):
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(HANG_S)) as session:
            await asyncio.gather(*(client(session, service.url) for _ in range(IN_FLIGHT)))
    good, poison = [each for each in inputs if each >= 0], [each for each in inputs if each < 0]
    assert [answers[each] for each in good] == [(200, {"outputs": [3 * each]}) for each in good]
    for each in poison:
        status, answer = answers[each]
        assert status == 500
        assert WHY.fullmatch(answer["error"]["message"]), answer


def test_that_a_workload_that_is_not_there_is_refused_before_ray_starts(tmp_path: Path) -> None:
    process = ServiceProcess("--workload", "squares:Squares", folder=tmp_path)
    *earlier, failed = process.states()
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("There is no module 'squares' for the workload; start in its folder")
    assert {state.name for state in earlier if isinstance(state, StageProgress)} == {"check"}
    process.stop()
