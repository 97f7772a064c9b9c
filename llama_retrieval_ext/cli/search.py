"""`llama-retrieval search`: ask a knowledge base."""

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.output import one_line, say, say_aside, say_table
from llama_retrieval_ext.cli.place import EmbedModel, KbId, Place, Tenant, Url
from llama_retrieval_ext.cli.quote import quote

_TEXT_CELLS = 50


class Mode(StrEnum):
    """How to search."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    HYBRID = "hybrid"


Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="FILTER",
        help="Only what has this metadata: key=value, key!=value, key>=value, key>value, "
        "key<=value, key<value, or key~part for a part of a string, whatever the case. Numbers are "
        "recognised; in quotes a value is a string: 'article=\"3\"'. May be repeated: all must "
        "hold.",
    ),
]


def search(  # noqa: PLR0913 - a command's options are its parameters
    query: Annotated[str, typer.Argument(help="What to look for.", show_default=False)],
    *,
    kb: Url,
    mode: Annotated[Mode, typer.Option(help="How to search.")] = Mode.HYBRID,
    top_k: Annotated[int, typer.Option(min=1, help="How many hits to show.")] = 10,
    per_document: Annotated[
        int | None, typer.Option(min=1, help="How many hits of a document to show at most.")
    ] = None,
    filters: Filters = None,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = "local",
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show what ran, and what each leg gave to a hit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search a knowledge base."""
    # LlamaIndex takes two seconds to import, which --help need not.
    from llama_retrieval_ext.cli.filter_notation import parse_filter_options  # noqa: PLC0415

    narrowed = parse_filter_options(filters or [])
    place = Place(kb, embed_model, tenant, kb_id)
    with place.reopen() as opened:
        retriever = opened.retriever(
            mode.value,
            top_k=top_k,
            filters=narrowed,
            scope=place.scope,
            collapse=None if per_document is None else ext.Collapse(per_document),
        )
        result = retriever.explain(query) if explain else retriever.search(query)
    if as_json:
        say(json.dumps(result.to_dict(), ensure_ascii=False, indent=2))
        return
    _show(result, query)
    if explain:
        _show_explanation(result)


def _show(result: "ext.SearchResult", query: str) -> None:
    if result.hits:
        rows = (
            (str(rank), f"{hit.score:.4g}", title(hit), quote(hit.text, query, cells=_TEXT_CELLS))
            for rank, hit in enumerate(result.hits, start=1)
        )
        say_table(("", "score", "document", "text"), rows)
    else:
        say("no hits")
    for part in result.degraded:
        say_aside(f"degraded: {part.where}: {part.reason}", style="yellow")


def _show_explanation(result: "ext.SearchResult") -> None:
    if result.trace is not None:
        say()
        say(result.trace.outline())
    if any(hit.contributions for hit in result.hits):
        say()
        say_table(
            ("", "document", "leg", "rank in leg", "score in leg", "weight", "share of score"),
            _contributions(result.hits),
        )


def _contributions(hits: Sequence["ext.Hit"]) -> Iterator[tuple[str, ...]]:
    for rank, hit in enumerate(hits, start=1):
        names = (str(rank), title(hit))
        for part in hit.contributions:
            score = "" if part.score is None else f"{part.score:.4g}"
            yield (*names, part.leg, str(part.rank), score, f"{part.weight:g}", f"{part.share:.4g}")
            names = ("", "")


def title(hit: "ext.Hit") -> str:
    """What a person calls the document of a hit: its file and page, or its id."""
    metadata = hit.node.metadata
    name = str(metadata.get("file_name") or hit.node.ref_doc_id or hit.node.node_id)
    page = metadata.get("page_label")
    return one_line(name if page is None else f"{name} p. {page}", cells=40)
