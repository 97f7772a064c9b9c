"""`llama-retrieval search` and `ask`, and `schema` and `validate` for pipelines as files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.options import AsJson, LLMOptions, QueryOptions, field_weights
from llama_retrieval_ext.cli.output import say, say_aside, say_json, say_wrong, show_hits
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.kinds import SearchKind

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.why_not import WhyNot

_FIRST: Final = "first"
FilterOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="FILTER",
        help="Only what has this metadata: key=value, key!=value, key>=value, key>value, "
        "key<=value, key<value, key~part for a part of a string, ignoring case, or "
        "key in (value, value). Combine them with and, or, not and parentheses: "
        "'lang=zh or not (year<2020 and draft=yes)'. Numbers are recognised; in quotes a value is "
        "a string: 'article=\"3\"'. May be repeated: all must hold.",
    ),
]


def search(  # noqa: PLR0913 - a command's options are its parameters
    words: Annotated[
        list[str], typer.Argument(metavar="QUERY", help="The question.", show_default=False)
    ],
    *,
    mode: Annotated[
        SearchKind | None,
        typer.Option(help="How to search; hybrid unless set.", show_default=False),
    ] = None,
    pipeline: Annotated[
        Path | None,
        typer.Option(
            "--pipeline", metavar="FILE", help="Search by this pipeline (see validate), not a mode."
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="How many hits to show: 10, or as the pipeline says, unless set."),
    ] = None,
    per_document: Annotated[
        int | None, typer.Option(min=1, help="How many hits of a document to show at most.")
    ] = None,
    filters: FilterOptions = None,
    full: Annotated[
        bool, typer.Option("--full", help="Show whole passages, not the lines that match best.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Also show the steps with times, and why each hit ranks where it does.",
        ),
    ] = False,
    correct: Annotated[
        bool, typer.Option("--correct/--no-correct", help="Correct typing errors, visibly.")
    ] = True,
    interpret: Annotated[
        bool,
        typer.Option("--interpret", help="Make filters of words that state them: 'after 2010'."),
    ] = False,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="NAME=WEIGHT",
            help="Search the words of this field only: title=1. May be repeated.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Sort the best 1,000 hits by a number or date; -FIELD for descending.",
            show_default=False,
        ),
    ] = None,
    cursor: Annotated[
        str | None,
        typer.Option(
            metavar="CURSOR",
            help="Show the page after the one that printed this cursor: first for the first page.",
            show_default=False,
        ),
    ] = None,
    why_not: Annotated[
        list[str] | None,
        typer.Option(
            "--why-not",
            metavar="NODE_ID",
            help="Also show why this passage is not among the hits. May be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
    options: QueryOptions,
) -> None:
    """Search a knowledge base.

    Each hit has its rank, score and document, and in parentheses its rank in each leg.
    """
    # The import of LlamaIndex takes two seconds; --help does not need it.
    from llama_retrieval_ext.filter_syntax import parse_filter_texts  # noqa: PLC0415

    query = _query_of(words)
    if mode is not None and pipeline is not None:
        raise ConfigurationError("--mode and --pipeline exclude each other; give one of them")
    narrowed = parse_filter_texts(filters or [], name="--filter")
    is_paged, is_explained = bool(sort or cursor), bool(explain or why_not)
    if is_paged and (pipeline is not None or is_explained):
        raise ConfigurationError("--sort and --cursor go with --mode, and without --explain")
    asked = ext.Query(query, correct=correct, interpret=interpret).but(
        filters=narrowed, scope=options.scope, fields=field_weights(fields or [])
    )
    with options.open() as opened:
        collapse = None if per_document is None else ext.Collapse(per_document)
        if is_paged:
            after = None if cursor == _FIRST else cursor
            pages: dict[str, Any] = {"collapse": collapse, "sort": sort, "cursor": after}
            result = opened.search(asked, mode or "hybrid", top_k=top_k or 10, **pages)
        else:
            retriever = _retriever(opened, mode or "hybrid", pipeline, collapse)
            ask = retriever.explain if is_explained else retriever.search
            result = ask(asked, top_k=top_k)
        reasons = _reasons(result, why_not or [])
        if as_json:
            more = {"why_not": [reason.to_dict() for reason in reasons]} if reasons else {}
            say_json({"query": query, **result.to_dict(), **more})
        else:
            _show(result, query, full=full, explain=explain, is_paged=is_paged)
            for reason in reasons:
                say(f"why not: {reason}")


def facets(  # noqa: PLR0913 - a command's options are its parameters
    fields: Annotated[
        list[str],
        typer.Argument(
            metavar="FIELD...",
            help="Metadata keys; with bounds of ranges after a colon: year:1990,2000.",
            show_default=False,
        ),
    ],
    *,
    query: Annotated[
        str | None,
        typer.Option(
            help="Count only among documents that share a word with this.", show_default=False
        ),
    ] = None,
    filters: FilterOptions = None,
    top: Annotated[int, typer.Option(min=1, help="How many values of each field to show.")] = 10,
    nodes: Annotated[bool, typer.Option("--nodes", help="Count passages.")] = False,
    as_json: AsJson = False,
    options: QueryOptions,
) -> None:
    """Count documents by the values of metadata fields."""
    # The import of LlamaIndex takes two seconds; --help does not need it.
    from llama_retrieval_ext.filter_syntax import parse_filter_texts  # noqa: PLC0415

    parts = [field.partition(":") for field in fields]
    ranges = {n: [*map(_bound, bounds.split(","))] if bounds else None for n, _, bounds in parts}
    with options.open() as opened:
        counted = opened.facets(
            ranges,
            query,
            filters=parse_filter_texts(filters or [], name="--filter"),
            scope=options.scope,
            top=top,
            nodes=nodes,
        )
    if as_json:
        say_json(counted.to_dict())
    else:
        say(str(counted))


def _bound(text: str) -> float | str:
    """Return a bound of a range: a number, or a date."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def _query_of(words: list[str]) -> str:
    query = " ".join(words)
    if not query.strip():
        raise ConfigurationError("the query is empty; write what to look for")
    return query


