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
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.util import get_temp_dir
from typing import Self

_TIMEOUT_S = 280
get_temp_dir()  # as long as this process; tests may have a folder for temporary files that goes
# Its processes have what they begin with, too.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["llama_retrieval_ext.knowledge_base.knowledge_base", "llama_retrieval_ext.testing.fakes"]
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
        theirs_in, ours_in = CONTEXT.Pipe(duplex=False)
        ours_out, theirs_out = CONTEXT.Pipe(duplex=False)
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        theirs = (theirs_in, theirs_out, Connection(os.dup(self._errors.fileno())))
        argv = ["-c", *map(str, arguments)]
        self._process = CONTEXT.Process(target=_run, args=(textwrap.dedent(code), argv, theirs))
        self._process.start()
        for each in theirs:
            each.close()
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

    def communicate(self, text: str = "") -> tuple[str, str]:
        """What it still prints, and its errors, until it ends.

        Args:
            text: The last that it reads.

        Raises:
            TimeoutError: If it does not end.
        """
        with suppress(BrokenPipeError), self.stdin:
            self.stdin.write(text)
        printed = self.stdout.read()
        self._process.join(_TIMEOUT_S)
        if self._process.exitcode is None:
            raise TimeoutError(f"it does not end: {self._said()}")
        return printed, self._said()

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

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


def _run(code: str, argv: list[str], streams: tuple[Connection, Connection, Connection]) -> None:
    for number, each in enumerate(streams):
        os.dup2(each.fileno(), number)
        each.close()
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    sys.argv = argv
    try:
        exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
