"""`ApiKeys`: API keys with their scopes and rights."""

import hmac
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llama_retrieval_ext.checks import problems
from llama_retrieval_ext.errors import ConfigurationError, ScopeError
from llama_retrieval_ext.scope import Scope, check_scope
from llama_retrieval_ext.text.yaml_nodes import Reader, composed, position

_ENV: Final = "env:"
# Keys must be generated secrets: a password typed by a person is guessed within hours.
_LEAST_LENGTH: Final = 16
# YAML of this size takes seconds to parse; it has thousands of keys.
_MAX_BYTES: Final = 1_000_000
_DIGEST: Final = re.compile(r"(?:\s*[0-9a-fA-F]{2}){32}\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """The holder of an API key: its name, scope and rights.

    Attributes:
        name: Name of the key, for logs.
        scope: Scope that it may see; None for everything.
        may_write: Whether it may add, share and delete documents.
        names_principals: Whether its requests name the principals of its users. Without them they
            see only what everyone may.
    """

    name: str
    scope: Scope | None
    may_write: bool
    names_principals: bool = False

    def bounded(self, requested: Scope | None, *, to_add: bool = False) -> Scope | None:
        """Return the caller's scope, narrowed by that of a request, or raise ScopeError."""
        named = requested is not None and requested.principals is not None
        if named and not self.names_principals:
            raise ScopeError("this key may not name principals")
        bounded = requested if self.scope is None else self.scope.narrowed(requested)
        if named or to_add or not self.names_principals:
            return bounded
        nobody = Scope(principals=[])
        return nobody if bounded is None else bounded.narrowed(nobody)

    def reaches(self, scope: Scope | None) -> bool:
        """Return whether the caller may see all knowledge bases of a scope; None for everything."""
        if self.scope is None or scope is None:
            return self.scope is None
        try:
            common = self.scope.narrowed(scope)
        except ScopeError:
            return False
        same_kbs = set(common.kb_ids or ()) == set(scope.kb_ids or ())
        return same_kbs and common.tenant_id == scope.tenant_id


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key of the server, stored as its SHA-256."""

    caller: KeyHolder
    digest: bytes = field(repr=False)


class _Reader(Reader):
    """Reader of keys, whose messages quote nothing, as the text has secrets."""

    what: ClassVar[str] = "keys"
    example: ClassVar[str] = "'keys:' and a list"

    def error(self, at: object, message: str) -> ConfigurationError:
        """Return the error with line and column."""
        line, column = position(at)
        is_quoted = message.startswith(("not valid YAML", "no value"))
        problem = "neither YAML nor JSON" if is_quoted else message
        return ConfigurationError(f"{self.file}, line {line}, column {column}: {problem}")


class ApiKeys:
    """The keys that a server accepts, with their scopes.

    A file of keys is YAML or JSON: a list of keys under ``keys``. Each has a ``name``; its secret
    as ``key: {env: VARIABLE}``, as ``sha256``, the digest of the secret in hexadecimal, or as the
    ``key`` itself; its scope as ``tenant_id`` and ``kb_ids``, or ``everything: true``; the
    ``principals`` of its one user, or ``names_principals: true`` if its requests name those of its
    users; and ``write: true`` if it may add, share and delete documents.

    Args:
        keys: The keys.

    Raises:
        ConfigurationError: There are no keys, or two are equal.

    Examples:
        >>> keys = ApiKeys.parse('''
        ... keys:
        ...   - {name: acme-web, key: correct-horse-battery, tenant_id: acme}
        ... ''')
        >>> keys.caller("correct-horse-battery").scope
        Scope(tenant_id='acme')
        >>> keys.caller("correct-horse-staple") is None
        True

    """

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        if not keys:
            raise ConfigurationError("a server with keys needs at least one; for none pass None")
        for what, values in (
            ("name", [key.caller.name for key in keys]),
            ("secret", [key.digest for key in keys]),
        ):
            if len(set(values)) < len(values):
                raise ConfigurationError(f"two keys have the same {what}; each needs its own")
        self._keys = tuple(keys)

    @classmethod
    def load(cls, source: str | Path) -> "ApiKeys":
        """Read keys from a file, or from an environment variable.

        Args:
            source: The path of a file, or ``env:NAME`` for a variable with the text of a file.

        Raises:
            ConfigurationError: There is no such file or variable, or it has no valid keys.
        """
        text = str(source)
        if text.startswith(_ENV):
            return cls.parse(_variable(text.removeprefix(_ENV)), where=text)
        try:
            with Path(text).open("rb") as file:
                content = file.read(_MAX_BYTES + 1).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the keys in {text} cannot be read: {error}") from error
        return cls.parse(content, where=text)

    @classmethod
    def parse(cls, text: str, *, where: str = "keys") -> "ApiKeys":
        """Return the keys that a text in YAML or JSON defines.

        Args:
            text: See the class.
            where: Name of the text in errors.

        Raises:
            ConfigurationError: The text has no valid keys. Messages contain no secrets.
        """
        if len(text) > _MAX_BYTES:
            raise ConfigurationError(f"{where} is longer than {_MAX_BYTES:,} bytes, the limit")
        reader = _Reader(where)
        content = reader.data(composed(text, reader))
        listed = content.get("keys") if isinstance(content, dict) else None
        if not isinstance(listed, list) or not listed:
            raise ConfigurationError(f"{where} needs a list of keys under 'keys:'")
        return cls([_key(entry, f"{where}, key {i}") for i, entry in enumerate(listed, start=1)])

    def caller(self, secret: str) -> KeyHolder | None:
        """Return the caller of a key; None for an unknown key.

        The key is compared with all keys in constant time, so that response times reveal nothing.
        """
        digest = _digest(secret)
        caller = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                caller = key.caller
        return caller

    def within(self, scope: Scope | None) -> "ApiKeys":
        """Return the same keys, with their scopes narrowed to a bound.

        Args:
            scope: The bound; None for no bound.

        Raises:
            ScopeError: A key has nothing in common with it.
        """
        if scope is None:
            return self
        check_scope(scope)
        return ApiKeys([ApiKey(_narrowed(key.caller, scope), key.digest) for key in self._keys])

    def __iter__(self) -> Iterator[KeyHolder]:
        return (key.caller for key in self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"ApiKeys({', '.join(caller.name for caller in self)})"


def _narrowed(caller: KeyHolder, scope: Scope) -> KeyHolder:
    try:
        narrowed = scope if caller.scope is None else caller.scope.narrowed(scope)
        return replace(caller, scope=narrowed)
    except ScopeError as error:
        raise ScopeError(f"the key {caller.name!r} cannot be used: {error}") from error


class _ListedKey(BaseModel):
    """A key as a file lists it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    key: str | dict[str, str] | None = None
    sha256: str | None = None
    tenant_id: str | None = None
    kb_ids: list[str] | None = Field(default=None, min_length=1)
    principals: list[str] | None = None
    everything: bool = False
    write: bool = False
    names_principals: bool = False


def _key(content: object, where: str) -> ApiKey:
    try:
        listed = _ListedKey.model_validate(content)
    except ValidationError as error:
        reason = problems(error.errors(), _ListedKey.model_fields)
        raise ConfigurationError(f"{where}: {reason}") from None
    writes, names = listed.write, listed.names_principals
    if (writes or names) and listed.principals is not None:
        raise ConfigurationError(
            f"{where} has principals, and then neither writes nor names them; make two keys"
        )
    holder = KeyHolder(listed.name, _scope(listed, where), writes, names)
    return ApiKey(holder, _secret(listed, where))


def _scope(key: _ListedKey, where: str) -> Scope | None:
    if key.everything != (key.tenant_id is None and not key.kb_ids):
        raise ConfigurationError(
            f"{where} needs a scope: tenant_id, kb_ids or both, or everything: true"
        )
    is_bound = not key.everything or key.principals is not None
    return Scope(key.tenant_id, key.kb_ids, key.principals) if is_bound else None


def _secret(listed: _ListedKey, where: str) -> bytes:
    key, digest = listed.key, listed.sha256
    if (key is None) == (digest is None):
        raise ConfigurationError(f"{where} needs one of key and sha256")
    if digest is not None:
        if not _DIGEST.fullmatch(digest):
            raise ConfigurationError(f"sha256 of {where} must be 64 hexadecimal digits")
        return bytes.fromhex(digest)
    secret = _variable(key.get("env", "")) if isinstance(key, dict) else key
    if secret is None or len(secret) < _LEAST_LENGTH:
        raise ConfigurationError(
            f"the key of {where} must have at least {_LEAST_LENGTH} characters"
        )
    return _digest(secret)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ConfigurationError(f"keys refer to the environment variable {name!r}, which is unset")
    return value
