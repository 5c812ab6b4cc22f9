"""Single values of GPUs and of their compute processes, for scripts: what nvidia-smi's --query-gpu and
--query-compute-apps print, from the driver directly."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from gputop.commands.shared.output import is_terminal, print_out
from gputop.commands.shared.refusal import USAGE, Refusal

if TYPE_CHECKING:
    from gputop.sources.nvml.query import Query
    from gputop.sources.query_fields import Field

NO_SUCH_GPU: Final = 6  # NVML_ERROR_NOT_FOUND, as nvidia-smi has it
OTHER: Final = 255
LOOP: Final = 5.0  # seconds of -l alone

#: nvidia-smi's exit status by that of a SourceError: no library, not loaded, mismatch, no permission, no GPU.
_EXIT_STATUS: Final = {3: 12, 4: 9, 5: 18, 6: 4, 7: 6}

# What nvidia-smi says, to the letter and on stdout, where scripts look for it.
_NOT_A_FIELD: Final = 'Field "{}" is not a valid field to query.\n\n'
_ONE_AT_A_TIME: Final = "Only one --query-* switch can be used at a time.\n"
_WRONG_FORMAT: Final = "Format modifier is not recognized.\n"
_NO_DEVICES: Final = "No devices were found\n"
_WRONG_LOOP: Final = "Provided [-l(ms) | --loop(-ms)=] value is incorrect. Loop frequency must be greater than 0.\n\n"


class Said(Exception):
    """Nothing can be asked: what nvidia-smi would print, its exit status, and what else helps (on stderr)."""

    def __init__(self, words: str, exit_status: int = USAGE, hint: str = "") -> None:
        super().__init__(words)
        self.exit_status, self.hint = exit_status, hint


class Format(NamedTuple):
    kind: str = "csv"  # or "json", "table"
    header: bool = True
    units: bool = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Arguments written for nvidia-smi are understood as they are. Exit status as nvidia-smi's: 0 all is well, "
        "2 usage, 4 no permission, 6 no such GPU, 9 driver not loaded, 10 a GPU does not answer, 12 no driver library, "
        "15 a GPU is lost, 18 driver and library differ, 255 anything else."
    )
    what = parser.add_argument_group("what is asked for (one of these)")
    what.add_argument(
        "--gpu", "--query-gpu", metavar="FIELDS", help="fields of every GPU, with commas between: index,memory.used"
    )
    what.add_argument(
        "--compute-apps",
        "--query-compute-apps",
        metavar="FIELDS",
        help="fields of every compute process: pid,process_name,used_memory",
    )
    what.add_argument(
        "--help-fields",
        "--help-query-gpu",
        "--help-query-compute-apps",
        action="store_true",
        help="list the fields there are",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--format",
        metavar="FORMAT",
        default="csv",
        help="csv[,noheader][,nounits] as nvidia-smi writes it, json (typed, units in the names, null for what the "
        "driver does not say; one object a line with -l), or table[,noheader]; default: csv",
    )
    how.add_argument(
        "-i", "--id", metavar="LIST", default="", help="only these GPUs: indices, UUIDs, serial numbers or PCI ids"
    )
    how.add_argument(
        "-l", "--loop", metavar="SECONDS", nargs="?", const=str(LOOP), help="again and again (every 5 s), until Ctrl+C"
    )
    how.add_argument("-lms", "--loop-ms", metavar="MS", help="the same, in milliseconds")
    how.add_argument("-f", "--filename", metavar="FILE", help="write to FILE instead")


def run(options: argparse.Namespace) -> int:
    from gputop.sources.source import SourceError

    try:
        return _run(options)
    except Said as said:
        print_out(str(said))
        if said.hint and sys.stderr is not None:
            print(f"gputop: {said.hint}", file=sys.stderr)
        return said.exit_status
    except SourceError as error:
        raise Refusal(str(error), _EXIT_STATUS.get(error.exit_status, OTHER)) from None


def _run(options: argparse.Namespace) -> int:
    if options.help_fields:
        return print_out(_help())
    if options.gpu is not None and options.compute_apps is not None:
        raise Said(_ONE_AT_A_TIME)
    if options.gpu is None and options.compute_apps is None:
        raise Refusal("query: nothing is asked for; try `gputop query --gpu index,name,memory.used`, or --help-fields")
    from gputop.sources.nvml.query import APP_FIELDS, GPU_FIELDS, Query

    of_gpus = options.gpu is not None
    fields = _fields(options.gpu if of_gpus else options.compute_apps, GPU_FIELDS if of_gpus else APP_FIELDS)
    format_ = _format(options.format)
    interval = _interval(options)
    query = Query()
    _select(query, [name.strip() for name in options.id.split(",") if name.strip()])
    rows = query.gpu_rows if of_gpus else query.app_rows
    write = _writer(options.filename)
    try:
        _repeat(interval, lambda first: write(_text(fields, rows(fields), format_, first, interval is not None)))
    except KeyboardInterrupt:
        if interval is None:
            raise  # otherwise that is how it ends: nvidia-smi gives 0
    finally:
        query.close()
    return query.failure if query.failure < OTHER else OTHER


def _repeat(interval: float | None, do: Callable[[bool], object]) -> None:
    """Once, or every *interval* seconds by the clock: what one turn takes does not move the next."""
    started = time.monotonic()
    turn = 0
    while True:
        do(turn == 0)
        if interval is None:
            return
        turn = max(turn + 1, math.ceil((time.monotonic() - started) / interval))  # turns that were missed are left out
        time.sleep(max(0.0, started + turn * interval - time.monotonic()))


def _text(fields: Sequence[Field], rows: list[Any], format_: Format, first: bool, more: bool) -> str:
    from gputop.outputs import query as output

    if format_.kind == "json":
        if more:
            return output.json_lines(fields, rows)
        return output.json_array(fields, rows, indent=2 if is_terminal(sys.stdout) else None)
    if format_.kind == "table":
        return output.table(fields, rows, header=format_.header)
    header = output.csv_header(fields) if first and format_.header else ""
    return header + output.csv(fields, rows, format_.units)


# ------------------------------------------------------------------- what was written


def _fields(text: str, known: Sequence[Field]) -> list[Field]:
    by_name = {name: field for field in known for name in (field.name, *field.aliases)}
    found = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in by_name:
            raise Said(_NOT_A_FIELD.format(_clean(name)), hint=_did_you_mean(name, by_name))
        found.append(by_name[name])
    if not found:
        raise Refusal("query: no field is named; --help-fields lists them")
    return found


def _clean(text: str) -> str:
    from gputop.model import clean_text

    return clean_text(text, 200)


def _did_you_mean(name: str, known: dict[str, Field]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    guess = f'did you mean "{close[0]}"? ' if close else ""
    return f"{guess}`gputop query --help-fields` lists the fields"


def _format(text: str) -> Format:
    kind, header, units = "csv", True, True
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word in ("csv", "json", "table"):
            kind = word
        elif word == "noheader":
            header = False
        elif word in ("nounits", "nounit"):
            units = False
        else:
            raise Said(_WRONG_FORMAT)
    return Format(kind, header, units)


def _interval(options: argparse.Namespace) -> float | None:
    """Seconds between readings; None: one is enough."""
    text, scale = (options.loop_ms, 1000.0) if options.loop_ms is not None else (options.loop, 1.0)
    if text is None:
        return None
    try:
        seconds = float(text) / scale
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise Said(_WRONG_LOOP)
    return seconds


def _select(query: Query, names: Sequence[str]) -> None:
    unknown = query.select(names)
    words = f"-i {_clean(', '.join(unknown))}: no such GPU"
    if not query.gpus:
        raise Said(_NO_DEVICES, NO_SUCH_GPU, words if unknown else "")
    if unknown and sys.stderr is not None:
        print(f"gputop: {words}", file=sys.stderr)


def _writer(filename: str | None) -> Callable[[str], object]:
    """Writes to the file of that name, else to stdout, at once."""
    if filename is None:
        return print_out
    from gputop.commands.shared.output_file import is_text, must_not_replace_others

    must_not_replace_others(Path(filename), is_text, "text")
    try:
        file: IO[str] = open(filename, "w", encoding="utf-8")  # noqa: SIM115 (open as long as the program runs)
    except OSError as error:
        raise Refusal(f"{_clean(filename)}: {error.strerror or error}") from None

    def write(text: str) -> None:
        try:
            file.write(text)
            file.flush()
        except OSError as error:
            raise Refusal(f"{_clean(filename)}: {error.strerror or error}", 1) from None

    return write


def _help() -> str:
    from gputop.outputs.query import list_of_fields
    from gputop.sources.nvml.query import APP_FIELDS, GPU_FIELDS

    return (
        list_of_fields("Fields of --gpu:", GPU_FIELDS) + "\n" + list_of_fields("Fields of --compute-apps:", APP_FIELDS)
    )
