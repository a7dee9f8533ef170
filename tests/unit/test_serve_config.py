"""Settings to take away as a Ray Serve config file."""

from __future__ import annotations

import msgspec
import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from service.analysis.compare.serve_config import serve_config
from service.app import build
from service.messages.options import ServiceOptions
from service.messages.settings import Settings

OPTIONS = ServiceOptions(
    model='a "model": #1',
    device="cpu",
    replicas=2,
    settings=Settings(formation="early", max_batch_size=8, batch_wait_timeout_s=0.125),
)


def application(text: str) -> dict[str, object]:
    return yaml.safe_load(text)["applications"][0]


def test_that_serve_accepts_the_file() -> None:
    parsed = ServeDeploySchema.model_validate(yaml.safe_load(serve_config(OPTIONS, port=8123)))

    assert parsed.applications[0].import_path == "service.app:build"
    assert parsed.applications[0].deployments[0].num_replicas == 2
    assert parsed.http_options.port == 8123


def test_that_the_builder_understands_the_files_arguments_as_these_options() -> None:
    arguments = application(serve_config(OPTIONS))["args"]

    convertible = msgspec.convert(arguments, ServiceOptions)
    assert convertible == msgspec.structs.replace(OPTIONS, replicas=1)  # replicas are said where Serve looks for them


def test_that_evidence_stands_in_it_as_comments_and_changes_nothing() -> None:
    with_evidence = serve_config(OPTIONS, ["p95 is 0.9 s: best\nof 8."])

    assert with_evidence.startswith("# p95 is 0.9 s: best\n# of 8.\n")
    assert yaml.safe_load(with_evidence) == yaml.safe_load(serve_config(OPTIONS))


def test_that_the_application_is_built_from_what_a_command_line_gives() -> None:
    assert build({"device": "cpu", "replicas": "2"}).__class__.__name__ == "Application"


@pytest.mark.parametrize("arguments", [{"replica": 2}, {"settings": {"max_batch_size": 0}}, {"replicas": "two"}])
def test_that_an_argument_that_is_wrong_is_refused_by_its_name(arguments: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match=next(iter(arguments))):
        build(arguments)
