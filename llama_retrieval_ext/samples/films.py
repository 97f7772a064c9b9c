"""Sample of films with fields, shipped with the package."""

import json
from importlib.resources import files

from llama_index.core.schema import Document

_DATA = files("llama_retrieval_ext.samples").joinpath("films.jsonl")
# Excluded from embeddings: numbers carry no meaning there.
_NUMBERS = ["year", "votes"]


def films() -> list[Document]:
    """Return 300 well-known films, one document per film, most votes first.

    The text is a summary. Metadata: ``title``, ``director``, ``actors``, ``genres``, ``year`` and
    ``votes``; the last two are excluded from embeddings and prompts. ``SOURCE.md`` next to the data
    states the origin and the licence.

    Examples:
        >>> film = films()[0]
        >>> film.metadata["title"], film.metadata["director"], film.metadata["year"]
        ('Inception', 'Christopher Nolan', 2010)

    """
    lines = _DATA.read_text(encoding="utf-8").splitlines()
    return [_document(json.loads(line)) for line in lines]


def _document(film: dict[str, object]) -> Document:
    return Document(
        id_=f"film/{film.pop('id')}",
        text=str(film.pop("text")),
        metadata=film,
        excluded_embed_metadata_keys=_NUMBERS,
        excluded_llm_metadata_keys=_NUMBERS,
    )
