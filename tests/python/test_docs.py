# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/python.md and examples/ run as they stand, each by itself, on a copy of a small checkpoint.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python tests/python/test_docs.py
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import torch.library  # noqa: F401
    import transformers  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing} (script/bootstrap python)")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Docs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fp8-docs-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.model = self.folder / "model"
        shutil.copytree(ROOT / "tests/golden/checkpoints/llama_untied_bf16", self.model)

    def run_python(self, *arguments):
        done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_every_program_of_the_page(self):
        programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), flags=re.S)
        self.assertGreaterEqual(len(programs), 4)
        for program in programs:
            with self.subTest(program.splitlines()[0]):
                self.run_python("-c", f"path = {str(self.model)!r}\n{program}")

    def test_examples(self):
        self.assertRegex(self.run_python(ROOT / "examples/pytorch_model.py"), r"relative difference: 0\.0[1-9]")
        said = self.run_python(ROOT / "examples/transformers_model.py", self.model, self.folder / "out")
        self.assertRegex(said, r"\[\[1, 2, 3")
        self.assertTrue((self.folder / "out/config.json").exists())
        for example in (ROOT / "examples").glob("*.py"):
            code = [line for line in example.read_text().splitlines() if line and not line.startswith("#")]
            self.assertLessEqual(len(code), 14, example.name)


if __name__ == "__main__":
    unittest.main()
