"""`TextToCypher`: runs a statement that an LLM writes, for a trusted caller, without a scope."""

import re
from dataclasses import dataclass
from typing import Any, Final

from llama_index.core.llms import LLM
from llama_index.core.schema import TextNode

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError, StoreError, StoreUnavailableError
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.running import callers
from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.graph.backend import CypherGraph, GraphBackend, GraphSummary, summary
from llama_retrieval_ext.graph.cypher import Rows
from llama_retrieval_ext.graph.neo4j_rows import without_internal
from llama_retrieval_ext.hits import ordered
from llama_retrieval_ext.llm.model import SEARCH_TIMEOUT_S, LanguageModel, filled
from llama_retrieval_ext.llm.parsing import without_thinking
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.scope import Scope

NAME: Final = "text_to_cypher"
# The retriever of its rows, which have no relevance score.
_GENERATED: Final = "generated"
_SCORE: Final = 0.5
_FAILED: Final = (
    "the server refuses it: check its syntax, variables and functions, and whether its expressions "
    "are defined for all values in the graph"
)
_SCOPED: Final = (
    "a statement of an LLM is not run for a scope, which it could leave; the rules and the other "
    "searches of the graph obey scopes"
)
# What a read transaction does not stop: files and URLs, procedures, and the server's own commands.
# An escape such as \u0043 could spell one of them.
_REFUSED: Final = re.compile(r"(?i)\b(?:load|call|show|terminate|use)\b|\\u")
_LIMITED: Final = re.compile(r"(?i)\blimit\s+\d+\s*$")
_LONGEST_NAME: Final = 60
_SCHEMA_LINES: Final = 60
_MOST_ROWS: Final = 20
_FENCED: Final = re.compile(r"```(?:cypher\b)?(.*?)```", re.DOTALL | re.IGNORECASE)
_PROMPT: Final = """\
Write one Cypher statement that answers the question from this graph. Only MATCH, OPTIONAL MATCH,
WHERE, RETURN, ORDER BY and LIMIT; no subqueries, no procedures, no parameters. Every node has a
`name`, perhaps `name_en`. Return names, not nodes. Give the statement alone.

The graph has:
{schema}

Question: {question}
Statement:
"""
_REPAIR: Final = """\
{prompt}
This statement does not do:
{statement}
Because: {problem}
Write a better one, the statement alone.
Statement:
"""


@dataclass(frozen=True, slots=True)
class CypherAnswer:
    """The executed statement, and its rows by column name."""

    statement: str
    rows: tuple[dict[str, Any], ...]  # Any: what Cypher returns

    def sentences(self) -> list[str]:
        """Return each row as text, each once."""
        lines = ("; ".join(f"{key}: {value}" for key, value in row.items()) for row in self.rows)
        return list(dict.fromkeys(lines))


class _RefusedError(ConfigurationError):
    """The statement is not run; the model gets the reason."""


