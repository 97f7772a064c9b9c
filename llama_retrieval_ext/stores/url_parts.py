"""What the URLs of servers have in common."""

import os

from llama_retrieval_ext.errors import ConfigurationError


def bracketed(hostname: str) -> str:
    """A host as a URL has it: an IPv6 address in brackets.

    Examples:
        >>> bracketed("::1"), bracketed("db.example.com")
        ('[::1]', 'db.example.com')

    """
    return f"[{hostname}]" if ":" in hostname else hostname


def secret(name: str) -> str:
    """The value of an environment variable that a URL names.

    Raises:
        ConfigurationError: It is not set.
    """
    value = os.environ.get(name) if name else None
    if not value:
        raise ConfigurationError(
            f"the URL refers to the environment variable {name!r}, which is not set; user_env and "
            "password_env go together"
        )
    return value


def seconds(text: str) -> float:
    """The value of ``timeout_s``.

    Raises:
        ConfigurationError: It is no positive number.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigurationError(f"timeout_s must be a positive number of seconds, got {text!r}")
    return value
