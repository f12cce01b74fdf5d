"""A process for code that is not ours: its output drained, its time and memory limited, ended with all it started."""

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from impl.errors import FellOver

INTERVAL = 0.1
"""Seconds between two looks at a process's memory."""

LAST_LINES = 5
"""Of a process's output that go into an error."""

LONGEST = 400
"""Characters of it, however long its lines are."""

KEPT = 64
"""Pieces of output, of at most 4 KiB each, that are kept; a process may print without end."""

GRACE = 5.0
"""Seconds that a process which has closed its pipes gets to be gone."""


def _half_of_this_machine() -> int:
    return psutil.virtual_memory().total // 2


@dataclass(frozen=True)
class Limits:
    """What one call may take: seconds, and bytes of memory that the process and its children do not share."""

    seconds: float = 300.0
    memory: int = field(default_factory=_half_of_this_machine)


class Process:
    """A running program in a session of its own; no shell, no terminal.

    What it prints on both streams is drained, and the end of it kept for errors. One that ``converses`` has
    ``requests`` and ``replies`` for its standard input and output, and prints on the other stream only.
    Raises ``FellOver`` where it cannot be started.
    """

    requests: IO[bytes]
    replies: IO[bytes]

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        converses: bool = False,
    ) -> None:
        stdin, stderr = (subprocess.PIPE, subprocess.PIPE) if converses else (subprocess.DEVNULL, subprocess.STDOUT)
        try:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise FellOver(f"{command[0]}: cannot be started: {error.strerror or error}") from error
        if converses:
            self.requests, self.replies = self._process.stdin, self._process.stdout
        self._exceeded = ""
        self._ended = False
        self._tail: deque[bytes] = deque(maxlen=KEPT)
        printed = self._process.stderr if converses else self._process.stdout
        self._drain = threading.Thread(target=_keep_the_end, args=(printed, self._tail), daemon=True)
        self._drain.start()

    @contextmanager
    def within(self, limits: Limits) -> Iterator[None]:
        """Kill the process if it passes a limit before the block ends."""
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(limits, done), daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            watch.join()

    def wait(self) -> int | None:
        """Wait for its end, and end what it left running; the exit code, None where a signal or a limit ended it."""
        code = self._process.wait()
        self.end()
        return None if self._exceeded or code < 0 else code

    def ending(self) -> str:
        """How it ended and what it printed last, in one line. One that still runs is ended after ``GRACE``."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        self.end()
        how = self._exceeded or _in_words(self._process.returncode)
        return f"{how}: {self._last_lines}" if self._last_lines else how

    def end(self) -> None:
        """Kill it and all that it started, once."""
        if self._ended:
            return
        self._ended = True
        self._kill()
        self._process.wait()
        self._drain.join(GRACE)
        for pipe in (self._process.stdin, getattr(self, "replies", None)):
            if pipe is not None:
                # What was not sent yet cannot be sent any more.
                with suppress(OSError):
                    pipe.close()

    @property
    def _last_lines(self) -> str:
        lines = b"".join(self._tail).decode(errors="replace").splitlines()
        printable = ["".join(filter(str.isprintable, line)).strip() for line in lines]
        return " / ".join([line for line in printable if line][-LAST_LINES:])[-LONGEST:]

    def _watch(self, limits: Limits, done: threading.Event) -> None:
        deadline = time.monotonic() + limits.seconds
        while not done.wait(max(0.0, min(INTERVAL, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                self._exceeded = f"still running after {limits.seconds:g} s, its time limit"
            elif _own_memory(self._process.pid) > limits.memory:
                self._exceeded = f"uses more than {limits.memory / 2**20:,.0f} MiB, its memory limit"
            if self._exceeded:
                self._kill()
                return

    def _kill(self) -> None:
        if not hasattr(os, "killpg"):
            self._process.kill()
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _keep_the_end(stream: IO[bytes], tail: deque[bytes]) -> None:
    with stream:
        while piece := stream.read1(4096):
            tail.append(piece)


def _in_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _own_memory(pid: int) -> int:
    """Bytes that a process and its descendants hold for themselves; mapped files are the system's."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(_held(each) for each in family)


def _held(process: psutil.Process) -> int:
    try:
        memory = process.memory_info()
    except psutil.Error:
        return 0
    return memory.rss - getattr(memory, "shared", 0)
