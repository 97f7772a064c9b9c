"""Source code cut along classes and functions, and `Expand`.

Run ``python -m tests.benchmarks.bench_code FOLDER``. The folder, such as `codebase_ctx`, has
``corpus.jsonl`` (parts of source files, ``FILE:NUMBER``), ``queries.jsonl`` and ``qrels.tsv``. It
prints the share of the answering parts in the first characters of the hits.
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final
from unittest import mock

from llama_index.core.schema import Document

from llama_retrieval_ext import Hit, KnowledgeBase, LocalEmbedding
from llama_retrieval_ext.knowledge_base.passages import PassageParser
from llama_retrieval_ext.stages import Expand

_PROMPTS: Final = (2000, 4000, 8000)  # characters
# What tells the language of a file: the suffix whose rule matches most often.
_SUFFIXES: Final = {
    ".rs": r"^ *(?:pub )?(?:use|fn|mod|impl|trait) .*|let mut |#\[\w+",
    ".cpp": r"^#(?:include|pragma) |^namespace .*\{|std::\w+|^\w.*\w::\w+\(",
    ".java": r"^(?:package|import) [\w.]+;|^ *(?:public|private|protected) [\w<> ]+\(|@Override",
    ".py": r"^ *(?:def|class) .*:$|^from \w+ import|^import \w+$",
}
Spans = dict[str, list[tuple[str, range]]]


def corpus(folder: Path) -> tuple[list[Document], Spans, dict[str, str]]:
    """Return the files, the positions that answer each question, and the questions."""
    parts: dict[str, dict[int, str]] = defaultdict(dict)
    for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        name, _, number = row["_id"].rpartition(":")
        parts[name][int(number)] = row["text"]
    places: dict[str, tuple[str, range]] = {}
    documents: list[Document] = []
    for name, own in parts.items():
        text = ""
        for number in sorted(own):
            places[f"{name}:{number}"] = name, range(len(text), len(text) + len(own[number]))
            text += own[number]
        rules = {end: re.compile(rule, re.MULTILINE) for end, rule in _SUFFIXES.items()}
        kind = max(rules, key=lambda end: len(rules[end].findall(text)))
        metadata = {"file_name": f"file{kind}"}
        documents.append(Document(id_=name, text=text, metadata=metadata))
    answers: Spans = defaultdict(list)
    for line in (folder / "qrels.tsv").read_text("utf-8").splitlines()[1:]:
        question, part, _ = line.split("\t")
        answers[question].append(places[part])
    rows = map(json.loads, (folder / "queries.jsonl").read_text("utf-8").splitlines())
    return documents, answers, {row["_id"]: row["text"] for row in rows}


def read(hits: Sequence[Hit], answer: tuple[str, range], budget: int) -> float:
    """Return the share of a part in the first characters of the hits."""
    document, place = answer
    seen: set[int] = set()
    for hit in hits:
        if hit.node.ref_doc_id == document and budget > 0:
            start = hit.start or 0
            seen.update(range(start, start + min(len(hit.text), budget)))
        budget -= len(hit.text)
    return len(seen.intersection(place)) / max(1, len(place))


def main(folder: Path) -> None:
    """Print a row for each way to cut and each expansion."""
    documents, answers, questions = corpus(folder)
    print(f"{len(questions)} questions, {len(documents)} files")
    for size in (512, 128):
        for is_code in (False, True):
            module = "llama_retrieval_ext.knowledge_base.readers.code.is_installed"
            parser = PassageParser(chunk_size=size, chunk_overlap=size // 8)
            with (
                mock.patch(module, lambda cut=is_code: cut),  # noqa: TID251 - as without the extra
                KnowledgeBase.open(
                    "embedded::memory:", embed_model=LocalEmbedding(), transformations=[parser]
                ) as kb,
            ):
                kb.add(documents, show_progress=False)
                source = kb.retriever(top_k=20)
                for tokens in (0, 300, 600, 1000):
                    retriever = source >> Expand(tokens) if tokens else source
                    found = {key: retriever.search(text).hits for key, text in questions.items()}
                    shares = [
                        fmean(
                            fmean(read(found[key], answer, prompt) for answer in answers[key])
                            for key in questions
                        )
                        for prompt in _PROMPTS
                    ]
                    name = "classes and functions" if is_code else "text"
                    print(f"{size:4} {name:22} Expand({tokens})", *(f"{n:.3f}" for n in shares))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
