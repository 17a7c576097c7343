# SPDX-License-Identifier: Apache-2.0
"""Long calls of the library in a thread of their own, so that signals reach Python at once.

Python handles a signal between two of its own instructions: in the caller's thread that would be after the library's call, or
in the midst of a callback, from which an exception cannot come out. What the work uses must be the work's own, too: a storm of
signals may leave it behind.
"""
from __future__ import annotations

import _thread
import queue
import threading
from collections.abc import Callable
from typing import Any


def run(work: Callable[[Callable[[Any], None]], None], step: Callable[[Any], None] | None = None,
        stop: Callable[[], None] | None = None) -> None:
    """work(put) elsewhere, and here step(item) of each item that it puts. Raises what work raises.

    Whatever is raised here meanwhile, at any place, is raised when `stop` has made work end; without a `stop`, at once."""
    job = _Job(work)
    try:
        _thread.start_new_thread(job.run, ())  # threading's would wait for it, where a signal may come, too
        while (item := job.items.get()) is not job:
            if step:
                step(item)
    except BaseException:
        job.give_up(stop)
        raise
    if job.raised:
        raise job.raised


class _Job:
    """Work, and how far it is; the job itself is the last of its items."""

    def __init__(self, work: Callable[[Callable[[Any], None]], None]) -> None:
        self.work, self.items, self.gate = work, queue.SimpleQueue(), threading.Lock()
        self.begun = self.ended = self.given_up = False
        self.raised: BaseException | None = None

    def run(self) -> None:
        with self.gate:
            if self.given_up:
                return
            self.begun = True
        try:
            self.work(self.items.put)
        except BaseException as error:  # noqa: BLE001 (raised again by run)
            self.raised = error
        self.ended = True
        self.items.put(self)

    def give_up(self, stop: Callable[[], None] | None) -> None:
        """The work has not begun and will not, or has ended, whatever signals come."""
        while not self.given_up or (stop and self.begun and not self.ended):
            try:
                with self.gate:
                    self.given_up = True
                if stop and self.begun:
                    stop()
                    self.items.get(timeout=0.1)
            except BaseException:  # noqa: BLE001, S110 (one is on its way already; or nothing was put for a while)
                pass
