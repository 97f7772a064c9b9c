"""Python programs in processes of their own, which need not import LlamaIndex for seconds first.

They are forked from a process that has imported what they begin with, and has done nothing else. A
test of what happens when an interpreter starts or ends starts one itself.
"""

import atexit
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

_TIMEOUT_S = 100
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["llama_retrieval_ext.ingest.knowledge_base", "llama_retrieval_ext.testing.fakes"]
)


class Program:
    """A running program; at the end of a ``with`` block it is over, killed if need be.

    Args:
        code: What it does.
        arguments: Its ``sys.argv[1:]``, as text.

    Attributes:
        stdin: Text that it reads.
        stdout: Text that it prints.
    """

    def __init__(self, code: str, *arguments: object) -> None:
        theirs_in, ours_in = _CONTEXT.Pipe(duplex=False)
        ours_out, theirs_out = _CONTEXT.Pipe(duplex=False)
        self._errors = tempfile.NamedTemporaryFile(mode="r", encoding="utf-8")  # noqa: SIM115
        argv = ["-c", *map(str, arguments)]
        self._process = _CONTEXT.Process(
            target=_run,
            args=(textwrap.dedent(code), argv, (theirs_in, theirs_out), self._errors.name),
        )
        self._process.start()
        theirs_in.close()
        theirs_out.close()
        self.stdin = os.fdopen(os.dup(ours_in.fileno()), "w", encoding="utf-8")
        self.stdout = os.fdopen(os.dup(ours_out.fileno()), encoding="utf-8")
        ours_in.close()
        ours_out.close()

    @property
    def returncode(self) -> int | None:
        """As a `subprocess.Popen` has it."""
        return self._process.exitcode

    def kill(self) -> None:
        """End it at once, and wait until it has ended."""
        self._process.kill()
        self._process.join()

    def communicate(self) -> tuple[str, str]:
        """What it still prints, and its errors, until it ends; there is no more for it to read.

        Raises:
            TimeoutError: If it does not end.
        """
        with self.stdin:
            pass
        printed = self.stdout.read()
        self._process.join(_TIMEOUT_S)
        if self._process.exitcode is None:
            raise TimeoutError(f"it does not end: {self._errors.read()}")
        return printed, self._errors.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.close()
        for each in (self.stdin, self.stdout, self._errors):
            each.close()


def run_program(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end."""
    with Program(code, *arguments) as program:
        printed, errors = program.communicate()
        return subprocess.CompletedProcess(
            ["-c", *map(str, arguments)], program.returncode or 0, printed, errors
        )


def _run(code: str, argv: list[str], pipes: tuple[Connection, Connection], errors: str) -> None:
    os.dup2(pipes[0].fileno(), 0)
    os.dup2(pipes[1].fileno(), 1)
    with Path(errors).open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 2)
    for each in pipes:
        each.close()
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    sys.argv = argv
    try:
        exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})  # noqa: S102
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
