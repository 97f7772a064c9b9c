"""Prompts as plain text: places for values are filled literally, and braces mean nothing else."""

import re

from llama_retrieval_ext.errors import ConfigurationError


def filled(template: str, **values: object) -> str:
    """The template with ``{name}`` replaced for each value, and every other brace left alone.

    Examples:
        >>> filled('Answer {query} as {"a": 1}', query="{n} + {n}", n=2)
        'Answer {n} + {n} as {"a": 1}'

    """
    places = re.compile("|".join(rf"\{{{name}\}}" for name in values))
    return places.sub(lambda place: str(values[place[0][1:-1]]), template)


def check_prompt(template: str) -> str:
    """The same template, if the query has a place in it.

    Raises:
        ConfigurationError: It has none.
    """
    if "{query}" not in template:
        raise ConfigurationError(
            f"the prompt must say where the query goes: write {{query}} in it, got {template!r}"
        )
    return template
