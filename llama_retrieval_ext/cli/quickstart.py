"""`llama-retrieval quickstart`: a demonstration on samples or on the user's own files."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.ingest import add, read, watched
from llama_retrieval_ext.cli.options import EmbedModel, KbOptions, path_argument
from llama_retrieval_ext.cli.output import say, say_table, show_passage, three_digits
from llama_retrieval_ext.errors import ConfigurationError

if TYPE_CHECKING:
    from llama_index.core.schema import Document

    from llama_retrieval_ext.knowledge_base.readers.files import Reading

_DEPTH: Final = 10  # passages of each retriever
_MODES: Final = ("vector", "keyword", "hybrid")
_SHOWN = 3
_RANK_CELLS = 2
_SCORE_CELLS = 6


QUESTIONS = (
    "Which exceptions does an except clause handle?",
    "How are default parameter values evaluated?",
    "How do I split a string at a separator?",
    "安全生产许可证的有效期是多久？",  # noqa: RUF001 - Chinese punctuation
    "哪些工程需要编制专项施工方案？",  # noqa: RUF001 - Chinese punctuation
)
_LEGEND = f"""
Rank and score by each retriever; a document counts with its best passage.
Scores are cosines (vector), BM25 (keyword), and the sum of both, scaled (hybrid).
"-" means that the document is not among the first {_DEPTH} passages of that retriever."""


def quickstart(
    paths: Annotated[
        list[Path] | None,
        path_argument("[PATH...]", "Your files and folders, instead of the samples."),
    ] = None,
    *,
    ask: Annotated[
        list[str] | None,
        typer.Option(metavar="QUESTION", help="A question to answer. May be repeated."),
    ] = None,
    kb: Annotated[
        str, typer.Option(metavar="URL", help="Where to keep the index; left out, it is not kept.")
    ] = "embedded::memory:",
    embed_model: EmbedModel = None,
) -> None:
    """Index samples or your files, and answer questions.

    The samples are Python's language reference and four Chinese laws, asked in both languages.
    For your own files add --ask QUESTION; in a terminal you are asked for questions.
    """
    options = KbOptions(url=kb, embed_model=embed_model)
    _check_questions(ask, options, has_paths=bool(paths))
    reading = read(paths, options) if paths else samples()
    asked: list[str] = []
    with options.open(must_exist=False) as opened:
        if not paths:
            _check_samples(opened)
        code = add(opened, reading, options)
        for question in ask or (_prompted() if paths else QUESTIONS):
            if not asked:
                say(_LEGEND)
            _show_comparison(opened, question)
            asked.append(question)
    if asked:
        say("\nThe same in five lines of Python", style="bold")
        say(five_lines(asked[0], paths or (), embed_model=embed_model or "local"))
    elif not options.is_in_memory:
        say(f"the index is kept: llama-retrieval search QUESTION --kb {kb}")
    raise typer.Exit(code)


def _check_questions(ask: list[str] | None, options: KbOptions, *, has_paths: bool) -> None:
    """Raise before indexing if no question could be answered afterwards."""
    if not all(question.strip() for question in ask or ()):
        raise ConfigurationError("--ask is empty; write a question: --ask 'What is ...?'")
    if has_paths and not ask and options.is_in_memory and not sys.stdin.isatty():
        raise ConfigurationError(
            "there is no question, and the index would not be kept; add --ask QUESTION, or keep "
            "the index with --kb embedded:./kb and search it afterwards"
        )


# The imports of LlamaIndex, here and below, take two seconds; --help does not need them.
def samples() -> "Reading":
    """Return Python's language reference and four Chinese laws."""
    from llama_retrieval_ext.knowledge_base.readers.files import Reading  # noqa: PLC0415

    return Reading(watched(_sample_documents()))


def _sample_documents() -> "list[Document]":
    from llama_retrieval_ext.samples.python_topics import python_topics  # noqa: PLC0415
    from llama_retrieval_ext.samples.regulations import zh_safety_laws  # noqa: PLC0415

    return [*python_topics(), *zh_safety_laws()]


