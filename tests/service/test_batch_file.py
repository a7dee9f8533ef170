"""A file of prompts through the real model, by the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.service.conftest import COMPLETED_TOKENS, PROMPTS, ROOT

ASKED = PROMPTS[:100]


def test_that_a_hundred_prompts_are_completed_as_alone_and_in_order(
    completions: dict[str, str], tmp_path: Path
) -> None:
    lines = [json.dumps({"prompt": each, "max_tokens": COMPLETED_TOKENS, "ignore_eos": True}) for each in ASKED]
    lines.insert(50, "not a prompt")
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    command = [sys.executable, "-m", "service", "batch", str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]
    ended = subprocess.run([*command, "--dtype", "float32"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [each["line"] for each in results] == [*range(1, 51), *range(52, 102)]
    assert [each["output"] for each in results] == [completions[prompt] for prompt in ASKED]
    assert "100 results in" in ended.stderr
    assert "1 bad lines in" in ended.stderr
