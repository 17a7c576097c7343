#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each allocation of a verb fails once, the others do not: the program says so in one line and ends with exit code 5. The
environment variable FP8_SHIM_ALLOC names the built shim_alloc.c."""

import json
import os
import re
import subprocess
import sys

import command


class Memory(command.Case):
    def shim(self, arguments, at):
        """Runs fp8 with allocation `at` failing, 0 = none; the process and how many there were."""
        log = self.folder / "allocations"
        done = subprocess.run([command.FP8, *arguments], cwd=self.folder, capture_output=True, text=True, env={
            **os.environ, "LD_PRELOAD": os.environ["FP8_SHIM_ALLOC"], "FP8_ALLOC_AT": str(at), "FP8_ALLOC_LOG": str(log),
            "OMP_NUM_THREADS": "1"})
        return done, int(log.read_text())

    def fail_each(self, *arguments):
        """Lets each allocation fail in turn; returns how many there are."""
        # Free space changes by itself.
        comparable = lambda text: re.sub(r'[\d.]+ .B free.*|"disk_free_bytes": \d+', "", text)
        whole, count = self.shim(arguments, 0)
        self.assertEqual(whole.returncode, 0, whole)
        for at in range(1, count + 1):
            done, _ = self.shim(arguments, at)
            what = f"{arguments}, allocation {at} of {count}: {done}"
            if done.returncode == 0: # it was not needed: then nothing may differ
                self.assertEqual(comparable(done.stdout), comparable(whole.stdout), what)
                continue
            self.assertEqual(done.returncode, 5, what)
            self.assertEqual(done.stderr.count("\n"), 1, what)
            self.assertTrue(done.stderr.startswith("fp8: "), what)
            self.assertIn("memory", done.stderr, what)
            if "--json" in arguments and at > 1: # the first belongs to the parsing of the options
                self.assertEqual(json.loads(done.stdout)["error"]["exit"], 5)
        return count

    def test_inspect(self):
        self.checkpoint()
        for extra in ([], ["-v"], ["--json"]):
            self.assertGreater(self.fail_each("inspect", "model", *extra), 5)

    def test_dry_run(self):
        self.checkpoint()
        for extra in ([], ["-v"], ["--json"]):
            self.assertGreater(self.fail_each("quantize", "model", "-o", "out", "--dry-run", "--keep", "*.q_proj", *extra), 20)


if __name__ == "__main__":
    if "FP8_SHIM_ALLOC" not in os.environ:
        sys.exit("set FP8_SHIM_ALLOC")
    command.main()
