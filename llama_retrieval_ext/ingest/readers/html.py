"""Reads HTML files, because LlamaIndex's reader joins words across tags and requires UTF-8."""

import re
from pathlib import Path

from bs4 import BeautifulSoup
from bs4.element import NavigableString
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

_WHITE = re.compile(r"\s+")
_NOT_TEXT = ["script", "style", "noscript", "template"]
# Tags at which a browser starts a new line.
_BLOCKS = [
    *("p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "blockquote"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "pre", "figure", "figcaption", "table", "tr", "hr"),
    *("br", "ul", "ol", "li", "dl", "dt", "dd", "form", "title"),
]


class HTMLReader(BaseReader):
    """Reads the text of an HTML file as one document, a line for each block, without scripts.

    The encoding is declared in the file, else guessed. The title is the first line, and in the
    metadata as ``title``.
    """

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return the document of a file."""
        soup = BeautifulSoup(file.read_bytes(), "html.parser")
        for tag in soup(_NOT_TEXT):
            tag.decompose()
        title = {} if soup.title is None else {"title": _one_line(soup.title.get_text())}
        return [Document(text=_text(soup), metadata={**(extra_info or {}), **title})]


def _text(soup: BeautifulSoup) -> str:
    for string in soup(string=True):
        # Comments and similar nodes are subclasses of strings.
        if type(string) is NavigableString and string.find_parent("pre") is None:
            string.replace_with(_WHITE.sub(" ", string))
    for tag in soup(["td", "th"]):
        tag.append(" ")
    for tag in soup(_BLOCKS):
        tag.insert_before("\n")
        tag.insert_after("\n")
    lines = (_one_line(line) for line in soup.get_text().splitlines())
    return "\n".join(line for line in lines if line)


def _one_line(text: str) -> str:
    return " ".join(text.split())
