"""Reading judgements: tables, BEIR folders, `ir_datasets`, LlamaIndex's evaluation datasets.

Not every version of LlamaIndex has its two datasets, so they are recognised by their attributes,
or read from their JSON files.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from llama_retrieval_ext.errors import ConfigurationError, describe, optional_module
from llama_retrieval_ext.evaluation.judgements import BY_LLM, LABELS, Collector, Judgements, Level
from llama_retrieval_ext.knowledge_base.readers.tables import delimiter_of
from llama_retrieval_ext.wording import quoted

if TYPE_CHECKING:
    from pandas import DataFrame


@runtime_checkable
class QuestionPairs(Protocol):
    """LlamaIndex's ``EmbeddingQAFinetuneDataset``.

    Attributes:
        queries: Text of each question, by id.
        relevant_docs: Ids of the nodes that answer a question, by question id.
    """

    queries: dict[str, str]
    relevant_docs: dict[str, list[str]]


@runtime_checkable
class RagExamples(Protocol):
    """LlamaIndex's ``LabelledRagDataset``; each example is a pydantic object.

    Attributes:
        examples: Objects with ``query``, ``query_by`` and ``reference_contexts``.
    """

    examples: Sequence[Any]  # Any: the class is missing in some versions


@runtime_checkable
class _Table(Protocol):
    """A table of pandas."""

    def astype(self, dtype: object) -> Any: ...  # noqa: ANN401 - of pandas
    def notna(self) -> Any: ...  # noqa: ANN401 - of pandas


# Answers by question, or rows of a table.
Rows: TypeAlias = Mapping[str, str | Iterable[str] | Mapping[str, float]] | Sequence[Any]
Source: TypeAlias = "str | Path | Judgements | DataFrame | QuestionPairs | RagExamples | Rows"

_IR_DATASETS: Final = "ir_datasets:"
# Errors of content that is not UTF-8, JSON or CSV, or has another shape than its kind of file.
_MALFORMED: Final = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, csv.Error)
# Column names; the first that a table has is used.
_QUESTIONS: Final = ("question", "query", "text")
_LENGTHS: Final = (2, 3)  # of a row without names
_GRADES: Final = ("grade", "relevance", "score", "label")
_TARGETS: Final[Mapping[Level, Sequence[str]]] = {
    Level.NODE: ("node", "node_id", "chunk_id"),
    Level.DOCUMENT: ("document", "document_id", "doc_id", "corpus-id", "file", "source"),
    Level.PASSAGE: ("passage", "context", "answer_text"),
}


def load_judgements(source: Source, *, level: Level | None = None) -> Judgements:
    r"""Return the judgements read from a source.

    - a ``.csv``, ``.tsv`` or ``.jsonl`` file or a pandas table with a row for each question and
      target: columns ``question`` (or ``query``) and ``document`` (or ``file``), ``node`` or
      ``passage``, optionally ``grade`` and ``query_id``;
    - a dict of questions with what answers them, a name, a list or a dict of grades by name; or a
      list of pairs of both, with the grade as a third value if any; or a list of rows as dicts;
    - a BEIR folder: ``queries.jsonl``, and ``qrels/test.tsv`` or ``qrels.tsv``;
    - ``ir_datasets:ID``, if that package is installed;
    - LlamaIndex's ``EmbeddingQAFinetuneDataset`` and ``LabelledRagDataset``, or their ``.json``
      files.

    Args:
        source: One of these; `Judgements` are returned unchanged.
        level: Level of the targets; None for that of the source: by the column name of a table;
            documents for a dict, a list of pairs, BEIR and ``ir_datasets``, where a node without a
            document is matched by its own id; nodes and passages for the two datasets of
            LlamaIndex.

    Raises:
        ConfigurationError: The source cannot be read as any of these.
        MissingDependencyError: The source needs ``ir_datasets``, which is not installed.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "judged.csv"
        >>> _ = file.write_text("question,document\nHow many days of leave?,leave.pdf\n")
        >>> load_judgements(file)
        Judgements(1 question, 1 relevant document, labels)

    """
    if isinstance(source, Judgements):
        return source
    if isinstance(source, str | Path):
        try:
            return _from_path(str(source), level)
        except ConfigurationError:
            raise
        except _MALFORMED as error:
            raise ConfigurationError(f"{source} cannot be read: {describe(error)}") from error
    return _from_object(source, level)


def _from_object(source: object, level: Level | None) -> Judgements:
    """Return the judgements of a dataset, a dict, a list or a table."""
    if isinstance(source, QuestionPairs):
        return _from_pairs(source.queries, source.relevant_docs, level or Level.NODE)
    if isinstance(source, RagExamples):
        rows = [example.model_dump(mode="json") for example in source.examples]
        return _from_rag_examples(rows, level or Level.PASSAGE)
    if isinstance(source, Mapping):
        source = [
            (question, *pair) for question, targets in source.items() for pair in _graded(targets)
        ]
    if isinstance(source, Sequence):
        return _from_rows(map(partial(_row, level), source), level, "the list")
    if isinstance(source, _Table):
        filled = source.astype(object).where(source.notna(), None)  # pandas has NaN in empty cells
        return _from_rows(filled.to_dict("records"), level, "the table")
    raise ConfigurationError(
        f"judgements are a dict or list of questions with document ids, a CSV or JSONL file, a "
        f"BEIR folder, 'ir_datasets:ID', a pandas table or a LlamaIndex dataset, got "
        f"{type(source).__name__}"
    )


def _graded(targets: object) -> list[tuple[object, ...]]:
    """Return the targets of a question, each with its grade if it has one."""
    if isinstance(targets, Mapping):
        return [*targets.items()]
    named = [targets] if isinstance(targets, str) or not isinstance(targets, Iterable) else targets
    return [(target,) for target in named]


def _row(level: Level | None, row: object) -> Mapping[str, object]:
    """Return a row of a list by names of columns."""
    if isinstance(row, Mapping):
        return row
    if isinstance(row, str) or not isinstance(row, Sequence) or len(row) not in _LENGTHS:
        raise ConfigurationError(
            f"the list has {quoted(row)}; write (question, document) or (question, document, grade)"
        )
    names = (_QUESTIONS[0], _TARGETS[level or Level.DOCUMENT][0], _GRADES[0])
    return dict(zip(names, row, strict=False))


def _from_path(source: str, level: Level | None) -> Judgements:
    if source.startswith(_IR_DATASETS):
        return _from_ir_datasets(source.removeprefix(_IR_DATASETS), level or Level.DOCUMENT)
    path = Path(source)
    if path.is_dir():
        return _from_beir(path, level or Level.DOCUMENT)
    if not path.is_file():
        raise ConfigurationError(
            f"there is no file or folder {source}; an id of ir_datasets is written {_IR_DATASETS}ID"
        )
    if path.suffix == ".json":
        return _from_json(path, level)
    if path.suffix == ".jsonl":
        return _from_rows(_json_rows(path), level, source)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        text = lines.read()
    rows = csv.DictReader(StringIO(text, newline=""), delimiter=delimiter_of(text))
    return _from_rows(rows, level, source)


def _json_rows(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8") as lines:
        for row in (json.loads(line) for line in lines if line.strip()):
            if not isinstance(row, dict):
                raise ConfigurationError(f"{path} has the line {row!r}, which is no JSON object")
            yield row


def _from_rows(rows: Iterable[Mapping[str, object]], level: Level | None, where: str) -> Judgements:
    judged, kind_of_row, origin = Collector(), level, LABELS
    for row in rows:
        kinds = (kind for kind, names in _TARGETS.items() if any(name in row for name in names))
        kind_of_row = level or kind_of_row or next(kinds, None)
        question = _value(row, _QUESTIONS)
        target = None if kind_of_row is None else _value(row, _TARGETS[kind_of_row])
        if question is None or target is None or kind_of_row is None:
            raise ConfigurationError(_missing_columns(where, row, kind_of_row))
        grade = _grade(row, where)
        query_id = _value(row, ("query_id", "query-id"))
        judged.add(question, target, grade, query_id or "")
        origin = _value(row, ("origin",)) or origin
    return judged.judgements(kind_of_row or Level.DOCUMENT, origin)


def _value(row: Mapping[str, object], names: Sequence[str]) -> str | None:
    values = (row.get(name) for name in names)
    value = next((value for value in values if value not in (None, "")), None)
    if isinstance(value, list | dict):
        raise ConfigurationError(f"a row has {value!r} for {names[0]!r}; write a row for each")
    return None if value is None else str(value)


def _grade(row: Mapping[str, object], where: str) -> int:
    grade = _value(row, _GRADES)
    try:
        return 1 if grade is None else round(float(grade))
    except (OverflowError, ValueError) as error:
        raise ConfigurationError(f"{where} has the grade {grade!r}; a grade is a number") from error


def _missing_columns(where: str, row: Mapping[str, object], level: Level | None) -> str:
    targets = [n for lv, names in _TARGETS.items() if level in {lv, None} for n in names]
    return (
        f"{where} has a row with {dict(row)}; each row needs a question ({', '.join(_QUESTIONS)}) "
        f"and what answers it ({', '.join(targets)})"
    )


def _from_beir(folder: Path, level: Level) -> Judgements:
    texts = folder / "queries.jsonl"
    grades = [folder / "qrels" / "test.tsv", folder / "qrels.tsv"]
    qrels = next((grade for grade in grades if grade.is_file()), None)
    if not texts.is_file() or qrels is None:
        raise ConfigurationError(
            f"{folder} is no BEIR folder: it needs queries.jsonl, and qrels/test.tsv or qrels.tsv"
        )
    queries = {str(row["_id"]): str(row["text"]) for row in _json_rows(texts)}
    with qrels.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t"))[1:]
    return _from_qrels(
        queries, ((id_, target, round(float(grade))) for id_, target, grade in rows), level
    )


def _from_ir_datasets(id_: str, level: Level) -> Judgements:
    package = optional_module("ir_datasets", f"{_IR_DATASETS}{id_}", package="ir-datasets")
    dataset = package.load(id_)
    queries = {
        str(record.query_id): str(record.default_text()) for record in dataset.queries_iter()
    }
    rows = (
        (record.query_id, record.doc_id, int(record.relevance)) for record in dataset.qrels_iter()
    )
    return _from_qrels(queries, rows, level)


def _from_qrels(
    queries: Mapping[str, str], rows: Iterable[tuple[str, str, int]], level: Level
) -> Judgements:
    """Return the judgements of known questions from rows of question id, target and grade."""
    judged = Collector()
    for query_id, target, grade in rows:
        if query_id in queries:
            judged.add(queries[query_id], target, grade, query_id)
    return judged.judgements(level)


def _from_json(path: Path, level: Level | None) -> Judgements:
    """Return the judgements from a JSON file of one of LlamaIndex's two datasets."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(saved, dict) and {"queries", "relevant_docs"} <= saved.keys():
        return _from_pairs(saved["queries"], saved["relevant_docs"], level or Level.NODE)
    rows = saved.get("examples") if isinstance(saved, dict) else saved
    if isinstance(rows, list) and all("reference_contexts" in row for row in rows):
        return _from_rag_examples(rows, level or Level.PASSAGE)
    raise ConfigurationError(
        f"{path} is neither an EmbeddingQAFinetuneDataset nor a LabelledRagDataset of LlamaIndex; "
        "rows of a question and what answers it go into a .jsonl or .csv file"
    )


def _from_pairs(
    queries: Mapping[str, str], documents: Mapping[str, Sequence[str]], level: Level
) -> Judgements:
    relevant = {id_: dict.fromkeys(ids, 1) for id_, ids in documents.items()}
    return Judgements(queries, relevant, level)


def _from_rag_examples(rows: Sequence[Mapping[str, Any]], level: Level) -> Judgements:
    """Return judgements of reference contexts; synthetic if an LLM wrote the questions."""
    judged, is_synthetic = Collector(), False
    for row in rows:
        is_synthetic = is_synthetic or (row.get("query_by") or {}).get("type") == "ai"
        for context in row["reference_contexts"] or ():
            judged.add(row["query"], context)
    origin = BY_LLM if is_synthetic else LABELS
    return judged.judgements(level, origin)
