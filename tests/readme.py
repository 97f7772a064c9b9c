"""Runs the fenced blocks of a README from top to bottom, as a reader would who pastes them.

Python blocks share one namespace and one working directory. Lines of shell blocks that begin with
``llama-retrieval`` run in this process, all others in bash. A ``text`` block right behind such a
block is what it prints; times, ids, sizes and the working directory may differ. Marks of blocks:
``<!-- compiled: needs a server -->``, it is only compiled; ``<!-- ci:test -->``, `.ci/run` runs it;
``<!-- varies: why -->``, only the first line of what it prints is compared.

``python -m tests.readme FILE...`` writes what the blocks print into the files; ``--check`` fails
where it differs.

Plugins were tried, in November 2026. sybil finds blocks and lets them share names, but captures,
compares and writes nothing: its evaluators would be this file. pytest-examples compares ``#>``
comments in Python blocks; it knows neither ``text`` nor shell blocks.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HOME = "/home/me"
"""Stands for the working directory in what is printed."""
_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>.*?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)
_VARYING = [
    (re.compile(r"\b[\d.,]+ (ms|s|kB|MB)\b"), r"# \1"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "#"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" ?\n"), "\n"),
]
_NUMBER = re.compile(r"\d+\.\d+")
_WIDTH = 100


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: What stands behind its fence.
        code: What is in it.
        mark: The comment above it; empty for none.
        line: The line of its first line of code, from 1.
        span: Where it stands in the file.
        prints: The ``text`` block that follows directly; None for none.
    """

    language: str
    code: str
    mark: str
    line: int
    span: tuple[int, int]
    prints: "Block | None" = None


def blocks_of(text: str) -> list[Block]:
    """The blocks of a file in order; those of printed text are with the block that prints it."""
    found: list[Block] = []
    follows = False
    for each in _FENCE.finditer(text):
        line = text.count("\n", 0, each.start("code")) + 1
        mark = each["mark"] or ""
        block = Block(each["language"], each["code"], mark, line, each.span())
        follows = bool(found) and not text[found[-1].span[1] : each.start()].strip()
        if block.language == "text" and follows and found[-1].prints is None:
            last = found[-1]
            block = Block(last.language, last.code, last.mark, last.line, last.span, block)
            found.pop()
        found.append(block)
    return found


def run(
    path: Path, folder: Path, replace: Mapping[str, str] | None = None
) -> Iterator[tuple[Block, str]]:
    """Run each block, and give it with what it printed.

    Args:
        path: The README.
        folder: The working directory.
        replace: What is put in place of parts of the code, such as the URL of a server.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if block.language not in {"python", "sh"} or block.mark.startswith("ci:"):
            continue
        code = block.code
        for old, new in (replace or {}).items():
            code = code.replace(old, new)
        if block.mark.startswith("compiled: "):
            _compile(code, block, path)
            continue
        out = io.StringIO()
        with contextlib.chdir(folder), contextlib.redirect_stdout(out):
            if block.language == "python":
                # Line numbers of errors are those of the file.
                program = compile("\n" * (block.line - 1) + code, str(path), "exec")
                exec(program, names)
            else:
                _shell(code)
        printed = out.getvalue().replace(str(folder.resolve()), HOME)
        yield block, re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE)


def _compile(code: str, block: Block, path: Path) -> None:
    if block.language == "python":
        compile("\n" * (block.line - 1) + code, str(path), "exec")
    else:
        subprocess.run(["bash", "-n", "-c", code], check=True)


def _shell(code: str) -> None:
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["llama-retrieval"]:
            _command_line(words[1:])
        elif words:
            finished = subprocess.run(
                ["bash", "-ec", line], check=True, capture_output=True, text=True
            )
            sys.stdout.write(finished.stdout)


def _command_line(args: list[str]) -> None:
    from llama_retrieval_ext.cli import main  # noqa: PLC0415 - not needed for Python blocks

    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            main(args)
    except SystemExit as exited:
        if exited.code not in {0, None}:
            raise RuntimeError(f"{args}: exit code {exited.code}: {errors.getvalue()}") from exited


def comparable(printed: str, mark: str = "") -> str:
    """What is printed, without what varies from run to run."""
    if mark.startswith("varies: "):
        printed = printed.partition("\n")[0]
    for pattern, replacement in _VARYING:
        printed = pattern.sub(replacement, printed)
    # Four digits of a score differ between processors; two do not.
    return _NUMBER.sub(lambda number: f"{float(number[0]):.2f}", printed).strip()


def check(path: Path) -> None:
    """Raise if a block prints something else than the file shows."""
    for block, printed in _ran(path):
        shown = "" if block.prints is None else block.prints.code
        if comparable(printed, block.mark) != comparable(shown, block.mark):
            raise RuntimeError(f"{path}, line {block.line} prints:\n{printed}")


def update(path: Path) -> None:
    """Write what the blocks print into the file."""
    text = path.read_text(encoding="utf-8")
    for block, printed in reversed(_ran(path)):
        if block.prints is not None:
            start, end = block.prints.span
            if comparable(printed, block.mark) != comparable(block.prints.code, block.mark):
                text = f"{text[:start]}```text\n{printed.strip()}\n```{text[end:]}"
        elif printed.strip():
            end = block.span[1]
            text = f"{text[:end]}\n```text\n{printed.strip()}\n```{text[end:]}"
    path.write_text(text, encoding="utf-8")


def _ran(path: Path) -> list[tuple[Block, str]]:
    from tests.servers.openai import FakeOpenAI  # noqa: PLC0415 - not for tests

    with tempfile.TemporaryDirectory() as folder, FakeOpenAI(LLM_REPLIES) as server:
        return list(run(path, Path(folder), {LLM_URL: server.url}))


LLM_URL = "http://localhost:8000/v1"
"""The OpenAI-compatible server that the README names."""
LLM_REPLIES = ["Every employee has 25 days of annual leave."]
"""What that server says in the tests."""


if __name__ == "__main__":
    os.environ["COLUMNS"] = str(_WIDTH)
    warnings.simplefilter("ignore")
    checks = "--check" in sys.argv
    for file in sys.argv[1:]:
        if file != "--check":
            (check if checks else update)(Path(file))
