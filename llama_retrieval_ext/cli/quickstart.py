"""`llama-retrieval quickstart`: retrieval at work, on samples or on the user's own files."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.comparison import Comparison, best_passages, compare
from llama_retrieval_ext.cli.ingest import add, read, watched
from llama_retrieval_ext.cli.output import say, say_table
from llama_retrieval_ext.cli.place import EmbedModel, Place
from llama_retrieval_ext.cli.program import five_lines
from llama_retrieval_ext.cli.quote import quote

QUESTIONS = (
    "How do I catch an exception and handle it?",
    "How are default parameter values evaluated?",
    "How do I split a string at a separator?",
    "安全生产许可证的有效期是多久？",  # noqa: RUF001 - Chinese punctuation
    "哪些工程需要编制专项施工方案？",  # noqa: RUF001 - Chinese punctuation
)
_QUOTED_CELLS = 300


def quickstart(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH...]", help="Your files and folders, instead of the samples."),
    ] = None,
    *,
    ask: Annotated[
        list[str] | None,
        typer.Option(metavar="QUESTION", help="Ask this. May be repeated."),
    ] = None,
    kb: Annotated[
        str, typer.Option(metavar="URL", help="Where to keep the index; left out, it is not kept.")
    ] = "embedded::memory:",
    embed_model: EmbedModel = "local",
) -> None:
    """Index samples (Python's reference, Chinese law) or your files, and answer questions."""
    # LlamaIndex takes two seconds to import, which --help need not.
    from llama_retrieval_ext.cli.demonstration import samples  # noqa: PLC0415

    place = Place(kb, embed_model)
    reading = read(paths, place) if paths else samples(watched)
    with place.open() as opened:
        add(opened, reading, place)
        asked = _answer(opened, ask or (_prompted() if paths else QUESTIONS))
        if not asked:
            say("no question was asked; add --ask QUESTION")
            return
        _show_query_engine(opened, asked[0])
    _show_program(asked[0], paths)


def _prompted() -> Iterator[str]:
    """The questions that somebody types, until an empty one; none if nobody is there."""
    while sys.stdin.isatty():
        question = typer.prompt("\nyour question (none to end)", default="", show_default=False)
        if not question.strip():
            return
        yield question


def _answer(kb: "ext.KnowledgeBase", questions: Iterable[str]) -> list[str]:
    say("\nRank and score by each retriever; a document counts with its best passage.")
    say("Scores are cosines (vector), BM25 (keyword), and the sum of both, scaled (hybrid).")
    asked: list[str] = []
    for question in questions:
        _show_comparison(compare(kb, question))
        asked.append(question)
    return asked


def _show_comparison(comparison: Comparison) -> None:
    say(f"\n{comparison.question}", style="bold")
    say_table(comparison.header(), comparison.rows())
    for name, hit in list(best_passages(comparison.results["hybrid"]).items())[:1]:
        quoted = quote(hit.text, comparison.question, cells=_QUOTED_CELLS)
        say(f"{name}: {quoted}", style="dim")


def _show_query_engine(kb: "ext.KnowledgeBase", question: str) -> None:
    from llama_retrieval_ext.cli.demonstration import query_engine_sources  # noqa: PLC0415

    say("\nThe hybrid retriever in LlamaIndex's RetrieverQueryEngine", style="bold")
    sources = query_engine_sources(kb.retriever("hybrid", top_k=3), question)
    say(f"{question} -> {len(sources)} source nodes:")
    say_table(
        ("", "score", "document"),
        (
            (str(rank), f"{source.score:.3g}", source.node.ref_doc_id or source.node.node_id)
            for rank, source in enumerate(sources, start=1)
        ),
    )
    say("No LLM is set up, so none wrote an answer: these are the sources it would have got.")


def _show_program(question: str, paths: list[Path] | None) -> None:
    say("\nThe same in five lines of Python", style="bold")
    say(five_lines(question, *(paths or ())))
