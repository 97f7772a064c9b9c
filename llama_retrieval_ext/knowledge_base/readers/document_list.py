"""Documents with the reasons why others could not be read."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from llama_index.core.schema import Document

# The reason why a file without text is left out.
NO_TEXT: Final = "no text"


class DocumentList(list[Document]):
    """The documents that `read_documents`, or the reader of one file, returns.

    Attributes:
        left_out: Reasons why files, or parts of a file whose other parts are documents, could not
            be read, by their path.
    """

    def __init__(self, documents: Iterable[Document], left_out: Mapping[Path, str]) -> None:
        super().__init__(documents)
        self.left_out = dict(left_out)
