"""What runs in the process of an isolated implementation: it answers requests, one after the other."""

import gc
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from impl.catalogue import resolve
from impl.conversation import Conversation
from impl.errors import InputError

ATTRIBUTES: Mapping[str, Callable[[Any], Any]] = {
    "name": str,
    "version": str,
    "types": tuple,
    "readable_types": tuple,
    "recipes": tuple,
    "metadata": str,
    "backends": dict,
    "default_backends": tuple,
    "deviations": dict,
}
"""What an implementation says of itself, and as what it is handed over."""

METHODS = ("quantize", "dequantize", "convert", "load", "device")
MODEL_METHODS = ("logits", "generate")

Parameters = Sequence[str] | None
"""The names of a method's, of which the contract lets some be left out; None where a method in another language
does not tell."""

Methods = Mapping[str, Parameters]
"""The methods that an object has."""


@dataclass(frozen=True)
class Description:
    """What an implementation says of itself and which methods it has."""

    attributes: Mapping[str, Any]
    methods: Methods


@dataclass(frozen=True)
class LoadedModel:
    """A model in the process, by its number."""

    number: int
    methods: Methods


@dataclass(frozen=True)
class Request:
    """One call of a method of the implementation, or of the model of that number.

    A ``method`` that is a function is called with the implementation before the arguments. ``released`` are the
    models that nobody holds any more.
    """

    model: int | None
    method: str | Callable[..., Any]
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    released: Sequence[int]

    def __str__(self) -> str:
        given = [*map(_brief, self.arguments), *(f"{name}={_brief(value)}" for name, value in self.keywords.items())]
        name = self.method if isinstance(self.method, str) else self.method.__name__
        return f"{name}({', '.join(given)})"


class RaisedThere(Exception):
    """A traceback in the other process, as a cause: in a note it would be taken for the message."""


@dataclass(frozen=True)
class Raised:
    """An exception of the implementation, in parts: its class need not exist outside the process."""

    type: str
    module: str
    message: str
    traceback: str

    def error(self) -> Exception:
        """An exception of the same name and message, caused by where it was raised; ``InputError`` is itself."""
        cls = type(self.type, (Exception,), {"__module__": self.module})
        error = InputError(self.message) if self.module == InputError.__module__ else cls(self.message)
        error.__cause__ = RaisedThere(self.traceback)
        return error


def serve(spec: str, folder: str) -> None:
    """Describe the implementation that ``spec`` stands for, then answer requests until nobody asks any more.

    ``folder`` is where arrays are exchanged. What the implementation prints goes to standard error.
    """
    conversation = _conversation(Path(folder))
    try:
        implementation = resolve(spec)
    except InputError as error:
        conversation.send(_raised(error))
        return
    conversation.send(_description(implementation))
    models: dict[int, Any] = {}
    while True:
        try:
            request = conversation.receive()
        except EOFError:
            return
        _give_back(models, request.released)
        conversation.send(_answer(implementation, models, request))


def _conversation(folder: Path) -> Conversation:
    """Over standard input and output, which the implementation gets others for."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return Conversation(incoming, outgoing, folder, "reply")


def _description(implementation: object) -> Description:
    attributes = {
        name: as_plain(getattr(implementation, name))
        for name, as_plain in ATTRIBUTES.items()
        if hasattr(implementation, name)
    }
    return Description(attributes, _methods(implementation, METHODS))


def _methods(target: object, names: Sequence[str]) -> Methods:
    return {name: _parameters(getattr(target, name)) for name in names if hasattr(target, name)}


def _parameters(method: Callable[..., Any]) -> Parameters:
    try:
        return tuple(signature(method).parameters)
    except ValueError:
        return None


def _answer(implementation: object, models: dict[int, Any], request: Request) -> object:
    target = implementation if request.model is None else models[request.model]
    try:
        method = getattr(target, request.method) if isinstance(request.method, str) else partial(request.method, target)
        result = method(*request.arguments, **request.keywords)
    except MemoryError:
        # No refusal: it ends the process, as any other want of memory does.
        raise
    except Exception as error:
        return _raised(error)
    if request.method != "load":
        return result
    number = max(models, default=-1) + 1
    models[number] = result
    return LoadedModel(number, _methods(result, MODEL_METHODS))


def _give_back(models: dict[int, Any], released: Sequence[int]) -> None:
    for number in released:
        del models[number]
    if released:
        # A model of transformers is a web of reference cycles.
        gc.collect()


def _raised(error: Exception) -> Raised:
    cls = type(error)
    return Raised(cls.__name__, cls.__module__, str(error), "".join(traceback.format_exception(error)))


def _brief(argument: object) -> str:
    if isinstance(argument, np.ndarray):
        return f"{argument.dtype}{list(argument.shape)}"
    if isinstance(argument, Path):
        return str(argument)
    return repr(argument) if isinstance(argument, str | int | None) else type(argument).__name__
