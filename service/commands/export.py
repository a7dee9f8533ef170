"""`python -m service export`: takes tables or a trace out of a recording, or makes it or a lesson one page to play."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from service.analysis.lesson.file import SUFFIX as LESSON_SUFFIX
from service.analysis.lesson.file import path_of, read
from service.analysis.lesson.page import lesson_page
from service.analysis.observed.history import History
from service.analysis.recording.page import SUFFIX as PAGE_SUFFIX
from service.analysis.recording.page import player_page
from service.analysis.recording.reader import Entries, open_recording
from service.analysis.recording.tables import SUBJECTS, Subject, Table, as_file
from service.analysis.recording.trace import SUFFIX as TRACE_SUFFIX
from service.analysis.recording.trace import trace_file
from service.commands.cli import Parser, command
from service.messages.files import write_pieces, write_whole
from service.messages.pipes import ExitCode
from service.messages.text import UserError

TRACE: Final = "trace"


@command
def main(argv: list[str]) -> int:
    """0 when the file is written, also from a damaged recording; 2 if nothing was."""
    options = _parser().parse_args(argv)
    source = path_of(options.source)
    lesson = read(source) if source.suffix == LESSON_SUFFIX else None
    if lesson is not None and not (lesson.recording and options.out.suffix == PAGE_SUFFIX):
        raise UserError(f"A lesson that names its recording is exported as a page: a name that ends in {PAGE_SUFFIX}.")
    path = source if lesson is None else source.parent / lesson.recording
    if options.what == TRACE:
        return _export_trace(path, options.out)
    if options.out.suffix == TRACE_SUFFIX:
        raise UserError(f"A file whose name ends in {TRACE_SUFFIX} is a trace: add --what {TRACE}.")
    recording = open_recording(path)
    if recording.damage:
        print(recording.damage, file=sys.stderr)
    if options.out.suffix == PAGE_SUFFIX:
        page = player_page(recording, path.name) if lesson is None else lesson_page(lesson, recording)
        write_whole(options.out, page.encode())
        print(f"{options.out}: {len(page.encode()) / 1e3:.0f} kB, to be opened in a browser")
        return ExitCode.DONE
    table = _table(recording.history, SUBJECTS[options.what])
    write_whole(options.out, as_file(table, options.out.suffix))
    print(f"{options.out}: {len(table.rows):,} {options.what}")
    return ExitCode.DONE


def _export_trace(source: Path, out: Path) -> int:
    """Read and written piece by piece, however long the recording is."""
    if out.suffix != TRACE_SUFFIX:
        raise UserError(f"The name of a trace's file must end in {TRACE_SUFFIX}, not in {out.suffix or 'nothing'}.")
    entries = Entries(source)
    size = write_pieces(out, trace_file(entries.header, entries))
    if entries.damage:
        print(entries.damage, file=sys.stderr)
    print(f"{out}: {size / 1e3:,.0f} kB, to be opened at https://ui.perfetto.dev")
    return ExitCode.DONE


def _table(history: History, subject: Subject) -> Table:
    return subject.table(subject.look(history, subject.items(history)), history.wall_time)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "export",
        "Take requests, batches or figures (a line a second) out of a recording, or a trace for Perfetto; or make it, "
        "or a lesson with its recording, one HTML file with a player.",
        "run.bsr requests.csv",
        "run.bsr batches.parquet --what batches",
        "run.bsr trace.json --what trace",
        "run.bsr run.html",
    )
    parser.add_argument("source", metavar="RECORDING", help="or, for a page, a LESSON.md or the name of one of ours")
    parser.add_argument("out", type=Path, metavar="OUT", help="a name that ends in .csv, .parquet, .json or .html")
    parser.add_argument("--what", choices=(*SUBJECTS, TRACE), default="requests", help="(default: requests)")
    return parser
