"""Passages cut along headings against LlamaIndex's sentence splitter alone, judged by section.

Run ``python -m tests.benchmarks.bench_sections``. Each question of ``sections.tsv`` is answered by
one section of the Python documentation that ships with Python, or of this package's pages. Then the
share of the answering section in a prompt of some size: hits as they are, and with `Expand`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from statistics import fmean
from time import process_time
from typing import Literal, NamedTuple

from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document, TextNode, TransformComponent

import llama_retrieval_ext
from llama_retrieval_ext import Hit, KnowledgeBase, LocalEmbedding
from llama_retrieval_ext.knowledge_base.readers.outline import outline_of
from llama_retrieval_ext.stages import Expand

_QUESTIONS = Path(__file__).with_name("sections.tsv")
_PACKAGE = Path(llama_retrieval_ext.__file__).parent
_TOP_K = 10
_BUDGET = 4000  # characters, as of a short prompt
_PROMPTS = (2000, 4000, 8000)  # characters
_EXPANSIONS = (0, 300, 600, 1000, 2000)  # tokens; 0 for none
Mode = Literal["keyword", "vector", "hybrid"]
_MODES: tuple[Mode, ...] = ("keyword", "vector", "hybrid")
_RIVALS: dict[str, list[TransformComponent] | None] = {
    "sentence splitter": [SentenceSplitter(chunk_size=512, chunk_overlap=64)],
    "along headings": None,
}


class Judged(NamedTuple):
    """A question, and the position of the section that answers it."""

    question: str
    document: str
    start: int
    end: int


class Measures(NamedTuple):
    """Whether the first hit is relevant, reciprocal rank, share of the section that is read."""

    first: float
    reciprocal_rank: float
    read: float


def documents() -> list[Document]:
    """Return topics of Python that are not part of another, as reST, and this package's pages."""
    python = [
        Document(id_=topic, text=text, metadata={"file_name": f"{topic}.rst"})
        for topic, text in sorted(topics.items())
    ]
    parts = {heading.text for topic in python for heading in outline_of(topic).headings[1:]}
    python = [each for each in python if outline_of(each).headings[0].text not in parts]
    pages = [
        Document(
            id_=path.relative_to(_PACKAGE).as_posix(),
            text=path.read_text("utf-8"),
            metadata={"file_name": path.name},
        )
        for path in sorted(_PACKAGE.rglob("README.md"))
    ]
    return [*python, *pages]


def judged(corpus: Iterable[Document]) -> list[Judged]:
    """Return the questions with the positions of their sections."""
    by_id = {document.doc_id: document for document in corpus}
    lines = _QUESTIONS.read_text("utf-8").splitlines()
    return [_judged(line, by_id) for line in lines]


def _judged(line: str, by_id: dict[str, Document]) -> Judged:
    page, heading, question = line.split("\t")
    document = by_id[page]
    headings = outline_of(document).headings
    number = [heading.text for heading in headings].index(heading)
    ends = [*(heading.start for heading in headings), len(document.text)]
    return Judged(question, page, headings[number].start, ends[number + 1])


def quality(kb: KnowledgeBase, mode: Mode, questions: Sequence[Judged]) -> Measures:
    """Return the means of the measures over all questions."""
    found = (kb.search(question.question, mode, top_k=_TOP_K).hits for question in questions)
    rows = [_measures(hits, each) for hits, each in zip(found, questions, strict=True)]
    return Measures(*map(fmean, zip(*rows, strict=True)))


def shares(kb: KnowledgeBase, questions: Sequence[Judged], tokens: int) -> list[float]:
    """Return the share of the answering section in prompts of each size; 0 tokens: no `Expand`."""
    source = kb.retriever(top_k=2 * _TOP_K)
    retriever = source >> Expand(tokens) if tokens else source
    found = [retriever.search(question.question).hits for question in questions]
    return [
        fmean(_read(hits, each, size) for hits, each in zip(found, questions, strict=True))
        for size in _PROMPTS
    ]


def _read(hits: Sequence[Hit], judged: Judged, budget: int) -> float:
    """Return the share of the section in the first characters; the last hit may be cut."""
    read = 0
    for hit in hits:
        shown = max(0, min(len(hit.text), budget))
        if hit.node.ref_doc_id == judged.document and shown:
            start = hit.start or 0
            read += max(0, min(start + shown, judged.end) - max(start, judged.start))
        budget -= len(hit.text)
    return min(1.0, read / (judged.end - judged.start))


def _measures(hits: Sequence[Hit], judged: Judged) -> Measures:
    """Measure a ranking; a hit is relevant if half of it, or of the section, is in the other."""
    size = judged.end - judged.start
    overlaps = [_overlap(hit, judged) for hit in hits]
    rows = list(enumerate(zip(hits, overlaps, strict=True), start=1))
    rank = next((n for n, (hit, got) in rows if 2 * got >= min(len(hit.text), size)), 0)
    read, left = 0, _BUDGET
    for _, (hit, got) in rows:
        read += min(got, left)
        left -= min(len(hit.text), left)
    return Measures(float(rank == 1), 1 / rank if rank else 0.0, min(1.0, read / size))


def _overlap(hit: Hit, judged: Judged) -> int:
    node = hit.node
    if node.ref_doc_id != judged.document or not isinstance(node, TextNode):
        return 0
    start, end = node.start_char_idx or 0, node.end_char_idx or 0
    return max(0, min(end, judged.end) - max(start, judged.start))


def main() -> None:
    """Print a row for each way to cut and each kind of search."""
    corpus = documents()
    questions = judged(corpus)
    print(f"{len(questions)} questions, {len(corpus)} documents")
    for name, transformations in _RIVALS.items():
        with KnowledgeBase.open(
            "embedded::memory:", embed_model=LocalEmbedding(), transformations=transformations
        ) as kb:
            started = process_time()
            nodes = kb.add(corpus, show_progress=False).n_nodes
            print(f"{name}: {nodes} nodes, {process_time() - started:.2f} s to add")
            for mode in _MODES:
                print(f"  {mode:8}", *(f"{value:.3f}" for value in quality(kb, mode, questions)))
            for tokens in _EXPANSIONS:
                found = shares(kb, questions, tokens)
                print(f"  Expand({tokens})", *(f"{value:.3f}" for value in found))


if __name__ == "__main__":
    main()
