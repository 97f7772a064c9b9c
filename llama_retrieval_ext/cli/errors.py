"""Errors in the words of the command line: its options instead of Python's arguments."""

import re
from shlex import quote
from typing import Final, TypeAlias

import typer
from typer.core import TyperGroup

from llama_retrieval_ext.checks import nearest
from llama_retrieval_ext.cli.output import say_wrong
from llama_retrieval_ext.errors import ConfigFileError, RetrievalExtError, RuleError

# Python's calls in messages, as commands.
_COMMANDS: Final = {
    "KnowledgeBase.remove": ("remove", "llama-retrieval remove {} {}"),
    "KnowledgeBase.open": ("ingest", "llama-retrieval ingest PATH --kb {} {}"),
    "copy_knowledge_base": ("copy", "llama-retrieval copy --from {} --to {} {}"),
}
# An option, the one with the opposite effect, and the option with a value to choose.
_Option: TypeAlias = tuple[str, str, str]
_CALL: Final = re.compile(rf"({'|'.join(map(re.escape, _COMMANDS))})\(((?:'[^']*'|[^')])*)\)")
_PASSED: Final = re.compile(r"(?:'[^']*'|[^',])+")
_NAMED: Final = re.compile(r"\w+=")
_REGISTRY: Final = re.compile(r", or registry\.\w+\([^)]{0,200}\)")  # of Python alone
_SCOPE: Final = "scope=Scope(...)"
_SETTING: Final = re.compile(r"store_params=\{'(\w+)': ([^{}]*)\}")
_VALUE: Final = r"'[^']{0,200}'|\[[^]]{0,200}]|\.\.\.|\w+(?:\.\w+)*|"
_ARGUMENT: Final = re.compile(rf"(?<![\w'\"./-])([a-z]\w*)(?:=({_VALUE}))?(?![\w'\"(])")
_CHOICE: Final = re.compile(r"'([^']*)'")


class Program(TyperGroup):
    """The commands; an error is printed in their words, or raised if ``ctx.obj`` is true."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # Typer's own
        """Run a command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _without_pydantic(error.message)
            raise
        except RetrievalExtError as error:
            if ctx.obj:
                raise
            # Fields of files have the names of arguments, and each problem has a line.
            is_in_file = isinstance(error, ConfigFileError | RuleError)
            for line in str(error).splitlines() if is_in_file else [in_options(error, ctx)]:
                say_wrong(line)
            raise typer.Exit(1) from None


def in_options(message: object, ctx: typer.Context) -> str:
    """Return an error or report as text, with options of the command for Python's arguments.

    What the command lacks is written as an option of ``search`` or ``ingest``.
    """
    others = {**_options(ctx, "ingest", "ingest "), **_options(ctx, "search", "search ")}
    options = {**others, **_options(ctx, ctx.invoked_subcommand or ctx.info_name or "")}
    text = _REGISTRY.sub("", str(message))
    text = _CALL.sub(lambda call: _command(ctx, call[1], call[2]), text)
    text = text.replace(_SCOPE, "--tenant or --kb-id")
    text = _SETTING.sub(r"--store-param \1=\2", text)
    return _ARGUMENT.sub(lambda match: _spoken(match, options), text)


def _command(ctx: typer.Context, call: str, arguments: str) -> str:
    """Return the command that does the same as a call in Python."""
    name, form = _COMMANDS[call]
    values = [value.strip() for value in _PASSED.findall(arguments) or ["url"]]
    options = " ".join(value for value in values if _NAMED.match(value))
    urls = [value for value in values if not _NAMED.match(value)]
    places = [quote(url.strip("'")) if ":" in url else "URL" for url in urls]
    spoken = _ARGUMENT.sub(lambda match: _spoken(match, _options(ctx, name)), options)
    taken = _options(ctx, ctx.invoked_subcommand or "")
    empty = ", or empty with --create" if name == "ingest" and "create" in taken else ""
    return form.format(*places, spoken).rstrip() + empty


def _options(ctx: typer.Context, command: str, prefix: str = "") -> dict[str, _Option]:
    """Return the options of a command by the name of Python's argument."""
    program = ctx.find_root().command
    params = program.commands[command].params if isinstance(program, TyperGroup) else []
    options: dict[str, _Option] = {}
    for parameter in params:
        name, value = prefix + max(parameter.opts, key=len), getattr(parameter, "metavar", None)
        if "--" in name:
            opposite = parameter.secondary_opts[0] if parameter.secondary_opts else f"no {name}"
            options[str(parameter.name)] = name, opposite, f"{name} {value}" if value else name
    return options


def _spoken(match: re.Match[str], options: dict[str, _Option]) -> str:
    name, value = match[1], match[2]
    if name not in options or (value is None and "_" not in name):  # a word
        return match[0]
    option, opposite, example = options[name]
    if value is None:
        return option
    if not value or value.startswith((".", "[")):  # for the user to choose
        return example
    return {"True": option, "False": opposite}.get(value, f"{option} {value.strip(chr(39))}")


def _without_pydantic(message: str) -> str:
    """Return the message for a wrong value in plain words, with the nearest choice."""
    plain = message.removeprefix("Value error, ").replace("Input should", "it should")
    if "is not one of" not in plain:
        return plain
    given, *choices = _CHOICE.findall(plain)
    near = nearest(given, choices)
    return plain if near is None else f"{plain.rstrip('.')}; did you mean {near!r}?"
