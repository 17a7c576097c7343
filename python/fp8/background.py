# SPDX-License-Identifier: Apache-2.0
"""Long calls of the library in a thread of their own, so that signals reach Python at once.

Python handles a signal between two of its own instructions: in the caller's thread that would be after the library's call, or
in the midst of a callback, from which an exception cannot come out.
"""
from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


def run(work: Callable[[Callable[[Any], None]], None], step: Callable[[Any], None] | None = None,
        stop: Callable[[], None] | None = None) -> None:
    """work(put) elsewhere, and here step(item) of each item that it puts. Raises what work raises.

    Whatever is raised here meanwhile is raised when `stop` has made work end; without a `stop`, at once."""
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    raised: list[BaseException] = []
    end = object()

    def run_work() -> None:
        try:
            work(items.put)
        except BaseException as error:  # noqa: BLE001 (raised again below)
            raised.append(error)
        items.put(end)

    thread = threading.Thread(target=run_work, name="fp8", daemon=True)
    thread.start()
    try:
        while (item := items.get()) is not end:
            if step:
                step(item)
    except BaseException:
        if stop:
            stop()
            _wait(thread)
        raise
    if raised:
        raise raised[0]


def _wait(thread: threading.Thread) -> None:
    """Until it has ended, whatever signals come."""
    while thread.is_alive():
        try:
            thread.join()
        except BaseException:  # noqa: BLE001 (one is on its way already)
            pass
