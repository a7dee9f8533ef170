"""The service's processes with real Ray: how they start, what they let in, and that no end leaves anything behind."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import psutil
import pytest

from service.engine.model.resolve import ModelFolder
from service.launch import checks
from service.launch.reaper import Lineage
from service.messages.life import Failed, Ready, ServiceState, Stage, StageProgress, Starting, Stopped, Stopping
from service.ray_serve.doors import INSTANCE_HEADER, MAX_BODY_BYTES
from tests.processes import is_exiting
from tests.service import HANG_S
from tests.service.conftest import STATES, ServiceProcess
from tests.service.stand_in import GATE, GRADUAL_DTYPE, PROGRESS, REFUSED_DTYPE

STAND_IN = ("--app", "tests.service.stand_in:build", "--port", "0")  # the first free port may be another test's next
STAGES = ["check", "ray", "serve", "load", "answer"]

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="signals are POSIX"),
    pytest.mark.usefixtures("model_folder"),  # so that no start has to fetch it
]


class Run:
    """A service that has been started, and everything that belongs to it."""

    def __init__(self, *arguments: str, terminal: Terminal | None = None) -> None:
        if terminal is None:
            self.service = ServiceProcess(*STAND_IN, *arguments)
        else:
            program = ("-c", ON_A_TERMINAL)
            self.service = ServiceProcess(*STAND_IN, *arguments, program=program, terminal=terminal.theirs)
        self.states: list[ServiceState] = []

    @property
    def pid(self) -> int:
        return self.service.process.pid

    def read_until(self, condition: Callable[[ServiceState], bool]) -> ServiceState:
        """The first state, from the next on, that meets the condition."""
        watchdog = threading.Timer(HANG_S, self.service.process.kill)
        watchdog.start()
        try:
            for state in self.service.states():
                self.states.append(state)
                if condition(state):
                    return state
        finally:
            watchdog.cancel()
        raise AssertionError(f"ended with {self.states[-1:]}; its log:\n{self.service.log()}")

    def read_to_end(self) -> list[ServiceState]:
        """The states that are still to come."""
        return list(self.service.states())

    def until_ready(self) -> Ready:
        ready = self.read_until(lambda state: isinstance(state, Ready))
        assert isinstance(ready, Ready)
        return ready

    def family(self) -> Family:
        return Family(psutil.Process(self.pid), next(s.instance for s in self.states if isinstance(s, Starting)))


class Family:
    """A running service and its descendants, found by parentage: another way than that of the service itself."""

    def __init__(self, supervisor: psutil.Process, instance: str) -> None:
        self.supervisor = supervisor
        self.descendants = supervisor.children(recursive=True)
        (self.driver,) = (p for p in supervisor.children() if "service.launch.driver" in p.cmdline())
        (self.reaper,) = (p for p in self.descendants if "service.launch.reaper" in p.cmdline())
        self.lineage = Lineage(instance, self.driver.pid)
        self.directory = Path(next(p for p in self._plan_words() if p.startswith("/tmp/batchscope-")))

    def named(self, name: str) -> psutil.Process:
        return next(process for process in self.descendants if process.name() == name)

    def remaining(self) -> list[psutil.Process]:
        """What is left once the two have ended that see to the end of the others."""
        deadline_s = time.monotonic() + HANG_S
        while (is_alive(self.supervisor) or is_alive(self.reaper)) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        alive = [process for process in self.descendants if is_alive(process)]
        return alive + [process for process in self.lineage.members() if not is_exiting(process)]

    def assert_gone(self, port: int) -> None:
        assert self.remaining() == []
        assert checks.is_free("127.0.0.1", port)
        assert not self.directory.exists()

    def _plan_words(self) -> list[str]:
        return self.driver.cmdline()[-1].split('"')


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def port_of(ready: Ready) -> int:
    port = urlsplit(ready.url).port
    assert port is not None
    return port


ON_A_TERMINAL = """
import os, sys, termios
terminal = os.open(os.ttyname(0), os.O_RDWR)  # a leader of a session takes the first that it opens as its own
mode = termios.tcgetattr(terminal)
mode[3] |= termios.TOSTOP
termios.tcsetattr(terminal, termios.TCSANOW, mode)
os.execv(sys.executable, [sys.executable, "-m", "service", *sys.argv[1:]])
"""
"""Starts the service on a terminal that stops programs in the background that write on it."""


class Terminal:
    """A pseudo terminal whose screen is read, so that a program can write on it; `theirs` is the program's end."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.openpty()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def press_ctrl_c(self) -> None:
        os.write(self._ours, b"\x03")

    def close(self) -> None:
        os.close(self.theirs)
        self._reader.join()
        os.close(self._ours)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # no program has it open any more
            while os.read(self._ours, 65536):
                pass


