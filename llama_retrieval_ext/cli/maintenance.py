"""`llama-retrieval copy`: move a knowledge base to another engine."""

import sys
from typing import Annotated

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.output import say, say_aside, say_left_out
from llama_retrieval_ext.errors import ConfigurationError, describe


def copy(
    *,
    source: Annotated[
        str,
        typer.Option("--from", metavar="URL", help="The knowledge base.", show_default=False),
    ],
    target: Annotated[
        str,
        typer.Option("--to", metavar="URL", help="Where a copy goes.", show_default=False),
    ],
    many_tenants: Annotated[
        bool,
        typer.Option(
            "--many-tenants",
            help="Have the engine keep what belongs to a tenant together, where the copy is made.",
        ),
    ] = False,
    mirror: Annotated[
        bool,
        typer.Option(
            "--mirror",
            help="Remove from the copy what the knowledge base does not have, or not any more.",
        ),
    ] = False,
    graph: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The graph of the copy; needed if the source has one."),
    ] = None,
) -> None:
    """Copy a knowledge base to another engine, without embedding anything again.

    You can run it again: it skips existing documents, and with --mirror it deletes documents that
    the source does not have. The source is only read.
    """
    report = ext.copy_knowledge_base(
        source,
        target,
        many_tenants=many_tenants or None,
        mirror=mirror,
        graph=graph,
        show_progress=sys.stderr.isatty(),
    )
    say(str(report))
    if report.only_at_target:
        say_aside("to remove what is only at the target, add --mirror")
    say_left_out({name: describe(error) for name, error in report.failures.items()})
    if report.failures:
        raise typer.Exit(1)


def remove(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The knowledge base.", show_default=False)
    ],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
) -> None:
    """Remove a knowledge base with all its documents and their data.

    It does not remove other folders or databases, or a knowledge base with an active writer. After
    an interruption, run it again.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigurationError(f"to remove {url} without being asked, add --yes")
        typer.confirm(f"Remove {url} with all its documents?", abort=True)
    ext.KnowledgeBase.remove(url)
    say(f"removed {url}")