def _retriever(
    kb: "ext.KnowledgeBase",
    mode: SearchKind,
    pipeline: Path | None,
    collapse: "ext.Collapse | None",
) -> "ext.Retriever":
    """Return the retriever of a mode, or of a pipeline file, over the knowledge base."""
    if pipeline is None:
        return kb.retriever(mode, collapse=collapse)
    from llama_retrieval_ext.pipeline.pipeline import Pipeline  # noqa: PLC0415

    made = ext.load_pipeline(pipeline, kb)
    if isinstance(made, ext.Retriever) and collapse is None:
        return made
    return Pipeline(made, refines=[] if collapse is None else [collapse])


def _show(
    result: "ext.SearchResult", query: str, *, full: bool, explain: bool, is_paged: bool
) -> None:
    show_hits(result.hits, query, full=full)
    if not result.hits:
        say("nothing found; try other words, --mode keyword or vector, or fewer filters")
    for part in result.degraded:
        say_aside(f"degraded: {part}", style="yellow")
    for hint in result.hints:
        say_aside(f"hint: {hint}", style="yellow")
    if result.cursor is not None and is_paged:
        say_aside(f"more: --cursor {result.cursor}")
    if explain:
        say()
        say(str(result))


def _reasons(result: "ext.SearchResult", node_ids: list[str]) -> "list[WhyNot]":
    return (
        [result.why_not(node_id) for node_id in node_ids]
        if isinstance(result, ext.Explanation)
        else []
    )


def ask(
    words: Annotated[
        list[str], typer.Argument(metavar="QUESTION", help="The question.", show_default=False)
    ],
    *,
    model: LLMOptions,
    as_json: AsJson = False,
    options: QueryOptions,
) -> None:
    """Answer a question by a language model, with citations.

    Each citation names its document. Statements that the cited passages do not support are listed.
    """
    query, llm = _query_of(words), model.llm()
    if llm is None:
        raise ConfigurationError("ask needs a language model: add --llm-url URL --llm-model NAME")
    # The import of LlamaIndex takes two seconds; --help does not need it.
    from llama_retrieval_ext.display.results import document_titles  # noqa: PLC0415

    with options.open() as opened:
        generator = ext.CapabilityFactory.of(opened, llm=llm).create_rag_generator()
        answer = generator.generate(query, scope=options.scope, timeout_s=model.timeout_s)
    if as_json:
        say_json(answer.to_dict())
        return
    say(answer.text)
    titles = document_titles([citation.hit for citation in answer.citations])
    for citation in answer.citations:
        say(f"[{citation.number}] {titles[citation.hit.node_id]}", style="dim")
    for problem in answer.problems:
        say_aside(f"not supported: {problem}", style="yellow")
    for part in answer.degraded:
        say_aside(f"degraded: {part}", style="yellow")
    for hint in answer.hints:
        say_aside(f"hint: {hint}", style="yellow")


def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors."""
    say_json(ext.pipeline_schema(ext.default_registry()))


def validate(
    file: Annotated[Path, typer.Argument(help="A pipeline file, in YAML.", show_default=False)],
) -> None:
    """Check a pipeline file, without opening anything that it names.

    Each problem has its line and field. Exit code: 0 without problems, else 1.
    """
    # The import of LlamaIndex takes two seconds; --help does not need it.
    from llama_retrieval_ext.config.yaml import read_file  # noqa: PLC0415

    problems = ext.validate_yaml(read_file(file), ext.default_registry(), file=str(file))
    for problem in problems:
        say_wrong(f"{file}, {problem}")
    if problems:
        raise typer.Exit(1)
    say(f"{file} is valid")
