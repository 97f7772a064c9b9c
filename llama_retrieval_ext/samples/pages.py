"""This package's own pages: as documents, as ``llms.txt``, and as a knowledge base."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import llama_retrieval_ext as ext

if TYPE_CHECKING:
    from llama_index.core.schema import Document

PACKAGE: Final = Path(ext.__file__).parent
SKILL: Final = PACKAGE / "SKILL.md"
_NAME: Final = "llama-retrieval-ext"
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
_HEADING = re.compile(r"^# (.*)$", re.MULTILINE)
_PROSE = re.compile(r"^(?:\w|`)(?:.+\n)+", re.MULTILINE)
_SENTENCE = re.compile(r".*?\w`?\.(?=\s)|.*", re.DOTALL)


def package_pages() -> dict[str, str]:
    """Return the pages that ship with this package, by path in it, outer folders first.

    Examples:
        >>> list(package_pages())[:3]
        ['README.md', 'README.zh.md', 'SKILL.md']

    """
    paths = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.md")]
    ordered = sorted(paths, key=lambda path: (len(path.parts), path))
    return {path.as_posix(): (PACKAGE / path).read_text(encoding="utf-8") for path in ordered}


def page_documents() -> "list[Document]":
    """Return the pages as documents whose ids are their paths in the package."""
    from llama_index.core.schema import Document  # noqa: PLC0415 - takes two seconds to import

    return [
        Document(
            id_=path, text=text, metadata={"file_path": path, "file_name": path.split("/")[-1]}
        )
        for path, text in package_pages().items()
    ]


def llms_txt() -> str:
    """Return the index of the pages for language models, in the form of https://llmstxt.org."""
    summary = str(ext.__doc__).partition("\n")[0]
    lines = [f"# {_NAME}", "", f"> {summary}", "", "## Pages", ""]
    for path, text in package_pages().items():
        body = _FRONT_MATTER.sub("", text)
        heading, prose = _HEADING.search(body), _PROSE.search(body)
        sentence = _SENTENCE.match(" ".join(prose[0].split()) + " ") if prose else None
        about = sentence[0].strip() if sentence else ""
        lines.append(f"- [{heading[1] if heading else ''}]({path}): {about}")
    return "\n".join([*lines, ""])


def llms_full_txt() -> str:
    """Return all pages as one text, each under its path."""
    pages = (f"<!-- {path} -->\n\n{text.strip()}\n" for path, text in package_pages().items())
    return "\n".join([f"# {_NAME}\n", *pages])
