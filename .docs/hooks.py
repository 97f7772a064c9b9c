"""MkDocs' hooks: the repository's pages where they are, a page of reference per folder, llms.txt.

Links to what is no page, such as a file of code, become plain text; all others must lead somewhere.
"""

import ast
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "llama_retrieval_ext"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of reference into the navigation."""
    reference = next(part["Reference"] for part in config.nav or [] if "Reference" in part)
    reference[-1:] = [{name: f"reference/{name}.md"} for name in _public()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository, and those of reference."""
    pages = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
    pages += [*PACKAGE.rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
    pages += ROOT.glob("notebooks/*.png")
    for page in pages:
        path = page.relative_to(ROOT).as_posix()
        files.append(File.generated(config, path, abs_src_path=str(page)))
    shim = "assets/iframe-worker.js"
    files.append(File.generated(config, shim, abs_src_path=str(ROOT / ".docs/iframe-worker.js")))
    for name, objects in _public().items():
        text = "\n".join([f"# {name}\n", *(f"::: {path}\n" for path in objects)])
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to folders into links to their pages, and links to files of code into text."""
    folder = posixpath.dirname(page.file.src_uri)

    def linked(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        path, hash_, anchor = target.partition("#")
        if mark or "://" in target or not path:
            return link[0]
        place = posixpath.normpath(posixpath.join(folder, path))
        if (ROOT / place).is_dir():
            path, place = posixpath.join(path, "README.md"), posixpath.join(place, "README.md")
        return f"[{text}]({path}{hash_}{anchor})" if files.get_file_from_path(place) else text

    parts = _FENCE.split(re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL))
    return "".join(part if n % 2 else _LINK.sub(linked, part) for n, part in enumerate(parts))


def on_post_build(config: MkDocsConfig) -> None:
    """Write the index of the pages for language models, and all of them as one text."""
    sys.path.insert(0, str(ROOT))
    from llama_retrieval_ext.samples.pages import llms_full_txt, llms_txt  # noqa: PLC0415

    site = Path(config.site_dir)
    (site / "llms.txt").write_text(llms_txt(), encoding="utf-8")
    (site / "llms-full.txt").write_text(llms_full_txt(), encoding="utf-8")


def _public() -> dict[str, list[str]]:
    """Return the public names of each folder, with the modules that define them."""
    names: dict[str, list[str]] = {}
    for stub in sorted(PACKAGE.glob("*/__init__.pyi")):
        folder = stub.parent.name
        imports = [n for n in ast.parse(stub.read_text()).body if isinstance(n, ast.ImportFrom)]
        names[folder] = [f"{node.module}.{name.name}" for node in imports for name in node.names]
    return {folder: [n for n in found if not n.endswith("*")] for folder, found in names.items()}
