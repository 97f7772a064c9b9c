"""What a store directory says about itself: ``store.json``."""

import json
import os
from pathlib import Path
from typing import Final

from llama_retrieval_ext.errors import StoreFormatError
from llama_retrieval_ext.stores.points.manifest import Manifest
from llama_retrieval_ext.text.tokenizer import Tokenizer

FORMAT: Final = 1
# What reads format 1 alone looks for the first shard, and would make an empty one in its place.
_COMPACTED: Final = 2
MANIFEST: Final = "store.json"
DRAFT: Final = "store.json.new"


def read_manifest(directory: Path) -> Manifest | None:
    """What a directory records about itself; None where it records nothing.

    Raises:
        StoreFormatError: It was written by a newer version, or cannot be read.
    """
    path = directory / MANIFEST
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["format"] in (FORMAT, _COMPACTED):
            return Manifest(
                Tokenizer.from_dict(data["tokenizer"]),
                data["distance"],
                data["dimension"],
                data["average_length"],
                data.get("generation", 0),
            )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreFormatError(
            f"{path} cannot be read ({type(error).__name__}: {error}); restore it from a backup, "
            "or index the documents again into an empty directory"
        ) from error
    raise StoreFormatError(
        f"{directory} has format {data['format']!r}, this release reads up to {_COMPACTED}; "
        "install the release that wrote it, or index the documents again into an empty directory"
    )


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Record it, as a whole or not at all, whenever the process or the machine dies."""
    data = {
        "format": _COMPACTED if manifest.generation else FORMAT,
        "dimension": manifest.dimension,
        "distance": manifest.distance,
        "average_length": manifest.average_length,
        "generation": manifest.generation,
        "tokenizer": manifest.tokenizer.to_dict(),
    }
    draft = directory / DRAFT
    with draft.open("w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, indent=2)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(directory / MANIFEST)
