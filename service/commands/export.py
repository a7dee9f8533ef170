"""`python -m service export`: takes requests, batches or figures out of a recording, as CSV or Parquet."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from service.analysis.observed.history import History
from service.analysis.recording.format import RecordingError
from service.analysis.recording.reader import open_recording
from service.analysis.recording.tables import SUBJECTS, ExportError, Subject, Table, as_file
from service.load.options import SentenceParser
from service.messages.files import NotWrittenError, write_whole


def main(argv: list[str]) -> int:
    """0 when the file is written, also from a damaged recording; 2 if nothing was."""
    options = _parse(argv)
    try:
        recording = open_recording(options.recording)
        if recording.damage:
            print(recording.damage, file=sys.stderr)
        table = _table(recording.history, SUBJECTS[options.what])
        write_whole(options.out, as_file(table, options.out.suffix))
    except (RecordingError, ExportError, NotWrittenError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.out}: {len(table.rows):,} {options.what}")
    return 0


def _table(history: History, subject: Subject) -> Table:
    return subject.table(subject.look(history, subject.items(history)), history.wall_time)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = SentenceParser(
        prog="python -m service export",
        description="Take requests, batches or figures (a line a second) out of a recording.",
    )
    parser.add_argument("recording", type=Path, metavar="RECORDING")
    parser.add_argument("out", type=Path, metavar="OUT", help="a name that ends in .csv or .parquet")
    parser.add_argument("--what", choices=SUBJECTS, default="requests", help="(default: requests)")
    return parser.parse_args(argv)
