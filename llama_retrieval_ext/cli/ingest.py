"""`llama-retrieval ingest` and `sync`: put files into a knowledge base."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.errors import in_options
from llama_retrieval_ext.cli.options import (
    Allowed,
    FileOptions,
    KbOptions,
    Validity,
    WriterOptions,
    path_argument,
)
from llama_retrieval_ext.cli.output import console, say, say_aside, say_left_out, say_wrong
from llama_retrieval_ext.errors import (
    ConfigurationError,
    RetrievalExtError,
    StoreUnavailableError,
    describe,
    optional_module,
)
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from llama_retrieval_ext.knowledge_base.readers.files import Reading
    from llama_retrieval_ext.knowledge_base.report import SyncReport

T = TypeVar("T")

_FAILED = 1
_LEFT_OUT = 3
_INTERRUPTED = 130


def ingest(
    paths: Annotated[list[Path], path_argument("PATH", "Files, folders and glob patterns.")],
    *,
    allowed: Allowed = None,
    validity: Validity = None,
    files: FileOptions,
    options: WriterOptions,
) -> None:
    """Put files into a knowledge base.

    It reads text, Markdown, HTML, PDF, office files, mail and CSV, in folders and those inside.
    Run it again after files have changed; after an interruption it continues. Exit code: 0 if all
    files are in, except pictures and other kinds that are not supported; 3 if some were left out
    because they could not be read or stored (--exclude those that need not be in); 1 if none is in;
    130 if it was interrupted.
    """
    check_lasting(options)
    reading = read(paths, options, files)
    with options.open(must_exist=False) as opened:
        # The bar of files stands still while one is added: a single one has a bar of its own.
        one_file = len(paths) == 1 and paths[0].is_file()
        is_shown = one_file and console(stderr=True).is_terminal
        code = add(
            opened, reading, options, allowed=allowed, validity=validity, show_progress=is_shown
        )
    raise typer.Exit(code)


def check_lasting(options: KbOptions) -> None:
    """Raise if the knowledge base is in memory."""
    if options.is_in_memory:
        raise ConfigurationError(
            f"{options.url} would be gone when this command ends; write a folder, such as --kb "
            "embedded:./kb, or try your files with: llama-retrieval quickstart PATH --ask QUESTION"
        )


def read(
    paths: Sequence[Path],
    options: KbOptions,
    files: FileOptions = FileOptions(),  # noqa: B008 - frozen
) -> "Reading":
    """Return the documents in files and folders, read while they are added; none raise."""
    # The import of LlamaIndex takes two seconds; --help does not need it.
    from llama_retrieval_ext.knowledge_base.readers.files import iter_documents  # noqa: PLC0415

    reading = iter_documents(paths, leave_out=options.folder, watched=watched, **asdict(files))
    if not reading.finds_any():
        say_left_out(reading.left_out)
        names = ", ".join(map(str, paths))
        raise ConfigurationError(f"nothing to add: no file with text in it at {names}")
    return reading


def add(
    kb: "ext.KnowledgeBase",
    reading: "Reading",
    options: KbOptions,
    *,
    allowed: Sequence[str] | None = None,
    validity: str | None = None,
    show_progress: bool = False,
) -> int:
    """Add documents, print the results, return the exit code: 3 if files were left out."""
    from llama_retrieval_ext.knowledge_base.readers.files import PART  # noqa: PLC0415

    with interruptible(kb, options):
        documents = iter(reading.documents)
        report = kb.add(
            documents,
            scope=options.scope,
            allowed=allowed,
            validity=validity,  # type: ignore[arg-type]  # `add` checks it
            show_progress=show_progress,
        )
    named = reading.left_out.keys()
    say_left_out(reading.left_out)
    left_out = f", {counted(len(reading.left_out), 'file')} left out" if reading.left_out else ""
    say(f"{_read_from(reading)}{report}{left_out}")
    say_left_out(
        {
            name: why
            for name, why in report.skipped.items()
            if named.isdisjoint((Path(name), Path(name.rpartition(PART)[0])))
        },
        "skipped",
    )
    say_left_out({name: describe(error) for name, error in report.failures.items()})
    _delete_outdated(kb, reading, options)
    if not report.added + report.updated + report.unchanged:
        raise typer.Exit(_FAILED)
    return exit_code(reading.left_out, report.failures)


def exit_code(left_out: Mapping[Path, str] | Mapping[str, str], failures: Sized) -> int:
    """Return 0 if all files are in, except those without text and of unsupported kinds; else 3."""
    from llama_retrieval_ext.knowledge_base.readers.formats import is_unsupported  # noqa: PLC0415
    from llama_retrieval_ext.knowledge_base.readers.texts import NO_TEXT  # noqa: PLC0415

    may_be_out = (reason == NO_TEXT or is_unsupported(reason) for reason in left_out.values())
    return 0 if all(may_be_out) and not failures else _LEFT_OUT


@contextmanager
def interruptible(kb: "ext.KnowledgeBase", options: KbOptions) -> Generator[None]:
    """End the program if the block is interrupted, and say what is stored."""
    try:
        yield
    except KeyboardInterrupt:
        stopped = "interrupted"
        if not options.is_in_memory:
            count = counted(len(kb.documents(scope=options.scope)), "document")
            stopped += f": {count} in {options.url}; run the same command again to add the rest"
        say_aside(stopped, style="yellow")
        raise typer.Exit(_INTERRUPTED) from None


def _read_from(reading: "Reading") -> str:
    """Return how many documents come from how many files; empty for the samples."""
    if not reading.files:
        return ""
    files = counted(len(reading.files), "file")
    return f"{counted(len(reading.ids), 'document')} from {files}: "


def _delete_outdated(kb: "ext.KnowledgeBase", reading: "Reading", options: KbOptions) -> None:
    here = (
        document.document_id
        for document in kb.documents(scope=options.scope)
        if (document.tenant_id, document.kb_id) == (options.tenant_id, options.kb_id)
    )
    outdated = reading.outdated(here)
    for document_id in outdated:
        kb.delete(document_id, scope=options.scope)
    if outdated:
        say(f"{len(outdated)} removed: pages or rows that their files no longer have")


def watched(items: Sequence[T]) -> Iterable[T]:
    """Return files or documents, with a progress bar on a terminal while they are read."""
    from rich.progress import track  # noqa: PLC0415 - other commands need no bar

    terminal = console(stderr=True)
    is_shown = terminal.is_terminal and len(items) > 1
    return track(items, "Adding", console=terminal, transient=True, disable=not is_shown)


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
