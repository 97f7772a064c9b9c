"""Runs the notebooks, whose outputs are committed so that they can be read without running them.

``python -m tests.notebooks [NAME...]`` fails where the output of a cell differs from the committed
one; times, ids and pictures may. ``--write`` writes what comes out into the notebooks. The second
notebook has four engines if ``KB_ELASTICSEARCH_URL`` names a server, as it does under
``python -m tests.servers.with_elasticsearch``.

Plugins were tried, in November 2026. nbmake compares no outputs. nbval (0.11) runs cells without
history, so that ``plot(...);`` shows the value that the semicolon hides: each cell with a plot
fails; it cannot round numbers, and writes nothing.
"""

import difflib
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat

FOLDER = Path(__file__).parents[1] / "notebooks"
_AT_ONCE = 2  # each waits for its own kernel
# A first search waits a second for the words by which it is corrected; a busy machine needs more.
_PATIENCE = "__import__('llama_retrieval_ext.knowledge_base.correcting', fromlist='_')._WAIT_S = 60"
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_TIME = re.compile(r"\b\d[\d.,]* (ms|s|kB|MB)\b")
_FIELD = re.compile(r"\b(seconds=|size.bytes[= ]\s*)[\d.]+")
_ID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b0x[0-9a-f]+\b")
_FOLDER = re.compile(r"/\S*\btmp\w{8}\b")  # of tempfile
_TAG = re.compile(r"<style>.*?</style>|<[^>]*>", re.DOTALL)
# Hits that tie go by id, which has the path of a temporary folder.
_RANK = re.compile(r"#\d+ (?=\()")
_NUMBER = re.compile(r"\d+\.\d+(e-?\d+)?")


def run(path: Path) -> Any:
    """Return a notebook with the outputs of its cells.

    Args:
        path: The notebook.
    """
    from nbclient import NotebookClient  # noqa: PLC0415 - slow to import

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources=resources,
        record_timing=False,
        extra_arguments=[f'--IPKernelApp.exec_lines=["{_PATIENCE}"]'],
    ).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _with_streams_joined(cell.outputs)
    notebook.metadata = nbformat.from_dict(_METADATA)  # that of the kernel names its version
    return notebook


def _with_streams_joined(outputs: list[Any]) -> list[Any]:
    """Outputs as a reader sees them: a kernel cuts what is printed at any moment."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def shown(notebook: Any) -> list[str]:
    """The lines that a reader sees below the cells, without what varies from run to run."""
    return [
        line
        for number, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", ())
        for text in _texts(output)
        for line in [f"cell {number}:", *_comparable(text).splitlines()]
    ]


def _texts(output: Any) -> Iterator[str]:
    if output.output_type == "stream":
        yield f"{output.name}: {output.text}"
    elif output.output_type == "error":
        yield f"{output.ename}: {output.evalue}"
    else:
        for kind, data in sorted(output.data.items()):
            text = _TAG.sub(" ", data) if kind == "text/html" else data
            yield kind if kind.startswith("image/") else f"{kind}: {text}"


def _comparable(text: str) -> str:
    text = _FOLDER.sub("#", _ID.sub("#", _FIELD.sub(r"\1#", _TIME.sub(r"# \1", text))))
    text = _RANK.sub("# ", text)
    # Four digits of a sum differ between processors; two do not.
    return re.sub(r"[ \t]+", " ", _NUMBER.sub(lambda number: f"{float(number[0]):.2f}", text))


def problems(notebook: Any) -> list[str]:
    """What a committed notebook must not have: cells without a run, errors, warnings.

    Args:
        notebook: As it is read.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        *(f"not run: {cell.source[:60]!r}" for cell in cells if cell.execution_count is None),
        *(
            f"error or warning: {line}"
            for line in shown(notebook)
            if re.match(r"stderr: |\w+(Error|Warning)\b", line)
        ),
    ]


def main(args: list[str]) -> int:
    """Check or write notebooks; 1 if one differs."""
    code = 0
    names = {arg for arg in args if not arg.startswith("--")}
    paths = [path for path in sorted(FOLDER.glob("*.ipynb")) if not names or path.stem in names]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        notebooks = [*threads.map(run, paths)]
    for path, notebook in zip(paths, notebooks, strict=True):
        before = shown(nbformat.read(path, as_version=4))
        found = problems(notebook)
        if "--write" in args:
            nbformat.write(notebook, path)
        else:
            found += difflib.unified_diff(before, shown(notebook), "committed", "now", lineterm="")
        if found:
            code = 1
            sys.stdout.write("\n".join([f"{path.name}:", *found, ""]))
    if code:
        sys.stdout.write("write them anew with: python -m tests.notebooks --write\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