class TextToCypher:
    """Runner of LLM-written statements, for a trusted caller.

    A statement sees the whole graph, so under a scope there is no answer, and the result is
    degraded. Text around the statement is stripped; it runs in a transaction that cannot write,
    and may not load files, call procedures or give commands. If a statement is refused or fails,
    the model gets the reason and one more attempt. If that attempt fails too, there is no answer,
    and the result is degraded. Messages of the server are passed on to neither: they may quote
    data. At most 20 rows are returned, without internal properties and embeddings.

    Args:
        graph: A graph on Neo4j.
        llm: Any LlamaIndex LLM.

    Raises:
        ConfigurationError: The graph does not support Cypher.
    """

    def __init__(self, graph: GraphBackend, llm: LLM) -> None:
        if not isinstance(graph, CypherGraph):
            raise ConfigurationError(
                f"text-to-Cypher needs a graph on Neo4j, got {graph!r}; the rules need none"
            )
        self.graph: CypherGraph = graph
        self.backend = of_type(graph, GraphBackend, "graph")
        self.model = LanguageModel(llm, SEARCH_TIMEOUT_S, share=1.0)

    def plan_answer(
        self, question: str, *, scope: Scope | None = None
    ) -> Plan[CypherAnswer | None]:
        """Return the rows; None under a scope, or if no valid statement was written."""
        if scope is not None:
            note_degraded(NAME, _SCOPED)
            return None
        schema = yield from summary(self.backend, scope=None)
        prompt = first = filled(_PROMPT, schema=_described(schema), question=question)
        problem = ""
        for _ in range(2):
            written = yield from self.model.answers(NAME, prompt, stripped)
            if not written:
                return None
            try:
                return (yield from self._run(written[0]))
            except _RefusedError as error:
                problem = str(error)
            prompt = filled(_REPAIR, prompt=first, statement=written[0], problem=problem)
        note_degraded(NAME, f"the LLM wrote no statement that could be run: {problem}")
        return None

    answer, aanswer = callers(plan_answer)

    def _run(self, statement: str) -> Plan[CypherAnswer]:
        if word := _REFUSED.search(statement):
            raise _RefusedError(f"{word[0]} is refused: only MATCH, WHERE, RETURN, ORDER BY, LIMIT")
        if not _LIMITED.search(statement):
            statement = f"{statement} LIMIT {_MOST_ROWS}"
        try:
            rows: Rows = yield self.graph.plan_read(statement, {})
        except StoreUnavailableError:
            raise
        except StoreError:  # without its text, which may quote data
            raise _RefusedError(_FAILED) from None
        shown = ({key: without_internal(row[key]) for key in row} for row in rows[:_MOST_ROWS])
        return CypherAnswer(statement, tuple(shown))


class GeneratedRetriever(Retriever):
    """Retriever over the rows of a statement that an LLM writes, as sentences."""

    def __init__(self, text_to_cypher: TextToCypher) -> None:
        super().__init__(top_k=None, name=_GENERATED)
        self.text_to_cypher = text_to_cypher

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Let the language model write a query, and run it."""
        answer = yield from self.text_to_cypher.plan_answer(query.query_str, scope=query.scope)
        if answer is None:
            return []
        metadata: dict[str, object] = {"kind": _GENERATED, "statement": answer.statement}
        condition = None if query.filters is None else parse_filters(query.filters)
        if not matches(condition, metadata):
            return []
        nodes = [TextNode(text=sentence, metadata=metadata) for sentence in answer.sentences()]
        for node in nodes:
            node.id_ = f"{_GENERATED}/{node.hash[:16]}"
            node.excluded_embed_metadata_keys = node.excluded_llm_metadata_keys = [*metadata]
        return ordered([Hit(node=node, score=_SCORE, source=self.name) for node in nodes])


def stripped(answer: str) -> str:
    """Return the statement in a model's answer, without thinking, fence or preamble.

    Examples:
        >>> stripped("<think>hm</think>Here it is: ```cypher MATCH (a) RETURN a.name; ```")
        'MATCH (a) RETURN a.name'

    """
    text = without_thinking(answer)
    fenced = _FENCED.search(text)
    text = fenced[1] if fenced else text if "```" not in text else ""  # it was cut off
    start = re.search(r"(?im)^[^\S\n]*(?:optional\s+)?match\b", text)
    return text[start.start() if start else 0 :].strip().rstrip(";").strip()


def _described(schema: GraphSummary) -> str:
    """Return the relations of a graph, or its labels if there are none, one per line.

    Documents name them: what is longer than a name, or would end its line or quotes, is left out.
    """
    relations = [[*map(_spelled, relation)] for relation in schema.relations]
    lines = [f"(:{a})-[:{type_}]->(:{b})" for a, type_, b in relations if a and type_ and b]
    lines = lines or [f"(:{label})" for label in map(_spelled, schema.labels) if label]
    return "\n".join(lines[:_SCHEMA_LINES]) or "(nothing)"


def _spelled(name: str) -> str:
    """Return a label or type as Cypher has it, such as LlamaIndex's relation "Is located in"."""
    if len(name) > _LONGEST_NAME or not name.isprintable() or "`" in name:
        return ""
    return name if name.isidentifier() else f"`{name}`"