def _check_samples(kb: "ext.KnowledgeBase") -> None:
    """Raise if the knowledge base holds other documents than the samples."""
    stored = {document.document_id for document in kb.documents()}
    if stored and not stored.issubset(document.doc_id for document in _sample_documents()):
        raise ConfigurationError(
            f"{kb.url} holds other documents, to which the samples are not added; search them with "
            f"llama-retrieval search QUESTION --kb {kb.url}, or choose another --kb"
        )


def _prompted() -> Iterator[str]:
    """Yield typed questions until an empty line; none without a terminal."""
    while sys.stdin.isatty():
        question = typer.prompt("\nyour question (none to end)", default="", show_default=False)
        if not question.strip():
            return
        yield question


def _show_comparison(kb: "ext.KnowledgeBase", question: str) -> None:
    """Print the ranks and scores of documents by each retriever, and the best passage.

    Each document that any retriever found has the rank of its best passage in each. The last
    retriever determines the order.
    """
    results = {mode: kb.search(question, mode, top_k=_DEPTH) for mode in _MODES}
    columns = [_best_passages(result) for result in results.values()]
    documents = dict.fromkeys(
        name for column in reversed(columns) for name in list(column)[:_SHOWN]
    )
    header = ["document", *(f"{mode} {_took(outcome)}" for mode, outcome in results.items())]
    say(f"\n{question}", style="bold")
    say_table(header, [[name, *(_cell(column, name) for column in columns)] for name in documents])
    for name, hit in list(columns[-1].items())[:1]:
        say(f"{name}:", style="dim")
        show_passage(hit.text, question, full=False)


def _best_passages(result: "ext.SearchResult") -> "dict[str, ext.Hit]":
    """Return the best hit of each document by document id, best document first."""
    best: dict[str, ext.Hit] = {}
    for hit in result.hits:
        best.setdefault(hit.node.ref_doc_id or hit.node.node_id, hit)
    return best


def _took(result: "ext.SearchResult") -> str:
    seconds = None if result.trace is None else result.trace.duration_s
    return "" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _cell(column: "Mapping[str, ext.Hit]", name: str) -> str:
    if name not in column:
        return f"{'-':>{_RANK_CELLS}}"
    rank, score = list(column).index(name) + 1, three_digits(column[name].score or 0.0)
    return f"{rank:>{_RANK_CELLS}}  {score:>{_SCORE_CELLS}}"


_OF_SAMPLES = """\
from llama_retrieval_ext import {names}
from llama_retrieval_ext.samples.python_topics import python_topics
kb = KnowledgeBase.open("embedded::memory:", embed_model={model})
kb.add(python_topics())
print(kb.search({question}, top_k=3))"""
_OF_FILES = """\
from llama_retrieval_ext import {names}, read_documents
documents = read_documents({paths})
kb = KnowledgeBase.open("embedded::memory:", embed_model={model})
kb.add(documents)
print(kb.search({question}, top_k=3))"""


def five_lines(question: str, paths: Sequence[Path] = (), *, embed_model: str = "local") -> str:
    """Return Python code that answers a question from the English samples, or from files.

    Examples:
        >>> print(five_lines("What is a tuple?").splitlines()[-1])
        print(kb.search("What is a tuple?", top_k=3))

    """
    is_local = embed_model == "local"
    literals = [_literal(str(path)) for path in paths]
    return (_OF_FILES if paths else _OF_SAMPLES).format(
        names="KnowledgeBase, LocalEmbedding" if is_local else "KnowledgeBase",
        model="LocalEmbedding()" if is_local else _literal(embed_model),
        paths=literals[0] if len(literals) == 1 else f"[{', '.join(literals)}]",
        question=_literal(question),
    )


def _literal(text: str) -> str:
    # Like repr, but always with double quotes, as in the rest of the program.
    return json.dumps(text, ensure_ascii=False)
