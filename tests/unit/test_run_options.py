"""The command line of `python -m service`."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.commands import cli
from service.commands.cli import UsageError
from service.commands.serve import parse
from service.messages.options import AUTO_MODEL, SMALL_MODEL, RunOptions, ServiceOptions
from service.messages.settings import Settings

TOKEN = "0123456789abcdef"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(TOKEN + "\n")
    return path


def test_that_nothing_given_means_the_defaults() -> None:
    assert parse([]) == RunOptions()


def test_that_only_a_service_leaves_its_model_to_the_device() -> None:
    parser = cli.Parser("batch", "Computes lines of a file, and goes on with them another time.")
    cli.add_service_options(parser, "model")
    assert (parser.parse_args([]).model, parse([]).service.model) == (SMALL_MODEL, AUTO_MODEL)


def test_that_everything_can_be_given() -> None:
    words = (
        "--model gpt2 --device cpu --dtype float32 --replicas 2 --port 9000 --formation early --max-batch-size 8"
        " --batch-wait-timeout-s 0.1 --max-queued-requests 16"
    )
    settings = Settings(formation="early", max_batch_size=8, batch_wait_timeout_s=0.1, max_queued_requests=16)
    service = ServiceOptions(model="gpt2", device="cpu", dtype="float32", replicas=2, settings=settings)
    assert parse(words.split()) == RunOptions(service=service, port=9000)


def test_that_names_are_allowed_by_which_clients_call() -> None:
    assert parse(["--allow-host", "gpu-box", "--allow-host", "localhost:9000"]).allow_hosts == (
        "gpu-box",
        "localhost:9000",
    )
    with pytest.raises(UsageError, match="'http://x' is no name such as gpu-box or localhost:9000"):
        parse(["--allow-host", "http://x"])


def test_that_an_application_has_a_name_and_a_place_of_its_own_on_a_cluster_alone() -> None:
    options = parse(["--address", "auto", "--name", "Chat", "--route-prefix", "/chat"])
    assert (options.name, options.route_prefix) == ("Chat", "/chat")
    with pytest.raises(UsageError, match="are for a cluster"):
        parse(["--name", "Chat"])
    with pytest.raises(UsageError, match="'chat' is no prefix such as /batchscope"):
        parse(["--route-prefix", "chat"])


def test_that_localhost_is_one_address() -> None:
    assert parse(["--host", "localhost"]).host == "127.0.0.1"


@pytest.mark.parametrize("size", ["0", "257", "nan", "inf", "1e400", "8.5", "８", "true", "", "x", "9" * 5000])
def test_that_a_refused_setting_is_told_with_its_rule(size: str) -> None:
    with pytest.raises(UsageError, match=r"--max-batch-size: Must be a whole number from 1 to 256\."):
        parse([f"--max-batch-size={size}"])


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("--replicas 0", "--replicas: Must be a whole number from 1 to 64."),
        ("--replicas 65", "--replicas: Must be a whole number from 1 to 64."),
        ("--max-ongoing-requests 0", "--max-ongoing-requests: Must be a whole number from 3 to 999999."),
        ("--formation never", "--formation: Must be one of late, early, continuous."),
        ("--allow-small-batch perhaps", "--allow-small-batch: Must be on or off (true or false)."),
    ],
)
def test_that_every_refusal_names_the_option_and_its_rule(words: str, rule: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(words.split())
    assert str(refused.value) == rule


@pytest.mark.parametrize("text", ["off", "false", "False", "0"])
def test_that_a_switch_is_spelled_as_everywhere(text: str) -> None:
    assert parse(["--allow-small-batch", text]).service.settings.allow_small_batch is False


@pytest.mark.parametrize("stride", ["5e-324", "1e-310", "0.0009", "-5e-324", "nan", "inf", "x"])
def test_a_period_that_no_clock_can_tell_is_refused(stride: str) -> None:
    with pytest.raises(UsageError, match=r"--stride-s: Must be a number from 0\.001 to 5, or 0\."):
        parse([f"--stride-s={stride}"])


@pytest.mark.parametrize("port", ["-1", "65536", "x", "8000.0", "８０００", "", "1e3"])
def test_that_a_port_is_a_port(port: str) -> None:
    with pytest.raises(UsageError, match="not a whole number from 0 to 65535"):
        parse([f"--port={port}"])


@pytest.mark.parametrize(
    "words",
    [
        ["--nonsense"],
        ["extra"],
        ["--por"],
    ],
)
def test_that_what_is_not_understood_is_said_in_a_sentence(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"^The options are not understood: .*--help\.$"):
        parse(words)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "my-machine"])
def test_that_listening_on_the_network_needs_a_token(host: str, token_file: Path) -> None:
    with pytest.raises(UsageError, match="--token-file"):
        parse(["--host", host])
    assert parse(["--host", host, "--token-file", str(token_file)]).host == host


def test_that_a_token_that_others_can_read_is_refused(token_file: Path) -> None:
    token_file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        parse(["--token-file", str(token_file)])


@pytest.mark.parametrize("token", ["", "short", "two words of great length", "ünicode-of-great-length"])
def test_that_a_weak_token_is_refused(token: str, token_file: Path) -> None:
    token_file.write_text(token)
    with pytest.raises(UsageError, match="token file"):
        parse(["--token-file", str(token_file)])


def test_that_a_token_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        parse(["--token-file", str(tmp_path / "none")])
