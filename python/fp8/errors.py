# SPDX-License-Identifier: Apache-2.0
"""From a status of the library to the exception that a Python user expects. The words are the library's."""
from __future__ import annotations

import ctypes
import os

from . import _c
from ._c import Status


class Stopped(RuntimeError):
    """A conversion was stopped; what it wrote can be resumed."""


_CLASSES: dict[Status, type[Exception]] = {
    Status.E_ARGUMENT: ValueError,
    Status.E_STATE: RuntimeError,
    Status.E_STOPPED: Stopped,
    Status.E_SHAPE: ValueError,
    Status.E_STRIDE: ValueError,
    Status.E_DTYPE: TypeError,
    Status.E_SCALE: ValueError,
    Status.E_NAN: ValueError,
    Status.E_UNSUPPORTED: NotImplementedError,
    Status.E_NO_DEVICE: RuntimeError,
    Status.E_NO_KERNEL: NotImplementedError,
    Status.E_DEVICE: RuntimeError,
    Status.E_FORMAT: ValueError,
    Status.E_TRUNCATED: ValueError,
    Status.E_NOT_FOUND: ValueError,  # as those below with an errno: FileNotFoundError
    Status.E_EXISTS: FileExistsError,
    Status.E_MISMATCH: ValueError,
    Status.E_IO: OSError,
    Status.E_NO_SPACE: OSError,
    Status.E_NO_MEMORY: MemoryError,
}


def exception(error: _c.Error) -> Exception:
    """The exception for `error`; its attributes are `status`, such as "FP8_E_SHAPE", and `pos`, the byte or element or -1."""
    message = error.msg.decode(errors="replace")
    if error.os_errno and error.code != Status.E_NO_MEMORY:
        made: Exception = OSError(error.os_errno, os.strerror(error.os_errno))  # FileNotFoundError and its like
        made.strerror = message  # type: ignore[attr-defined]
    else:
        made = _CLASSES.get(error.code, RuntimeError)(message)  # type: ignore[call-overload]
    made.status = _c.lib.fp8_status_name(error.code).decode()  # type: ignore[attr-defined]
    made.pos = error.pos  # type: ignore[attr-defined]
    return made


def call(function: str, *arguments: object) -> None:
    """Calls a function of the library whose last argument is its fp8_error; raises what it reports."""
    error = _c.Error()
    if getattr(_c.lib, function)(*arguments, ctypes.byref(error)):
        raise exception(error)
