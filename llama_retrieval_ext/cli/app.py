"""The program: its commands and its error reporting."""

import gc
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from llama_retrieval_ext import __version__
from llama_retrieval_ext.cli.documents import (
    check,
    copy,
    delete,
    info,
    list_,
    ranking,
    remove,
    share,
    show,
)
from llama_retrieval_ext.cli.errors import Program
from llama_retrieval_ext.cli.evaluate import eval_
from llama_retrieval_ext.cli.graph import graph_app, rules_app
from llama_retrieval_ext.cli.ingest import ingest, sync
from llama_retrieval_ext.cli.options import with_groups
from llama_retrieval_ext.cli.output import say
from llama_retrieval_ext.cli.quickstart import quickstart
from llama_retrieval_ext.cli.search import ask, facets, schema, search, validate
from llama_retrieval_ext.cli.serve import docs, mcp, serve, skill

_COLLECT_AFTER: Final = (50_000, 20, 100)  # new objects; Python's is (700, 10, 10)

# Without markup, help is plain text, without boxes in a pipe or a log.
app = typer.Typer(
    cls=Program,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_searching = (quickstart, ingest, sync, search, facets, ask, eval_)
_documents = (list_, show, delete, share, ranking, info, check, copy, remove)
for command in (*_searching, *_documents, schema, validate, serve, mcp, skill, docs):
    app.command(command.__name__.rstrip("_"))(with_groups(command))
for name, group in (("graph", graph_app), ("rules", rules_app)):
    app.add_typer(group, name=name)


def main(args: Sequence[str] | None = None) -> None:
    """Run the program and exit with 0, or with 1 after one line on standard error.

    Args:
        args: The command line without the program's name; None for that of the process.

    Raises:
        RetrievalExtError: A command failed, and ``--debug`` requests the traceback.
        SystemExit: In all other cases.
    """
    if args is None:  # the whole process
        # LlamaIndex's import makes objects that stay; to look for garbage among them took .2 s.
        gc.set_threshold(*_COLLECT_AFTER)
    given = list(sys.argv[1:] if args is None else args)
    # Removed here, because users usually append it to the command after a failure.
    app([arg for arg in given if arg != "--debug"], obj="--debug" in given)


def _version(*, wanted: bool) -> None:
    if wanted:
        say(f"llama-retrieval {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. May stand anywhere.")
    ] = False,
) -> None:
    """Hybrid retrieval over your documents, in this process or on a server."""
