#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Interrupts and readers that go away. A run is held in place by a full pipe on its stderr, not by its slowness: the signal
comes while it waits to write its first progress line."""

import fcntl
import os
import signal
import subprocess
import time

import command

F_SETPIPE_SZ = 1031


class Signals(command.Case):
    def held(self, *arguments):
        """A run that waits to write progress, and the pipe to read it from."""
        reader, writer = os.pipe()
        size = fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
        os.write(writer, b"x" * size)
        process = subprocess.Popen([command.FP8, *arguments, "--progress", "json"], cwd=self.folder, stderr=writer,
                                   stdout=subprocess.PIPE)
        os.close(writer)
        self.addCleanup(process.kill)
        self.wait_for_handler(process)
        return process, reader

    def wait_for_handler(self, process):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with open(f"/proc/{process.pid}/status") as status:
                caught = [line for line in status if line.startswith("SigCgt:")]
            if int(caught[0].split()[1], 16) >> (signal.SIGINT - 1) & 1:
                return
            self.assertIsNone(process.poll(), "ended before it could be interrupted")
            time.sleep(0.001)
        self.fail("never caught SIGINT")

    def drain(self, process, reader):
        """The rest of stderr, after which the process must end."""
        text = b""
        while chunk := os.read(reader, 65536):
            text += chunk
        os.close(reader)
        process.stdout.close()
        return text.lstrip(b"x").decode(), process.wait(60)

    def interrupted(self, number, code):
        self.checkpoint(tensors=command.llama(layers=24))
        self.run_fp8("quantize", "model", "-o", "whole", "-q")
        process, reader = self.held("quantize", "model", "-o", "out")
        process.send_signal(number)
        text, status = self.drain(process, reader)
        self.assertEqual(status, code, text)
        last = text.splitlines()[-1]
        self.assertTrue(last.startswith("fp8: interrupted"), text)
        self.assertFalse((self.folder / "out").exists())
        if (self.folder / "out.partial").exists():
            self.assertIn("--resume", last)
        self.run_fp8("quantize", "model", "-o", "out", "--resume", "-q")
        files = lambda name: {p.name: p.read_bytes() for p in (self.folder / name).iterdir()}
        self.assertEqual(files("whole"), files("out"))

    def test_sigint(self):
        self.interrupted(signal.SIGINT, 130)

    def test_sigterm(self):
        self.interrupted(signal.SIGTERM, 143)

    def test_sighup(self):
        self.interrupted(signal.SIGHUP, 129)

    def test_second_signal_kills(self):
        self.checkpoint(tensors=command.llama(layers=24))
        process, reader = self.held("quantize", "model", "-o", "out")
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        self.assertEqual(process.poll(), -signal.SIGINT)
        self.drain(process, reader)
        self.run_fp8("quantize", "model", "-o", "out", "--resume", "-q")
        self.run_fp8("verify", "out", "--against", "model", "-q")

    def test_reader_of_messages_goes_away(self):
        self.checkpoint()
        reader, writer = os.pipe()
        os.close(reader)
        self.run_fp8("quantize", "model", "-o", "out", "--progress", "json", stderr=writer)
        os.close(writer)
        self.run_fp8("verify", "out", "-q")

    def test_reader_of_results_goes_away(self):
        self.checkpoint(tensors=command.llama(layers=200, hidden=2))
        reader, writer = os.pipe()
        os.close(reader)
        for arguments in (["inspect", "model", "-v"], ["inspect", "model", "--json"]):
            done = self.run_fp8(*arguments, stdout=writer, code=4)
            self.assertEqual(done.stderr, "")
        os.close(writer)

    def test_closed_streams(self):
        """A checkpoint's file must never get the number of a standard stream."""
        self.checkpoint()
        shell = lambda line: subprocess.run(["sh", "-c", line], cwd=self.folder, env={**os.environ, "FP8": command.FP8},
                                            capture_output=True, text=True)
        closed = shell('"$FP8" quantize model -o a >&-')
        self.assertEqual(closed.returncode, 4)
        self.assertIn("standard output", closed.stderr)
        self.assertEqual(shell('"$FP8" quantize model -o b <&- >&- 2>&-').returncode, 4)
        self.assertEqual(shell('"$FP8" quantize model -o c -q <&- >&- 2>&-').returncode, 0)
        for name in "abc":
            self.run_fp8("verify", name, "--against", "model", "-q")
        full = shell('"$FP8" schemes >/dev/full')
        self.assertEqual(full.returncode, 4)
        self.assertIn("No space left", full.stderr)


if __name__ == "__main__":
    command.main()
