"""Settings to take away as a Ray Serve config file."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from service.analysis.compare.serve_config import Place, merged, serve_config
from service.app import build
from service.messages.options import ServiceOptions
from service.messages.settings import Settings
from service.messages.text import UserError
from service.ray_serve.doors import rules_from_environment

OPTIONS = ServiceOptions(
    model='a "model": #1',
    device="cpu",
    replicas=2,
    settings=Settings(formation="early", max_batch_size=8, batch_wait_timeout_s=0.125),
)


def application(text: str) -> dict[str, Any]:
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


PLACE = Place("Chat", "/chat", ("gpu-box", "localhost:9000"))
OTHERS = """
http_options: {port: 9000}
applications:
- {name: Other, route_prefix: /, import_path: "other:app"}
- {name: Chat, route_prefix: /old, import_path: "old:app"}
"""


def test_that_it_says_where_the_application_stands_and_who_may_call_it() -> None:
    chosen = application(serve_config(OPTIONS, place=PLACE))

    assert (chosen["name"], chosen["route_prefix"]) == ("Chat", "/chat")
    variables = chosen["runtime_env"]["env_vars"]
    assert rules_from_environment(variables).allowed == {("gpu-box", None), ("localhost", 9000)}


def test_that_the_other_applications_of_a_file_are_kept_and_its_own_is_replaced() -> None:
    whole = yaml.safe_load(merged(serve_config(OPTIONS, place=PLACE), OTHERS))

    names = {each["name"]: each["import_path"] for each in whole["applications"]}
    assert names == {"Other": "other:app", "Chat": "service.app:build"}
    assert whole["http_options"] == {"port": 9000}
    ServeDeploySchema.model_validate(whole)


def test_that_a_place_that_is_taken_and_a_file_that_is_none_are_refused() -> None:
    with pytest.raises(UserError, match=r"The application Other is at / already\."):
        merged(serve_config(OPTIONS), OTHERS)
    for text in ("", "[", "applications: 3", "a: 1"):
        with pytest.raises(UserError, match="is no Serve config file"):
            merged(serve_config(OPTIONS), text)


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
