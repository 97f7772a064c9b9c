"""Sample of Chinese safety law, shipped with the package."""

import json
from importlib.resources import files

from llama_index.core.schema import Document

_DATA = files("llama_retrieval_ext.samples").joinpath("zh_safety_laws.jsonl")
# Excluded from embeddings: they carry no information about the article's content.
_BOOKKEEPING = ["date", "source"]


def zh_safety_laws() -> list[Document]:
    """Return four Chinese laws on work safety, one document per article, in the order of the laws.

    Ids are ``law#article``. Metadata: ``law``, ``chapter``, ``article``, ``date`` (of the version)
    and ``source``; the last two are excluded from embeddings and prompts. ``SOURCE.md`` next
    to the data states the origin of the text and the licence.

    Examples:
        >>> document = zh_safety_laws()[0]
        >>> document.doc_id, document.metadata["article"]
        ('中华人民共和国安全生产法#第一条', '第一条')

    """
    lines = _DATA.read_text(encoding="utf-8").splitlines()
    return [_document(json.loads(line)) for line in lines]


def _document(row: dict[str, str]) -> Document:
    return Document(
        id_=row["id"],
        text=row["text"],
        metadata={key: value for key, value in row.items() if key not in {"id", "text"}},
        excluded_embed_metadata_keys=_BOOKKEEPING,
        excluded_llm_metadata_keys=_BOOKKEEPING,
    )
