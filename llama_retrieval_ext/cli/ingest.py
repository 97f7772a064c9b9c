"""`llama-retrieval ingest`: put files into a knowledge base."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.progress import track

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.output import console, say, say_left_out
from llama_retrieval_ext.cli.place import EmbedModel, KbId, Place, Tenant, Url
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.trace import describe

if TYPE_CHECKING:
    from llama_retrieval_ext.ingest.readers import Reading

T = TypeVar("T")


def ingest(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files and folders.", show_default=False)
    ],
    *,
    kb: Url,
    embed_model: EmbedModel = "local",
    tenant: Tenant = None,
    kb_id: KbId = None,
    require_scope: Annotated[
        bool,
        typer.Option(
            "--require-scope",
            help="Make one that nobody can use without --tenant or --kb-id; then always needed.",
        ),
    ] = False,
) -> None:
    """Put files into a knowledge base: text, Markdown, HTML, PDF, DOCX, CSV."""
    place = Place(kb, embed_model, tenant, kb_id, require_scope)
    reading = read(paths, place)
    with place.open() as opened:
        add(opened, reading, place)


def read(paths: Sequence[Path], place: Place) -> "Reading":
    """What is in files and folders, yet to be read.

    Raises:
        ConfigurationError: There are none.
    """
    # LlamaIndex takes two seconds to import, which --help need not.
    from llama_retrieval_ext.ingest.readers import iter_documents  # noqa: PLC0415

    reading = iter_documents(paths, leave_out=place.folder, watched=watched)
    if not reading.finds_any():
        say_left_out(reading.left_out)
        names = ", ".join(map(str, paths))
        raise ConfigurationError(f"nothing to add: no file with text in it at {names}")
    return reading


def add(kb: "ext.KnowledgeBase", reading: "Reading", place: Place) -> None:
    """Add documents, and say what became of them; end the program if none went in."""
    report = kb.add(iter(reading.documents), scope=place.scope, show_progress=False)
    say_left_out(reading.left_out)
    say(str(report))
    say_left_out(report.skipped)
    say_left_out({name: describe(error) for name, error in report.failures.items()})
    here = (
        document.document_id
        for document in kb.documents(scope=place.scope)
        if (document.tenant_id, document.kb_id) == (place.tenant_id, place.kb_id)
    )
    outdated = reading.outdated(here)
    for document_id in outdated:
        kb.delete(document_id, scope=place.scope)
    if outdated:
        say(f"{len(outdated)} removed: pages or rows that their files no longer have")
    if not report.added + report.updated + report.unchanged:
        raise typer.Exit(1)


def watched(items: Sequence[T]) -> Iterable[T]:
    """Files or documents that are read while they are added, with a bar while somebody looks."""
    terminal = console(stderr=True)
    return track(
        items, "Adding", console=terminal, transient=True, disable=not terminal.is_terminal
    )
