"""English sample documents from Python itself: the topics of ``help()``."""

import re
import sys
from pydoc_data.topics import topics

from llama_index.core.schema import Document

_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_UNDERLINE = re.compile(r"^[*=\-~]{3,}\n", re.MULTILINE)
_EMPTY_LINES = re.compile(r"\n\s*\n+")


def python_topics() -> list[Document]:
    """Return Python's language reference, one document per topic of ``help()``, sorted by topic.

    Ids are ``python/topic``. Metadata: ``topic`` and ``python``, the version, such as ``3.12``;
    the version is excluded from embeddings and prompts. The text depends on the Python version.

    Examples:
        >>> by_id = {document.doc_id: document for document in python_topics()}
        >>> print(by_id["python/pass"].text.splitlines()[0])
        The "pass" statement

    """
    return [_document(topic) for topic in sorted(topics)]


def _document(topic: str) -> Document:
    return Document(
        id_=f"python/{topic}",
        # Without underlines of headings and repeated empty lines.
        text=_EMPTY_LINES.sub("\n\n", _UNDERLINE.sub("", topics[topic])).strip(),
        metadata={"topic": topic, "python": _VERSION},
        excluded_embed_metadata_keys=["python"],
        excluded_llm_metadata_keys=["python"],
    )
