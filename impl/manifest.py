"""A manifest: the TOML file that says how a program in any language is run as an implementation."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from impl.commands import COMMANDS, Command, Template, named
from impl.errors import InputError
from impl.process import Limits
from impl.protocol import Arithmetic, Metadata

MIB = 2**20


@dataclass(frozen=True)
class Manifest:
    """What a manifest says. ``types``, ``readable_types`` and ``recipes`` map our names to the program's."""

    path: Path
    name: str
    version: str
    commands: Mapping[str, Template]
    types: Mapping[str, str]
    readable_types: Mapping[str, str]
    recipes: Mapping[str, str]
    backends: Mapping[str, Arithmetic]
    metadata: Metadata
    deviations: Mapping[str, str]
    limits: Limits


def read_manifest(path: Path) -> Manifest:
    """Read and check a manifest.

    Raises ``InputError`` naming the file and the key: for a file that is missing or no TOML, a key that is
    unknown, missing or of another kind, and a template with a placeholder that its command does not have.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no TOML: {error}") from error
    return _Keys(path, content).manifest()


@dataclass(frozen=True)
class _Keys:
    """Takes one key after the other out of ``content``, each checked, and refuses what is left over."""

    path: Path
    content: dict[str, Any]

    def manifest(self) -> Manifest:
        types = self._names("types")
        manifest = Manifest(
            path=self.path,
            name=self._text("name"),
            version=self._text("version"),
            commands=self._commands(),
            types=types,
            readable_types=self._names("readable_types") or types,
            recipes=self._names("recipes"),
            backends=self._table("backends", get_args(Arithmetic)),
            metadata=self._choice("metadata", "full", get_args(Metadata)),
            deviations=self._table("deviations"),
            limits=self._limits(),
        )
        self._refuse_unknown(self.content)
        self._require_what_commands_need(manifest)
        return manifest

    def _text(self, key: str) -> str:
        value = self.content.pop(key, None)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "missing, expected a string" if value is None else f"{value!r}, expected a string")
        return value

    def _choice(self, key: str, default: str, choices: Sequence[str]) -> Any:  # noqa: ANN401
        value = self.content.pop(key, default)
        if value not in choices:
            raise self._wrong(key, f"{value!r}, expected {' or '.join(choices)}")
        return value

    def _names(self, key: str) -> dict[str, str]:
        """A list of names, or a table of our names and the program's."""
        if isinstance(value := self.content.get(key), list) and all(isinstance(name, str) for name in value):
            self.content[key] = {name: name for name in value}
        return self._table(key)

    def _table(self, key: str, choices: Sequence[str] = ()) -> Any:  # noqa: ANN401
        value = self.content.pop(key, {})
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise self._wrong(key, f"{value!r}, expected a table of strings")
        for name, text in value.items():
            if choices and text not in choices:
                raise self._wrong(f"{key}.{name}", f"{text!r}, expected {' or '.join(choices)}")
        return value

    def _limits(self) -> Limits:
        default = Limits()
        return Limits(
            seconds=self._positive("time_limit_seconds", default.seconds),
            memory=int(self._positive("memory_limit_mib", default.memory / MIB) * MIB),
        )

    def _positive(self, key: str, default: float) -> float:
        value = self.content.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._wrong(key, f"{value!r}, expected a positive number")
        return value

    def _commands(self) -> dict[str, Template]:
        commands = self.content.pop("commands", None)
        if not isinstance(commands, dict) or not commands:
            raise self._wrong("commands", f"missing, expected a table of {', '.join(COMMANDS)}, or some of them")
        self._refuse_unknown(commands.keys() - COMMANDS.keys(), "commands.")
        for name, template in commands.items():
            self._check_template(f"commands.{name}", template, COMMANDS[name])
        return commands

    def _check_template(self, key: str, template: object, command: Command) -> None:
        if not _is_template(template):
            raise self._wrong(key, "expected a list: the program, then strings, or lists of strings")
        strings = [part for part in template if isinstance(part, str)]
        lists = [text for part in template if isinstance(part, list) for text in part]
        try:
            in_strings, in_lists = named(strings), named(lists)
        except ValueError as error:
            raise self._wrong(key, f"{error}; a brace that stands for itself is written twice") from error
        if unknown := sorted((in_strings | in_lists) - command.placeholders):
            raise self._wrong(key, f"{{{unknown[0]}}} is unknown, expected {_braced(command.placeholders)}")
        if missing := sorted(command.required - in_strings):
            raise self._wrong(key, f"{{{missing[0]}}} is missing")
        if command.one_of and not command.one_of & in_strings:
            raise self._wrong(key, f"one of {_braced(command.one_of)} is missing")
        if loose := sorted(command.only_in_lists & in_strings):
            raise self._wrong(key, f"{{{loose[0]}}} has no value in some calls, expected a list around its arguments")

    def _require_what_commands_need(self, manifest: Manifest) -> None:
        for name in manifest.commands:
            if not getattr(manifest, COMMANDS[name].offers):
                raise self._wrong(COMMANDS[name].offers, f"missing, expected because of commands.{name}")
        if "generate" in manifest.commands and "logits" not in manifest.commands:
            raise self._wrong("commands.logits", "missing, expected because of commands.generate")

    def _refuse_unknown(self, keys: Iterable[str], prefix: str = "") -> None:
        if unknown := sorted(keys):
            raise self._wrong(f"{prefix}{unknown[0]}", "unknown key")

    def _wrong(self, key: str, what: str) -> InputError:
        return InputError(f"{self.path}: {key}: {what}")


def _is_template(value: object) -> bool:
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        return False
    parts = [[part] if isinstance(part, str) else part for part in value]
    return all(isinstance(part, list) and all(isinstance(text, str) for text in part) for part in parts)


def _braced(names: frozenset[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
