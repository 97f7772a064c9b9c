"""How long the path of a query and of a document is: files and functions of the package on the way.

Run ``python -m tests.benchmarks.bench_path``. Counted with ``sys.setprofile`` in all threads, for
the second of two equal calls: imports and first-use set-up are left out, and so is ``testing``,
whose fake embedding stands for the caller's model. ``--files`` lists them.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from llama_index.core import Document

import llama_retrieval_ext
from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding

_PACKAGE = Path(llama_retrieval_ext.__file__).parent
_FAKES = str(_PACKAGE / "testing")


@dataclass
class Calls:
    """The package's functions that ran, by file."""

    functions: set[tuple[str, str, int]] = field(default_factory=set)
    count: int = 0

    def record(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call, as ``sys.setprofile`` wants it."""
        code = frame.f_code
        file = code.co_filename
        if event != "call" or not file.startswith(str(_PACKAGE)) or file.startswith(_FAKES):
            return
        self.count += 1
        self.functions.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    @property
    def files(self) -> list[str]:
        """Paths below the package, sorted."""
        return sorted({str(Path(file).relative_to(_PACKAGE)) for file, _, _ in self.functions})


def calls_of(run: Callable[[], object]) -> Calls:
    """Run a function and return the calls inside the package."""
    calls = Calls()
    threading.setprofile(calls.record)
    sys.setprofile(calls.record)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # as its documentation has it
    return calls


def main() -> None:
    """Print the two paths."""
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add([Document(id_="first", text="annual leave")], show_progress=False)
        retriever = kb.retriever("hybrid")
        retriever.retrieve("annual leave")
        paths = {
            "hybrid query": calls_of(lambda: retriever.retrieve("annual leave")),
            "added document": calls_of(
                lambda: kb.add([Document(id_="second", text="sick leave")], show_progress=False)
            ),
        }
    for name, calls in paths.items():
        functions = len(calls.functions)
        print(f"{name}: {len(calls.files)} files, {functions} functions, {calls.count} calls")
        if "--files" in sys.argv:
            print("  " + "\n  ".join(calls.files))


if __name__ == "__main__":
    main()