@contextlib.contextmanager
def running(*arguments: str, terminal: Terminal | None = None) -> Iterator[Run]:
    run = Run(*arguments, terminal=terminal)
    try:
        yield run
    finally:
        run.service.stop()


# -- one service, looked at from all sides ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with contextlib.closing(Terminal()) as terminal:
        yield terminal


@pytest.fixture(scope="module")
def run(model_folder: ModelFolder, tmp_path_factory: pytest.TempPathFactory, terminal: Terminal) -> Iterator[Run]:
    """Its replica tells how far it is with loading, and goes on when it is seen that this was heard."""
    gate = tmp_path_factory.mktemp("gate") / "gate"
    os.mkfifo(gate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(GATE, str(gate))
        with running("--dtype", GRADUAL_DTYPE, terminal=terminal) as run:
            run.read_until(lambda state: isinstance(state, StageProgress) and state.unit == PROGRESS.unit)
            gate.write_bytes(b"go on")
            run.until_ready()
            yield run


@pytest.fixture(scope="module")
def ready(run: Run) -> Ready:
    ready = run.states[-1]
    assert isinstance(ready, Ready)
    return ready


def exchange(
    ready: Ready, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(ready), timeout=HANG_S)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        response.read()
        return response


def test_that_a_start_is_told_stage_by_stage(run: Run, ready: Ready) -> None:
    starting = run.states[0]
    assert isinstance(starting, Starting)
    assert [stage.name for stage in starting.stages] == STAGES
    assert all(isinstance(stage, Stage) and stage.title for stage in starting.stages)
    finished = [state.name for state in run.states if isinstance(state, StageProgress) and state.finished]
    assert finished == STAGES
    assert (ready.model, ready.device, ready.context_length, ready.replicas) == ("stand-in", "cpu", 128, 1)
    assert ready.instance == starting.instance


def test_that_a_start_tells_how_far_a_replica_is_with_its_model_and_then_how_many_run(run: Run, ready: Ready) -> None:
    told = [
        (state.unit, state.done, state.total)
        for state in run.states
        if isinstance(state, StageProgress) and state.name == "load"
    ]
    assert told[-1] == ("replicas", 1, 1)
    assert (PROGRESS.unit, PROGRESS.done, PROGRESS.total) in told


ROUTES = ["/healthz", "/v1/models", "/nowhere", "/-/healthz", "/-/routes", "/docs"]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.promise("T27")
def test_that_the_doors_stand_before_every_route(path: str, ready: Ready) -> None:
    good = exchange(ready, "GET", path)
    strange_host = exchange(ready, "GET", path, {"Host": f"evil.example:{port_of(ready)}"})
    from_page = exchange(ready, "GET", path, {"Origin": "http://evil.example"})
    assert good.status != 403
    assert (strange_host.status, from_page.status) == (403, 403)
    assert {r.getheader(INSTANCE_HEADER) for r in (good, strange_host, from_page)} == {ready.instance}


@pytest.mark.promise("T19")
def test_that_no_stranger_shares_the_port_and_each_answer_says_which_service_gave_it(ready: Ready) -> None:
    with socket.socket() as stranger:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            stranger.setsockopt(socket.SOL_SOCKET, option, 1)
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port_of(ready)))
        for _ in range(1_000):
            assert exchange(ready, "GET", "/healthz").headers.get_all(INSTANCE_HEADER) == [ready.instance]


