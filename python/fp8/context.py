# SPDX-License-Identifier: Apache-2.0
"""Contexts: what the library's calls run on and with."""
from __future__ import annotations

import ctypes
import functools
import os
import re
import weakref
from typing import Any

from . import _c, arrays
from ._c import Device
from .errors import call


def _device_of(name: str) -> tuple[Device, int]:
    if name == "cpu":
        return Device.CPU, 0
    found = re.fullmatch(r"cuda(?::(\d{1,4}))?", name)
    if not found:
        raise ValueError(f"invalid device={name!r}; expected cpu, cuda or cuda:N")
    return Device.CUDA, int(found[1] or 0)


class Context:
    """Threads and flags of calls, and where they are computed. Immutable; any number of threads may share one.

    threads: 0 = as many as the process may use. batch_invariant: a row of Y has the same bits whatever other rows are
    multiplied with it. parallel_for: the address of a C function of the type fp8_parallel_for, 0 = OpenMP.
    device: "cpu", or "cuda:N" of the driver's numbers, "cuda" the first. tuned: for CUDA, a file of `fp8 tune`, read here.
    Errors: ValueError, MemoryError; RuntimeError and NotImplementedError (device); of the file OSError, ValueError (what is
    wrong with which line, or that it was measured on another device).
    """

    device: str  # as str(torch.device) has it

    def __init__(self, threads: int = 0, *, batch_invariant: bool = False, parallel_for: int = 0, device: Any = "cpu",
                 tuned: str | os.PathLike[str] | None = None) -> None:
        kind, index = _device_of(str(device))
        desc = _c.ContextDesc(threads=threads, flags=_c.BATCH_INVARIANT if batch_invariant else 0,
                              parallel_for=parallel_for or None, device=kind, device_index=index,
                              tuned=None if tuned is None else os.fsencode(tuned))
        self.device = "cpu" if kind == Device.CPU else f"cuda:{index}"
        self.handle = ctypes.c_void_p()
        call("fp8_context_create", ctypes.byref(desc), ctypes.byref(self.handle))
        # Not at exit: what was made with a context may outlive it there.
        weakref.finalize(self, _c.lib.fp8_context_free, self.handle).atexit = False

    def __reduce__(self) -> Any:
        raise TypeError("a Context is of its process and cannot be pickled or copied: make another one")

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


class Place:
    """Where the arrays of a call are: a context (that of the first array's device, unless one is given), the stream that calls
    go into, and views of arrays there. NotImplementedError for devices other than the CPU and CUDA."""

    def __init__(self, first: Any, given: Context | None = None) -> None:
        self.cuda = arrays.is_torch(first) and first.device.type == "cuda"
        self.stream, self.device = None, None
        if self.cuda:
            import torch

            from . import ops

            self.device = first.device
            self.stream = torch.cuda.current_stream(self.device).cuda_stream or None
            given = given or ops.context_of(self.device)
        self.context = given or default()
        self.handle = self.context.handle
        if self.context.device != str(self.device or "cpu"):
            raise ValueError(f"array is on {self.device or 'the CPU'}, the context on {self.context.device}")

    def view(self, array: Any, uint8: _c.Dtype | None = None) -> _c.Tensor:
        """arrays.view, of an array in this place."""
        if self.cuda and getattr(array, "device", None) != self.device:
            raise ValueError(f"array is on {getattr(array, 'device', 'the CPU')}, must be on {self.device}")
        return arrays.view(array, uint8, on_cuda=self.cuda)

    def optional(self, array: Any, uint8: _c.Dtype | None = None) -> Any:
        """What a function takes for an array or None."""
        return None if array is None else ctypes.byref(self.view(array, uint8))

    def memory(self, size: int) -> tuple[Any, int]:
        """Workspace of `size` bytes: what holds it, and its address."""
        if self.cuda:
            import torch

            tensor = torch.empty(size, dtype=torch.uint8, device=self.device)
            return tensor, tensor.data_ptr()
        buffer = ctypes.create_string_buffer(size)
        return buffer, ctypes.addressof(buffer)

    def wait(self) -> None:
        """Until what is in the stream is done: before calls that read memory in another one."""
        if self.cuda:
            import torch

            torch.cuda.current_stream(self.device).synchronize()
