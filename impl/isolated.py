"""An implementation in a process of its own: whatever it does costs the call that it was answering, no more.

What it prints is kept for errors and reaches no terminal. Loaded models live in the process and are used
through handles.
"""

import os
import shutil
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numpy as np

from impl.child import Description, LoadedModel, Parameters, Raised, Request
from impl.conversation import Conversation, folder_for_arrays
from impl.errors import FellOver
from impl.process import Limits, Process

START = 60.0
"""Seconds that a process gets at least until it has said what it offers: importing torch is no call."""

QUIET = ("-X", "no_debug_ranges")
"""Tracebacks without the lines that underline: their end goes into errors."""


class Isolated:
    """The implementation that ``spec`` stands for, with its attributes and methods, in a process of its own.

    A call that crashes, exits or passes a limit raises ``FellOver``, and the next starts a new process. What
    the implementation raises is raised here with the same message. ``threads`` is how many its arithmetic
    may use. Raises ``InputError`` as ``impl.catalogue.resolve`` does, and ``FellOver`` where the
    implementation falls over as it is made.
    """

    def __init__(self, spec: str, limits: Limits | None = None, threads: int | None = None) -> None:
        self._start = partial(_Child, spec, limits or Limits(), threads)
        self._child: _Child | None = None
        # This process is not kept: a controller of workers, which only has to know what is offered, calls nothing.
        child = self._start()
        child.end()
        for name, value in child.description.attributes.items():
            setattr(self, name, value)
        for name, parameters in child.description.methods.items():
            setattr(self, name, _proxy(self._ask, name, parameters))

    def within(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """What ``function``, of a module and not local, returns of the implementation and the arguments over there."""
        return self._ask(function, *arguments)

    def rest(self) -> None:
        """Give the process back until the next call."""
        if self._child is not None:
            self._child.end()

    def _ask(self, method: str | Callable[..., Any], *arguments: object, **keywords: object) -> object:
        if self._child is None or self._child.has_ended:
            self._child = self._start()
        return self._child.ask(None, method, *arguments, **keywords)


class IsolatedModel:
    """A loaded model in the process of its implementation; given back with this handle."""

    def __init__(self, child: "_Child", model: LoadedModel) -> None:
        self._child, self._model = child, model
        weakref.finalize(self, child.released.append, model.number)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # A method made anew holds the handle while it runs; one kept in it would be a cycle, and keep it for longer.
        if name not in self._model.methods:
            raise AttributeError(name)
        return _proxy(self._ask, name, self._model.methods[name])

    def _ask(self, method: str, *arguments: object, **keywords: object) -> object:
        return self._child.ask(self._model.number, method, *arguments, **keywords)


def _proxy(ask: Callable[..., object], name: str, parameters: Parameters) -> Callable[..., Any]:
    method = partial(ask, name)
    if parameters is not None:
        method.__signature__ = Signature(Parameter(each, Parameter.POSITIONAL_OR_KEYWORD) for each in parameters)
    return method


@dataclass
class _Child:
    """The process as its parent sees it, from its start to its end."""

    spec: str
    limits: Limits
    threads: int | None
    released: list[int] = field(default_factory=list)
    has_ended: bool = False

    def __post_init__(self) -> None:
        folder = folder_for_arrays()
        code = f"import sys; sys.path[:] = {sys.path!r}; from impl.child import serve; serve(*sys.argv[1:])"
        environment = {**os.environ, **({"OMP_NUM_THREADS": str(self.threads)} if self.threads else {})}
        self._process = Process(
            [sys.executable, *QUIET, "-c", code, self.spec, str(folder)], environment=environment, converses=True
        )
        self._conversation = Conversation(self._process.replies, self._process.requests, folder, "request")
        self._clear_away = weakref.finalize(self, _clear_away, self._process, folder)
        self._name = self.spec
        at_its_start = replace(self.limits, seconds=max(self.limits.seconds, START))
        self.description: Description = self._reply("at its start", at_its_start)
        self._name = self.description.attributes["name"]

    def ask(self, model: int | None, method: str | Callable[..., Any], *arguments: object, **keywords: object) -> Any:  # noqa: ANN401
        """The reply to one request; raises what the implementation raised, or ``FellOver``."""
        if self.has_ended:
            raise FellOver(f"{self._name}: {method}: the model's process has ended")
        # One by one: a handle may be given back while this runs.
        released = [self.released.pop() for _ in range(len(self.released))]
        request = Request(model, method, tuple(map(_plain, arguments)), keywords, released)
        reply = self._reply(str(request), self.limits, request)
        return IsolatedModel(self, reply) if isinstance(reply, LoadedModel) else reply

    def end(self) -> None:
        """End the process and remove its files."""
        self.has_ended = True
        self._clear_away()

    def _reply(self, during: str, limits: Limits, request: Request | None = None) -> Any:  # noqa: ANN401
        try:
            with self._process.within(limits):
                if request is not None:
                    self._conversation.send(request)
                reply = self._conversation.receive()
        except (EOFError, OSError) as error:
            ending = self._process.ending()
            self.end()
            raise FellOver(f"{self._name}: {during}: {ending}") from error
        except BaseException:
            # An interrupt leaves half a reply behind.
            self.end()
            raise
        if isinstance(reply, Raised):
            raise reply.error()
        return reply


def _clear_away(process: Process, folder: Path) -> None:
    process.end()
    shutil.rmtree(folder, ignore_errors=True)


def _plain(argument: object) -> object:
    # A memory-mapped array is handed over as the array it is.
    return np.asarray(argument) if isinstance(argument, np.ndarray) else argument
