"""`llama-retrieval remove`: remove a knowledge base."""

import sys
from typing import Annotated

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.output import say
from llama_retrieval_ext.errors import ConfigurationError


def remove(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The knowledge base.", show_default=False)
    ],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
) -> None:
    """Remove a knowledge base: all its documents, and what it knows about them.

    What is not a knowledge base, or is being written to, stays. If it is interrupted, do it again.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigurationError(f"to remove {url} without being asked, add --yes")
        typer.confirm(f"Remove {url} with all its documents?", abort=True)
    ext.KnowledgeBase.remove(url)
    say(f"removed {url}")
