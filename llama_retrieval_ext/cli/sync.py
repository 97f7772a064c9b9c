"""`llama-retrieval sync`: make a knowledge base equal to a folder."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llama_retrieval_ext.cli.errors import in_options
from llama_retrieval_ext.cli.ingest import check_lasting, exit_code, interruptible
from llama_retrieval_ext.cli.options import (
    Allowed,
    FileOptions,
    Validity,
    WriterOptions,
    path_argument,
)
from llama_retrieval_ext.cli.output import console, say, say_aside, say_left_out, say_wrong
from llama_retrieval_ext.errors import (
    RetrievalExtError,
    StoreUnavailableError,
    describe,
    optional_module,
)

if TYPE_CHECKING:
    from llama_retrieval_ext.knowledge_base.report import SyncReport

_SHOWN = 20
# Time without changes after which the watch says so, in milliseconds.
_PAUSE_MS = 1000


def sync(  # noqa: PLR0913 - a command's options are its parameters
    ctx: typer.Context,
    folder: Annotated[Path, path_argument("FOLDER", "A folder, or a glob pattern in quotes.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Then follow the changes of the folder until Ctrl-C.")
    ] = False,
    checksum: Annotated[
        bool,
        typer.Option(
            "--checksum",
            help="Read all files; otherwise one of the same size and time is unchanged.",
        ),
    ] = False,
    max_deletions: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="Share of the files that may be gone; if more are, nothing is changed. One may be "
            "gone, unless it is the last, or this is 0.",
        ),
    ] = 0.2,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="Delete documents whose file is gone.")
    ] = True,
    allowed: Allowed = None,
    validity: Validity = None,
    files: FileOptions,
    options: WriterOptions,
) -> None:
    """Make a knowledge base equal to a folder.

    It adds, changes and moves what has changed since the last time, and deletes what is gone. Moved
    files and unchanged passages are not embedded again. Only files that came from the same folder
    are deleted. A folder that is missing, or cannot be read, changes nothing. After an interruption
    the same command goes on. Exit code: as of ingest.
    """
    check_lasting(options)
    with options.open(must_exist=dry_run) as opened:

        def run() -> "SyncReport":
            with interruptible(opened, options):
                return opened.sync(
                    folder,
                    scope=options.scope,
                    dry_run=dry_run,
                    checksum=checksum,
                    max_deletions=max_deletions,
                    prune=prune,
                    allowed=allowed,
                    validity=validity,  # type: ignore[arg-type]  # `sync` checks it
                    show_progress=console(stderr=True).is_terminal,
                    **asdict(files),
                )

        report = run()
        _say(report, ctx)
        if watch and not dry_run:
            with suppress(KeyboardInterrupt):
                _watch(ctx, folder, options.folder, run)
    raise typer.Exit(exit_code(report.left_out, report.failures))


def _say(report: "SyncReport", ctx: typer.Context) -> None:
    """Print a report: all paths of a dry run, else the first."""
    lines = list(_lines(report))
    shown = len(lines) if report.is_dry_run else _SHOWN
    for line in islice(lines, shown):
        say(line)
    if len(lines) > shown:
        say(f"... and {len(lines) - shown} more")
    say_left_out(report.left_out)
    failures = report.failures.items()
    say_left_out({name: in_options(describe(error), ctx) for name, error in failures})
    say(in_options(report, ctx))


def _lines(report: "SyncReport") -> Iterator[str]:
    yield from (f"added {path}" for path in report.added)
    yield from (f"changed {path}" for path in report.changed)
    yield from (f"moved {old} to {new}" for old, new in report.moved.items())
    yield from (f"deleted {path}" for path in report.deleted)


def _watch(
    ctx: typer.Context, folder: Path, kb_folder: Path | None, run: Callable[[], "SyncReport"]
) -> None:
    """Sync again after each change until Ctrl-C."""
    watchfiles = optional_module("watchfiles", "--watch", "watch")
    from llama_retrieval_ext.knowledge_base.readers.files import folder_and_pattern  # noqa: PLC0415

    root, _ = folder_and_pattern(folder.expanduser().absolute())
    say_aside(f"watching {root}; Ctrl-C ends it")
    changes = watchfiles.watch(
        root,
        watch_filter=lambda _, path: kb_folder is None or not Path(path).is_relative_to(kb_folder),
        rust_timeout=_PAUSE_MS,
        yield_on_timeout=True,
    )
    is_due, last_error = True, ""  # once when the watch has begun: files may have changed before
    for changed in changes:
        if not (changed or is_due):
            continue
        is_due = False
        try:
            report = run()
        except RetrievalExtError as error:
            is_due = isinstance(error, StoreUnavailableError)
            if str(error) != last_error:
                last_error = str(error)
                say_wrong(in_options(error, ctx))
            continue
        last_error = ""
        if report.failures or any(_lines(report)):
            _say(report, ctx)
