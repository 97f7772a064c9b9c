"""The program in five lines that does what the quickstart does."""

import json
from pathlib import Path

_PROGRAM = """\
from llama_retrieval_ext import KnowledgeBase, LocalEmbedding
{get_reader}
kb = KnowledgeBase.open("embedded::memory:", embed_model=LocalEmbedding())
kb.add({documents})
print(kb.retriever("hybrid", top_k=3).retrieve({question})[0].text)"""


def five_lines(question: str, *paths: Path) -> str:
    """Python that answers a question from the English samples, or from files and folders.

    Examples:
        >>> print(five_lines("What is a tuple?").splitlines()[-1])
        print(kb.retriever("hybrid", top_k=3).retrieve("What is a tuple?")[0].text)

    """
    if not paths:
        get_reader = "from llama_retrieval_ext.samples.python_topics import python_topics"
        documents = "python_topics()"
    else:
        get_reader = "from llama_index.core import SimpleDirectoryReader"
        read = [_read(path) for path in paths]
        documents = read[0] if len(read) == 1 else f"[*{', *'.join(read)}]"
    return _PROGRAM.format(get_reader=get_reader, documents=documents, question=_literal(question))


def _read(path: Path) -> str:
    where = f"{str(path)!r}, recursive=True" if path.is_dir() else f"input_files=[{str(path)!r}]"
    return f"SimpleDirectoryReader({where}, filename_as_id=True).load_data()"


def _literal(text: str) -> str:
    # As repr, but always in the quotes that the rest of the program has.
    return json.dumps(text, ensure_ascii=False)