@pytest.mark.promise("T14")
def test_that_bodies_reach_the_application_up_to_the_limit(ready: Ready) -> None:
    assert exchange(ready, "POST", "/v1/completions", body=b"x" * MAX_BODY_BYTES).status == 200
    assert exchange(ready, "POST", "/v1/completions", body=b"x" * (MAX_BODY_BYTES + 1)).status == 413


@pytest.mark.promise("T14")
def test_that_an_endless_body_is_refused_while_it_is_sent(ready: Ready) -> None:
    with socket.create_connection(("127.0.0.1", port_of(ready)), timeout=HANG_S) as connection:
        host = f"127.0.0.1:{port_of(ready)}"
        connection.sendall(f"POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        with contextlib.suppress(ConnectionError, TimeoutError):
            for _ in range(10_000):
                connection.sendall(chunk)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("name", ["X-Request-Id", "X-Session-Id", "Serve-Multiplexed-Model-Id", "Accept", "X-Anything"])
@pytest.mark.promise("T13")
def test_that_headers_that_are_no_text_do_no_harm(name: str, ready: Ready) -> None:
    with socket.create_connection(("127.0.0.1", port_of(ready)), timeout=HANG_S) as connection:
        request = (
            f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port_of(ready)}\r\n{name}: ".encode() + b"\xff\xfe\r\n\r\n"
        )
        connection.sendall(request)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_that_nothing_of_the_service_leaves_the_session_or_the_priority_of_its_starter(run: Run) -> None:
    """Linux shares the processor out by sessions first; what gives way to the window does so within the session."""
    family = [psutil.Process(run.pid), *run.family().descendants]
    assert {os.getsid(process.pid) for process in family} == {run.pid}
    assert {os.getpriority(os.PRIO_PROCESS, process.pid) for process in family} == {os.getpriority(os.PRIO_PROCESS, 0)}
    autogroup = Path("/proc/self/autogroup")
    if autogroup.exists():
        shares = {Path(f"/proc/{process.pid}/autogroup").read_text() for process in family}
        assert len(shares) == 1


def test_that_ctrl_c_in_the_terminal_reaches_the_supervisor_alone(run: Run) -> None:
    family = run.family()
    assert os.getpgid(family.driver.pid) == family.driver.pid
    assert os.getpgid(run.pid) not in {os.getpgid(process.pid) for process in family.descendants}


