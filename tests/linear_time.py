"""Functions that read texts or lists, and texts that make them slow: time must be linear.

``python -m tests.linear_time`` prints the table of tests/benchmarks/README.md.
"""

import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, TypeAlias, TypeVar

from llama_index.core.schema import Document, TextNode
from llama_index.core.vector_stores.types import FilterOperator
from pydantic import BaseModel

from llama_retrieval_ext.capabilities.query_engine import as_hits
from llama_retrieval_ext.capabilities.rag import check_citations
from llama_retrieval_ext.cli.output import one_line, quote
from llama_retrieval_ext.config.registry import default_registry
from llama_retrieval_ext.config.yaml import validate_yaml
from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.display.results import hit_html
from llama_retrieval_ext.errors import RetrievalExtError
from llama_retrieval_ext.evaluation.datasets import load_judgements
from llama_retrieval_ext.filter_syntax import parse_filter_texts
from llama_retrieval_ext.filters import Compare, matches
from llama_retrieval_ext.graph.elements import GraphNode
from llama_retrieval_ext.graph.entity_linking import _lines
from llama_retrieval_ext.graph.passage_graph import PassageGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.graph.phrases import acronyms, chinese_runs, phrases, title_words, words
from llama_retrieval_ext.graph.rules.rule_set import RuleSet
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.graph.text_to_cypher import stripped
from llama_retrieval_ext.interpreter import Interpreter
from llama_retrieval_ext.knowledge_base.documents import check_ids
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey
from llama_retrieval_ext.knowledge_base.passages import PassageParser
from llama_retrieval_ext.knowledge_base.readers.code import definitions
from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from llama_retrieval_ext.knowledge_base.readers.outline import (
    code_outline,
    markdown_outline,
    rst_outline,
)
from llama_retrieval_ext.llm import parsing
from llama_retrieval_ext.llm.model import shortened
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.intent import default_intent_rules
from llama_retrieval_ext.retrievers.routing.selectors import Choice
from llama_retrieval_ext.services.knowledge import related_in_passages
from llama_retrieval_ext.services.report import _inline
from llama_retrieval_ext.stages.rerank.llm import relevances_in
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.stages.rewrite.hyde import passage_in
from llama_retrieval_ext.stages.rewrite.multi_query import distinct, keeps_language, wordings
from llama_retrieval_ext.stages.selection import Dedupe
from llama_retrieval_ext.text.correction import Vocabulary, replacements
from llama_retrieval_ext.text.gazetteer import Gazetteer
from llama_retrieval_ext.text.highlighting import excerpt, matched_spans, nearest_sentence
from llama_retrieval_ext.text.near_duplicates import shingles
from llama_retrieval_ext.text.normalization import dominant_script, normal, share_outside
from llama_retrieval_ext.text.relative_dates import dates_in
from llama_retrieval_ext.text.segmentation import chinese_persons, pieces
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.text.validity import validity_in
from llama_retrieval_ext.urls import shown_url
from llama_retrieval_ext.wording import nearest

T = TypeVar("T")
Reads: TypeAlias = Callable[[str], object]

SMALL: Final = 20_000
LARGE: Final = 80_000


class _Facts(BaseModel):
    facts: list[str]


def _hit(text: str) -> Hit:
    return Hit(node=TextNode(text=text, metadata={"file_name": "a.md"}), score=1.0)


def _read_file(suffix: str) -> Reads:
    def read(text: str) -> object:
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"a{suffix}"
            file.write_bytes(text.encode("utf-8", "replace"))
            return read_documents(file)

    return read


def _judgements(text: str) -> object:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "judged.csv"
        file.write_text(f"question,document\n{text},a", encoding="utf-8", errors="replace")
        return load_judgements(file)


def _passages(text: str) -> object:
    document = Document(text=text, metadata={"file_name": "a.md"})
    return PassageParser(chunk_size=512, chunk_overlap=64).get_nodes_from_documents([document])


def _passage_graph(text: str) -> object:
    nodes = [GraphNode(f"n{n}", text=text, properties={"title": text[:100]}) for n in range(2)]
    graph = PassageGraph(nodes, [], PassageLinks())
    return graph.named_titles(text[:10_000]), graph.named_terms(text[:10_000])


_NAMES = Gazetteer(
    [(name, name) for name in ("tower crane", "IT", "a", "中国建筑", "中", "article 12", "-", "é")]
)
_FILTERS = Interpreter({"genres": ["Comedy", "drama"], "year": [1994, 2022]})
_TOKENIZER = Tokenizer()
_VOCABULARY = Vocabulary(_TOKENIZER)
_VOCABULARY.put("n1", "The annual leave of an employee", "")
_RULES = default_intent_rules()
_CHOICES = [Choice(name, name) for name in ("exact", "time_bound")]
_REGISTRY = default_registry()
_TODAY = date(2024, 5, 8)

