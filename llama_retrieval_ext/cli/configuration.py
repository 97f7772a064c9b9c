"""`llama-retrieval schema` and `validate`: pipelines as files."""

import json
from pathlib import Path
from typing import Annotated

import typer

from llama_retrieval_ext.cli.output import say, say_wrong


def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors."""
    # The import of LlamaIndex takes two seconds; --help does not need it.
    from llama_retrieval_ext.config.registry import default_registry  # noqa: PLC0415
    from llama_retrieval_ext.config.yaml import pipeline_schema  # noqa: PLC0415

    typer.echo(json.dumps(pipeline_schema(default_registry()), ensure_ascii=False, indent=2))


def validate(
    file: Annotated[Path, typer.Argument(help="A pipeline file, in YAML.", show_default=False)],
) -> None:
    """Check a pipeline file, without opening anything that it names.

    Each problem has its line and field. The program ends with 0 if there is none, else with 1.
    """
    from llama_retrieval_ext.config import yaml  # noqa: PLC0415
    from llama_retrieval_ext.config.registry import default_registry  # noqa: PLC0415

    found = yaml.validate_yaml(yaml.read_file(file), default_registry(), file=str(file))
    for problem in found:
        say_wrong(f"{file}, {problem}")
    if found:
        raise typer.Exit(1)
    say(f"{file} is valid")
