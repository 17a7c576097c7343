# SPDX-License-Identifier: Apache-2.0
"""Contexts: what the library's calls run on and with."""
from __future__ import annotations

import ctypes
import functools
import weakref

from . import _c
from .errors import call


class Context:
    """Threads and flags of calls. Immutable; any number of threads may share one. Errors: ValueError, MemoryError.

    threads: 0 = as many as the process may use. batch_invariant: a row of Y has the same bits whatever other rows are
    multiplied with it. parallel_for: the address of a C function of the type fp8_parallel_for, 0 = OpenMP.
    """

    def __init__(self, threads: int = 0, *, batch_invariant: bool = False, parallel_for: int = 0) -> None:
        desc = _c.ContextDesc(threads=threads, flags=_c.BATCH_INVARIANT if batch_invariant else 0,
                              parallel_for=parallel_for or None)
        self.handle = ctypes.c_void_p()
        call("fp8_context_create", ctypes.byref(desc), ctypes.byref(self.handle))
        # Not at exit: what was made with a context may outlive it there.
        weakref.finalize(self, _c.lib.fp8_context_free, self.handle).atexit = False

    def doctor(self) -> list[str]:
        """What this build and this machine are, a line each."""
        lines: list[str] = []
        while line := _c.lib.fp8_doctor(self.handle, len(lines)):
            lines.append(line.decode())
        return lines


@functools.cache
def default() -> Context:
    """The context of calls that name none."""
    return Context()