def listening(run: Run) -> list[tuple[str, int]]:
    """The addresses and ports of all sockets on which the service listens."""
    return [
        (connection.laddr.ip, connection.laddr.port)
        for process in [psutil.Process(run.pid), *run.family().descendants]
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


@pytest.mark.promise("T27")
def test_that_everything_listens_on_loopback_alone(run: Run) -> None:
    sockets = listening(run)
    assert len(sockets) >= 5
    assert {address for address, _ in sockets} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


REMOTE_CALLS = (
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.JobInfoGcsService/GetAllJobInfo",
    "/ray.rpc.ReporterService/GetTraceback",
    "/ray.serve.ASGIService/HandleRequest",
)
"""One of each kind of server among Ray's; the last runs what it is sent."""


def called(port: int, method: str) -> grpc.StatusCode:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(method)(b"", timeout=HANG_S)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


def got(port: int) -> int | None:
    """The status with which it answers a GET of HTTP/1.1; ``None`` where it speaks something else."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/")
            return connection.getresponse().status
        except (http.client.HTTPException, OSError):
            return None


@pytest.mark.promise("T27")
def test_that_no_port_of_ray_s_does_anything_without_its_token(run: Run, ready: Ready) -> None:
    ports = {port for _, port in listening(run)} - {port_of(ready)}
    answers = {port: got(port) for port in ports}
    by_http = {port: status for port, status in answers.items() if status is not None}
    assert set(by_http.values()) == {401}
    codes = {port: {called(port, method) for method in REMOTE_CALLS} for port in ports - by_http.keys()}
    refusals = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED}
    assert all(said <= refusals for said in codes.values()), codes
    assert sum(grpc.StatusCode.UNAUTHENTICATED in said for said in codes.values()) >= 5


@pytest.mark.promise("T27")
def test_that_nobody_else_can_read_our_files(run: Run) -> None:
    private = [run.family().directory, Path("~/.ray/auth_token").expanduser()]
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in private] == [0, 0]


@pytest.mark.promise("T19")
def test_that_a_named_port_in_use_is_refused_before_ray_starts(ready: Ready) -> None:
    with running("--port", str(port_of(ready))) as other:
        failed = other.read_until(lambda state: isinstance(state, Failed))
        assert isinstance(failed, Failed)
        assert f"Port {port_of(ready)} is in use by another program." in failed.reason
        assert {state.name for state in other.states if isinstance(state, StageProgress)} == {"check"}
        assert other.service.process.wait(HANG_S) == 1


def test_that_ctrl_c_ends_it_in_order(run: Run, ready: Ready, terminal: Terminal) -> None:
    family = run.family()  # the last test of this service
    terminal.press_ctrl_c()
    assert run.read_to_end() == [Stopping(), Stopped()]
    family.assert_gone(port_of(ready))
    assert run.service.process.wait(HANG_S) == 0


# -- starts that come to nothing --------------------------------------------------------------------------------------


def test_that_a_replica_that_cannot_load_is_told_in_its_own_words() -> None:
    with running("--dtype", REFUSED_DTYPE) as run:
        failed = run.read_until(lambda state: isinstance(state, Failed))
        assert failed == Failed(reason="This dtype is refused: choose another one.", exit_code=1)
        assert run.read_to_end() == []
        assert run.service.process.wait(HANG_S) == 1


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_that_a_gpu_that_is_not_there_is_refused_before_ray_starts(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with running("--device", device) as run:
        failed = run.read_until(lambda state: isinstance(state, Failed))
        reason = f"This machine has no CUDA GPU that torch can use, so not {device}; choose auto or cpu."
        assert failed == Failed(reason=reason, exit_code=1)
        assert {state.name for state in run.states if isinstance(state, StageProgress)} == {"check"}
        assert run.read_to_end() == []
        assert run.service.process.wait(HANG_S) == 1


def test_that_an_option_that_a_stub_lacks_is_refused_before_ray_starts() -> None:
    with running("--model", "stub?steps=1") as run:
        failed = run.read_until(lambda state: isinstance(state, Failed))
        assert isinstance(failed, Failed)
        assert "unknown field `steps`" in failed.reason
        assert "there are step_ms, row_ms" in failed.reason
        assert {state.name for state in run.states if isinstance(state, StageProgress)} == {"check"}
        assert run.service.process.wait(HANG_S) == 1


@pytest.mark.parametrize("stage", ["ray", "load"])
def test_that_a_start_can_be_broken_off(stage: str) -> None:
    with running() as run:
        run.read_until(lambda state: isinstance(state, StageProgress) and state.name == stage)
        family = run.family()
        run.service.process.send_signal(signal.SIGINT)
        ending = [state for state in run.read_to_end() if not isinstance(state, StageProgress)]
        if stage == "load" and isinstance(ending[0], Ready):
            del ending[0]  # the stand-in model loads in a moment: it was ready before it heard of the signal
        assert ending == [Stopping(), Stopped()]
        assert run.service.process.wait(HANG_S) == 0
        assert family.remaining() == []


def test_that_it_heeds_a_signal_in_whatever_moment_it_comes() -> None:
    for _ in range(10):  # by plain `signal.signal` one in five was not heeded
        with running() as run:
            run.read_until(lambda state: isinstance(state, StageProgress) and state.finished)
            run.service.process.terminate()
            assert run.service.process.wait(HANG_S) == 0


SLOW_AGENTS = """
import sys, time
if any(name in word for word in sys.orig_argv for name in ("dashboard/agent.py", "agent/main.py")):
    time.sleep(20.0)  # Ray gives them 15
"""


@pytest.mark.promise("T07")
def test_that_agents_of_ray_that_are_slow_do_not_keep_it_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_AGENTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with running() as run:
        run.until_ready()
        assert "started once more" not in run.service.log()


ALONE = """
import fcntl, socket, struct, sys
from tests.service.conftest import served

SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
with socket.socket() as anything:
    fcntl.ioctl(anything, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
    try:
        outward.connect(("192.0.2.1", 9))
    except OSError as error:
        print(error)
for service in served("--model", sys.argv[1], "--dtype", "float32"):
    print(service.complete("Once upon a time").json()["choices"][0]["text"])
"""


@pytest.mark.promise("T20")
def test_that_a_model_of_this_machine_needs_no_network(model_folder: ModelFolder) -> None:
    """T20: in a namespace whose one interface is loopback."""
    alone = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this system lets nobody have a network namespace")
    program = [*alone, sys.executable, "-c", ALONE, str(model_folder.path)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert ended.returncode == 0, ended.stderr
    unreachable, answer = ended.stdout.splitlines()[:2]
    assert unreachable == "[Errno 101] Network is unreachable"
    assert answer


# -- violent ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", ["supervisor", "supervisor and driver"])
@pytest.mark.promise("T08")
def test_that_a_killed_service_leaves_nothing(killed: str) -> None:
    with running() as run:
        port = port_of(run.until_ready())
        family = run.family()
        run.service.process.kill()
        if killed == "supervisor and driver":
            family.driver.kill()
        family.assert_gone(port)


@pytest.mark.long
@pytest.mark.promise("T08")
def test_that_each_of_twenty_deaths_leaves_room_for_the_next_start(
    record_property: Callable[[str, object], None],
) -> None:
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGINT) * 5:
        with running() as run:
            port = port_of(run.until_ready())
            family = run.family()
            run.service.process.send_signal(number)
            family.assert_gone(port)
    record_property("T08", "20 services ended by four signals: nothing of any was left, the next one started")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("driver", "The service's main process ended unexpectedly (signal SIGKILL)."),
        ("raylet", "Ray's node manager (raylet) ended unexpectedly"),
        ("gcs_server", "Ray's control store (GCS) ended unexpectedly"),
    ],
)
@pytest.mark.promise("T07")
def test_that_the_death_of_a_vital_process_is_seen_and_told(name: str, reason: str) -> None:
    with running() as run:
        port = port_of(run.until_ready())
        family = run.family()
        (family.driver if name == "driver" else family.named(name)).kill()
        failed = run.read_until(lambda state: isinstance(state, Failed))
        assert isinstance(failed, Failed)
        assert failed.reason.startswith(reason)
        assert run.service.process.wait(HANG_S) == 1
        family.assert_gone(port)


STARTS_A_SERVICE = "import subprocess, sys; subprocess.Popen([sys.executable, '-m', 'service', *sys.argv[1:]]).wait()"


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A program that starts a service."""
    command = [sys.executable, "-c", STARTS_A_SERVICE, *STAND_IN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.mark.promise("T09")
def test_that_the_service_ends_with_its_parent(parent: subprocess.Popen[bytes]) -> None:
    assert parent.stdout is not None
    states = map(STATES.decode, parent.stdout)
    starting = next(states)
    assert isinstance(starting, Starting)
    ready = next(state for state in states if isinstance(state, Ready))
    (supervisor,) = psutil.Process(parent.pid).children()
    family = Family(supervisor, starting.instance)
    family.descendants.append(supervisor)
    parent.kill()
    family.assert_gone(port_of(ready))
