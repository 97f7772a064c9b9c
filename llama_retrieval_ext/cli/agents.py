"""`llama-retrieval skill` and `docs`: this package's pages, for coding agents."""

from pathlib import Path
from typing import Annotated

import typer

from llama_retrieval_ext.cli.output import say
from llama_retrieval_ext.samples.pages import SKILL, llms_full_txt, llms_txt


def skill(
    *,
    install: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write it into this folder of skills, such as .claude/skills."
        ),
    ] = None,
) -> None:
    """Print or install the skill that teaches agents this."""
    text = SKILL.read_text(encoding="utf-8")
    if install is None:
        say(text)
        return
    _write(install / "llama-retrieval-ext" / SKILL.name, text)


def docs(
    *,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write llms.txt and llms-full.txt there.")
    ] = None,
) -> None:
    """Print llms.txt, the index of the pages, or write all."""
    if to is None:
        say(llms_txt())
        return
    _write(to / "llms.txt", llms_txt())
    _write(to / "llms-full.txt", llms_full_txt())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    say(f"wrote {path}")
