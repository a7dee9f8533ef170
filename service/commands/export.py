"""`python -m service export`: takes requests, batches or figures out of a recording, as CSV or Parquet."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from service.analysis.observed.history import History
from service.analysis.recording.reader import open_recording
from service.analysis.recording.tables import SUBJECTS, Subject, Table, as_file
from service.commands.cli import Parser, command
from service.messages.files import write_whole
from service.messages.pipes import ExitCode


@command
def main(argv: list[str]) -> int:
    """0 when the file is written, also from a damaged recording; 2 if nothing was."""
    options = _parser().parse_args(argv)
    recording = open_recording(options.recording)
    if recording.damage:
        print(recording.damage, file=sys.stderr)
    table = _table(recording.history, SUBJECTS[options.what])
    write_whole(options.out, as_file(table, options.out.suffix))
    print(f"{options.out}: {len(table.rows):,} {options.what}")
    return ExitCode.DONE


def _table(history: History, subject: Subject) -> Table:
    return subject.table(subject.look(history, subject.items(history)), history.wall_time)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "export",
        "Take requests, batches or figures (a line a second) out of a recording.",
        "run.bsr requests.csv",
        "run.bsr batches.parquet --what batches",
    )
    parser.add_argument("recording", type=Path, metavar="RECORDING")
    parser.add_argument("out", type=Path, metavar="OUT", help="a name that ends in .csv or .parquet")
    parser.add_argument("--what", choices=SUBJECTS, default="requests", help="(default: requests)")
    return parser