# A function of a text is one line here.
FUNCTIONS: Final[dict[str, Reads]] = {
    "Tokenizer.tokens": _TOKENIZER.tokens,
    "Tokenizer.query_tokens": _TOKENIZER.query_tokens,
    "Tokenizer.term_ids": _TOKENIZER.term_ids,
    "normal": normal,
    "pieces": pieces,
    "dominant_script": dominant_script,
    "share_outside": lambda text: share_outside(text, ["en"]),
    "shingles": shingles,
    "chinese_persons": chinese_persons,
    "matched_spans": lambda text: matched_spans(text, text[:1_000]),
    "nearest_sentence": lambda text: nearest_sentence(text, text[:1_000]),
    "replacements": lambda text: replacements(text, _VOCABULARY, [""]),
    "vocabulary": lambda text: _VOCABULARY.put("n2", text, ""),
    "excerpt": lambda text: excerpt(text, text[:1_000], length=200),
    "Interpreter.interpret": _FILTERS.interpret,
    "dates_in": lambda text: dates_in(text, _TODAY),
    "validity_in": validity_in,
    "instant": instant,
    "Gazetteer.find": _NAMES.find,
    "Gazetteer.find_similar": _NAMES.find_similar,
    "Gazetteer of a name": lambda text: Gazetteer([(text, "a"), (text[:190], "b")]).find("a"),
    "names in an answer": _lines,
    "words": words,
    "acronyms": acronyms,
    "phrases": phrases,
    "chinese_runs": chinese_runs,
    "title_words": title_words,
    "PassageGraph": _passage_graph,
    "Cypher in an answer": stripped,
    "related: a passage": lambda text: related_in_passages([_hit(f"a {text}")], "a", ner=None),
    "related: a subject": lambda text: related_in_passages([_hit(text[:500])], text, ner=None),
    "without_thinking": parsing.without_thinking,
    "cleaned": parsing.cleaned,
    "unfenced": parsing.unfenced,
    "is_refusal": parsing.is_refusal,
    "texts_in_json": parsing.texts_in_json,
    "visible": parsing.visible,
    "parse_structured": lambda text: parsing.parse_structured(text, _Facts),
    "wordings": lambda text: wordings(text, Query("annual leave")),
    "distinct": lambda text: distinct(text.split(" ")[:100], of=text),
    "keeps_language": lambda text: keeps_language(text, text),
    "passage_in": passage_in,
    "relevances_in": lambda text: relevances_in(text, documents=10),
    "check_citations": lambda text: check_citations(text, as_hits([text, "Leave is 25 days."])),
    "shortened": lambda text: shortened(text, 100),
    "RuleRerank": lambda text: RuleRerank().refine(Query(text[:1_000]), [_hit(text)]),
    "intent rules": lambda text: _RULES.select(Query(text), _CHOICES),
    "filter text": lambda text: parse_filter_texts([text]),
    "filter text: a value": lambda text: parse_filter_texts([f"a = {text}"]),
    "filter text: a list": lambda text: parse_filter_texts([f"a in (b, {text}"]),
    "one_line": lambda text: one_line(text, cells=80),
    "quote": lambda text: quote(f"{text}\na\n{text}", text[:1_000], width=80, lines=3),
    "hit_html": lambda text: hit_html(_hit(text)),
    "report": _inline,
    "shown_url": shown_url,
    "rules": parse_rules,
    "pipelines": lambda text: validate_yaml(text, _REGISTRY),
    "Markdown": markdown_outline,
    "reStructuredText": rst_outline,
    "code": lambda text: code_outline(text, ".py"),
    "code of Go": lambda text: definitions(f"func ({text}) f() {{}}", ".go"),
    "PassageParser": _passages,
    "read .txt": _read_file(".txt"),
    "read .md": _read_file(".md"),
    "read .csv": _read_file(".csv"),
    "read .tsv": _read_file(".tsv"),
    "read .html": _read_file(".html"),
    "read .eml": _read_file(".eml"),
    "read .rtf": _read_file(".rtf"),
    "read .ipynb": _read_file(".ipynb"),
    "read .json": _read_file(".json"),
    "read .adoc": _read_file(".adoc"),
    "read .org": _read_file(".org"),
    "read .tex": _read_file(".tex"),
    "front matter": lambda text: _read_file(".md")(f"---\na: {text}\n---\nb"),
    "a filter in Python": lambda text: matches(
        Compare("k", FilterOperator.TEXT_MATCH_INSENSITIVE, text[:1_000]), {"k": text}
    ),
    "nearest names": lambda text: nearest(text[:1_000], [text, "a", "year"]),
    "judgements": _judgements,
    "read .py": _read_file(".py"),
}


def _same_ids(count: int) -> None:
    nodes = [TextNode(id_=str(n), text="a") for n in range(count)]
    check_ids(DocumentKey("t", "k", "d"), [*nodes, nodes[-1]])


