# SPDX-License-Identifier: Apache-2.0
"""Contexts: what the library's calls run on and with."""
from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any

from . import _c, arrays
from .errors import call


class Context:
    """Threads and flags of calls. Immutable; any number of threads may share one. Errors: ValueError, MemoryError.

    threads: 0 = as many as the process may use. batch_invariant: a row of Y has the same bits whatever other rows are
    multiplied with it. parallel_for: the address of a C function of the type fp8_parallel_for, 0 = OpenMP.
    """

    device: Any = None  # torch's, of one for CUDA

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
        if self.context.device != self.device:
            raise ValueError(f"array is on {self.device or 'the CPU'}, must be on {self.context.device or 'the CPU'}")

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
