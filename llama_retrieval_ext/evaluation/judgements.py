"""`Judgements`: questions with relevant nodes, documents or passages."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.arguments import NamedEnum
from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.normalization import spellings
from llama_retrieval_ext.wording import counted, path_tails

LABELS = "labels"
CLICKS = "clicks"
SYNTHETIC = "synthetic"
KNOWN_ITEMS = f"{SYNTHETIC}: known items"
BY_LLM = f"{SYNTHETIC}: by an LLM"


class Level(NamedEnum):
    """Kind of target of judgements.

    ``NODE``: ids of nodes. ``DOCUMENT``: ids of documents, or files by path or name; the first hit
    of a document counts, and a node without a document is matched by its own id. ``PASSAGE``:
    texts; a hit counts if its text is part of the passage, or contains it; white space is ignored.
    """

    NODE = "node"
    DOCUMENT = "document"
    PASSAGE = "passage"


@dataclass(frozen=True, slots=True)
class Judgements:
    """Questions with their relevant targets.

    Questions without relevant targets are dropped: no measure is defined for them.

    Args:
        queries: Text of each question, by id.
        relevant: Grade of each target, by question id: 1 or more for relevant, 0 for not.
        level: Kind of the targets.
        origin: Origin of the judgements, for tables: ``labels``, ``clicks``, or
            ``synthetic: ...``.

    Raises:
        ConfigurationError: No question has a relevant target, or an argument has another type.

    Examples:
        >>> judged = Judgements({"q1": "annual leave"}, {"q1": {"leave.pdf": 1}})
        >>> judged
        Judgements(1 question, 1 relevant document, labels)

    """

    queries: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]
    level: Level = Level.DOCUMENT
    origin: str = LABELS

    def __post_init__(self) -> None:
        of_type(self.level, Level, "level")
        graded = {
            id_: {target: int(grade) for target, grade in self.relevant.get(id_, {}).items()}
            for id_ in self.queries
        }
        judged = {
            id_: grades for id_, grades in graded.items() if any(g > 0 for g in grades.values())
        }
        if not judged:
            raise ConfigurationError(
                f"nothing is relevant to any of the {len(self.queries)} questions; give each the "
                "id, file or passage that answers it, with a grade of at least 1"
            )
        object.__setattr__(self, "relevant", judged)
        object.__setattr__(self, "queries", {id_: self.queries[id_] for id_ in judged})

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        count = sum(grade > 0 for grades in self.relevant.values() for grade in grades.values())
        relevant = counted(count, f"relevant {self.level.value}")
        return f"Judgements({counted(len(self), 'question')}, {relevant}, {self.origin})"

    @property
    def is_synthetic(self) -> bool:
        """Whether the questions were generated."""
        return self.origin.startswith(SYNTHETIC)

    def only(self, ids: Collection[str]) -> "Judgements":
        """Return the judgements of some questions only, in the original order.

        Args:
            ids: Ids of the questions to keep.
        """
        return replace(self, queries={id_: q for id_, q in self.queries.items() if id_ in ids})

    def names_of(self, node: BaseNode, query_id: str) -> list[str]:
        """Return the names that judgements may use for a node, the most usual first.

        Args:
            node: Node of a hit.
            query_id: Id of the question; at the level of passages, its passages are compared.
        """
        if self.level is Level.NODE:
            return [node.node_id]
        if self.level is Level.PASSAGE:
            text = _plain(node.get_content())
            passages = ((target, _plain(target)) for target in self.relevant.get(query_id, {}))
            return [
                *(target for target, passage in passages if passage in text or text in passage),
                node.node_id,
            ]
        files = [node.metadata.get(key) for key in ("file_path", "file_name")]
        judged = self.relevant.get(query_id, {})
        forms = [form for file in files if isinstance(file, str) for form in spellings(file)]
        tails = [tail for form in forms for tail in path_tails(form) if tail in judged]
        names = [node.ref_doc_id, *files, *tails, node.node_id]
        return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))

    def run_of(self, query_id: str, hits: Iterable[Sequence[str]]) -> dict[str, float]:
        """Return a ranking for measures: targets with scores that decrease by rank.

        Args:
            query_id: Id of the question.
            hits: Names of each hit, from `names_of`, best first.

        Examples:
            >>> judged = Judgements({"q1": "annual leave"}, {"q1": {"leave.pdf": 1}})
            >>> judged.run_of("q1", [["d7", "pay.pdf"], ["d1", "leave.pdf"], ["d1", "leave.pdf"]])
            {'d7': -1.0, 'leave.pdf': -2.0}

        """
        judged = self.relevant.get(query_id, {})
        targets = (next((n for n in names if n in judged), names[0]) for names in hits)
        return {target: -float(rank) for rank, target in enumerate(dict.fromkeys(targets), start=1)}

    def save(self, path: str | Path) -> None:
        """Write the judgements as JSON lines, which `load_judgements` reads.

        Args:
            path: The file; overwritten if it exists.
        """
        rows = [
            {
                "query_id": query_id,
                "question": self.queries[query_id],
                self.level.value: target,
                "grade": grade,
                "origin": self.origin,
            }
            for query_id, targets in self.relevant.items()
            for target, grade in targets.items()
        ]
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        Path(path).write_text("".join(lines), encoding="utf-8")


@dataclass(slots=True)
class Collector:
    """Collector of judgements by row: questions by id, grades by question id and target."""

    queries: dict[str, str] = field(default_factory=dict)
    relevant: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, question: str, target: str, grade: int = 1, query_id: str = "") -> None:
        """Add a row; rows without an id are merged by question text."""
        self.queries.setdefault(query_id or question, question)
        self.relevant.setdefault(query_id or question, {})[target] = grade

    def judgements(self, level: Level, origin: str = LABELS) -> Judgements:
        """Return all rows as judgements."""
        return Judgements(self.queries, self.relevant, level, origin)


def _plain(text: str) -> str:
    return " ".join(text.split())