def _rules(count: int) -> object:
    (rule,) = parse_rules(
        "rules: [{id: r, kind: k, match: [{node: a, label: A}, {follow: F, node: b}], then: a,"
        " concludes: {from: a, relation: C, to: b}}]"
    )
    return RuleSet(tuple(replace(rule, id=str(n)) for n in range(count // 4))).variants


def _near_duplicates(count: int) -> object:
    nodes = [TextNode(id_=str(n), text=f"a text about {n}") for n in range(count // 8)]
    return Dedupe("nearly").refine(Query("a"), [Hit(node=node, score=None) for node in nodes])


# A function of a number of things is one line here.
LISTS: Final[dict[str, Callable[[int], object]]] = {
    "nodes of equal ids": _same_ids,
    "rules": _rules,
    "hits of nearly equal texts": _near_duplicates,
    "values to interpret by": lambda count: Interpreter({"a": list(map(str, range(count)))}),
}

# Repeated to a length, after a prefix.
ATOMS: Final[dict[str, str]] = {
    "a letter": "a",
    "a Chinese character": "中",
    "a word": "word ",
    "capitals": "Ab ",
    "an acronym": "IT ",
    "dashes": "-",
    "a-": "a-",
    " - ": " - ",
    "<a ": "<a ",
    "<": "<",
    "[": "[",
    "(": "(",
    "{": '{"a":',
    "[]": "[]",
    "{ ": "{ ",
    "['": "['",
    "[,": "[1,",
    "{'": ",{'",
    "} {": "} {",
    "```json": "```json",
    "backslashes": "\\",
    ")": ")",
    "**": "**",
    "`": "`",
    "fences": "\n```\n",
    "'": "'",
    '"': '"',
    "quoted": '"a" ',
    "tabs": "\t",
    "spaces": " ",
    "lines": "\n",
    "lines of spaces": "  \n",
    "digits": "1",
    "a number and a space": "1 ",
    "1,": "1,",
    "1.": "1.",
    "=": "a=",
    "#": "# ",
    "|": "| a ",
    "not": "not ",
    "and": "a=1 and ",
    "document": "Doc 1 ",
    "think": "<think>",
    "citations": "[1]",
    "dots": ".",
    "sentences": "Ab cd. ",
    "combining marks": "\u0301",
    "two kinds of marks": "\u0316\u0301",
    "accents": "e\u0301",
    # One character is 18 in NFKC.
    "marks between joiners": "\u0301\u200d\u0323",
    "stacked Khmer": "\u1780\u17d2",
    "Thai vowels": "\u0e32",
    "zero-width spaces": "\u0e01\u200b",
    "three scripts": "あア漢",
    "camel case": "aB",
    "ligatures": "\ufdfa" + 17 * " ",
    "CJK and spaces": "中 ",
    "title quotes": "《中",
    "ideographic commas": "，",  # noqa: RUF001
    "half a character": "\ud800",
    "yaml": "- a:\n  ",
    "distinct words": "",
}
# Before and after what is repeated.
FRAMES: Final = (("", ""), ('a "1 ', " b<"), ("]", "<"))


def text_of(atom: str, length: int, frame: tuple[str, str] = ("", "")) -> str:
    """Return a hostile text of a length."""
    before, after = frame
    room = length - len(before) - len(after)
    if not ATOMS[atom]:
        repeated = " ".join(f"W{n:x}" for n in range(room // 4))
    else:
        repeated = ATOMS[atom] * (room // len(ATOMS[atom]) + 1)
    return before + repeated[:room] + after


def seconds(reads: Callable[[T], object], given: T) -> float:
    """Return the processor time of a call; errors of this package are answers."""
    gc.disable()
    start = process_time()
    try:
        with suppress(RetrievalExtError, ValueError):
            reads(given)
        return process_time() - start
    finally:
        gc.enable()


def slowest(name: str, *, length: int = 500, count: int = 2) -> list[tuple[str, tuple[str, str]]]:
    """Return the texts, as atom and frame, that take a function the longest at a short length."""
    texts = [(atom, frame) for atom in ATOMS for frame in FRAMES]
    taken = {text: seconds(FUNCTIONS[name], text_of(text[0], length, text[1])) for text in texts}
    return sorted(texts, key=taken.__getitem__, reverse=True)[:count]


if __name__ == "__main__":
    print("| function | 20,000 | 80,000 characters | worst text |\n| --- | --- | --- | --- |")  # noqa: T201 - a table
    for function in FUNCTIONS:
        rows = [
            (*(seconds(FUNCTIONS[function], text_of(atom, n, frame)) for n in (LARGE, SMALL)), atom)
            for atom, frame in slowest(function)
        ]
        large, small, where = max(rows)
        print(f"| {function} | {small:.3f} s | {large:.3f} s | {where} |")  # noqa: T201
