#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Man pages, completions and help speak of the options that there are, and of all of them. The folder of the build comes
in the environment variable FP8_BUILD; without it the pages and completions are not there to be read."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess

import command

BUILD = pathlib.Path(os.environ.get("FP8_BUILD", command.ROOT / "build/release"))
WORD = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


class Texts(command.Case):
    def setUp(self):
        super().setUp()
        rows = [line.split("\t") for line in self.run_fp8("--dump-options", "tsv").stdout.splitlines()]
        self.assertEqual(rows[0], ["verb", "option", "letter", "argument", "help"])
        self.options = {}
        self.letters = {}
        for verb, option, letter, _, _ in rows[1:]:
            self.options.setdefault(verb, set()).add(option)
            if letter != "-":
                self.letters.setdefault(verb, set()).add(letter)
        self.assertEqual(len(self.options), 11)
        self.all = set().union(*self.options.values())

    def test_help(self):
        for verb, options in self.options.items():
            text = self.run_fp8(verb, "--help").stdout
            self.assertEqual(set(re.findall(r"(?m)^  (?:-.,|   ) (--[a-z-]+)", text)), options)
            self.assertLessEqual(set(WORD.findall(text)), self.all)

    def test_exactly_the_options_that_users_were_promised(self):
        self.assertEqual(self.options["quantize"], set(
            "--output --scheme --for --numerics --keep --only --set --nan --dry-run --json --progress --threads --max-memory "
            "--max-shard-size --resume --force --report --shard --activation-scales --quiet --verbose --help --version".split()))
        self.assertLessEqual({"--against", "--for", "--tp", "--json"}, self.options["verify"])
        self.assertLessEqual({"--dtype"}, self.options["dequantize"])
        self.assertLessEqual({"-o", "-j", "-q", "-v"}, self.letters["quantize"])

    def test_commands_of_the_readme(self):
        """Those about checkpoints run as they stand, in that order; only DST is made anew by each."""
        experts = {f"model.layers.0.mlp.experts.{e}.{name}_proj.weight": command.bf16(128, 128, e)
                   for e in range(2) for name in ("gate", "up", "down")}
        self.checkpoint("Llama-3.1-8B", command.llama(1, 512))
        self.checkpoint("SRC", {**command.llama(1), **experts})
        self.run_fp8("quantize", "SRC", "-o", "DEEPSEEK-FP8")
        lines = re.findall(r"(?m)^(?:\$ )?fp8 ((?:quantize|convert|dequantize|verify|schemes) .*)",
                           (command.ROOT / "README.md").read_text())
        self.assertGreaterEqual(len(lines), 9)
        for line in lines:
            shutil.rmtree(self.folder / "DST", ignore_errors=True)
            self.run_fp8(*shlex.split(line, comments=True))

    def test_man_pages(self):
        man = BUILD / "man"
        if not shutil.which("scdoc"):
            self.skipTest("no scdoc: no man pages")
        for verb, options in self.options.items():
            page = (man / f"fp8-{verb}.1").read_text()
            text = re.sub(r"\\f[BIR]", "", page).replace("\\-", "-").replace("\\&", "")
            before, _, rest = text.partition(".SH OPTIONS")
            section = rest.split(".SH ")[0]
            self.assertLessEqual(options, set(WORD.findall(section)), verb)
            self.assertLessEqual(set(WORD.findall(text)), self.all, verb)
        for page in ("fp8.1", "fp8-formats.5"):
            text = re.sub(r"\\f[BIR]", "", (man / page).read_text()).replace("\\-", "-").replace("\\&", "")
            self.assertLessEqual(set(WORD.findall(text)), self.all, page)
        formats = (man / "fp8-formats.5").read_text().replace("\\-", "-")
        for line in self.run_fp8("schemes").stdout.split("\n\n")[0].splitlines()[1:]:
            self.assertIn(line.split()[0], formats)

    def complete(self, *words):
        """What bash offers for the last of the words."""
        quoted = " ".join(f"'{word}'" for word in words)
        script = (f". '{BUILD}/cli/completions/bash'; compopt() {{ :; }}; COMP_WORDS=({quoted}); "
                  f"COMP_CWORD={len(words) - 1}; _fp8; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        done = subprocess.run(["bash", "--norc", "-c", script], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_bash_completion(self):
        self.assertEqual(self.complete("fp8", ""), set(self.options) | {"help", "--help", "--version"})
        self.assertEqual(self.complete("fp8", "qu"), {"quantize"})
        self.assertEqual(self.complete("fp8", "help", "do"), {"doctor"})
        for verb, options in self.options.items():
            self.assertEqual(self.complete("fp8", verb, "--"), options)
            self.assertEqual(self.complete("fp8", verb, "-"), options | self.letters[verb])
        self.assertIn("ct-channel", self.complete("fp8", "quantize", "--scheme", "ct-c"))
        self.assertIn("ct-channel", self.complete("fp8", "quantize", "--scheme", "=", "ct-c"))
        self.assertIn("ct-channel", self.complete("fp8", "quantize", "-s", ""))
        self.assertIn("hf-block", self.complete("fp8", "quantize", "--scheme", "="))
        self.assertIn("vllm", self.complete("fp8", "verify", "x", "--for", ""))
        self.assertEqual(self.complete("fp8", "quantize", "--nan", ""), {"refuse", "keep"})
        self.assertEqual(self.complete("fp8", "quantize", "--max-memory", ""), set())
        self.assertEqual(self.complete("fp8", "bench", ""), {"linear", "quantize"})
        self.assertEqual(self.complete("fp8", "bench", "linear", "--scheme", "mx"), {"mxfp8"})
        self.assertEqual(self.complete("fp8", "explain", "--activation", ""), {"none", "dynamic", "static", "codes"})
        self.checkpoint("some")
        (self.folder / "note.txt").write_text("")
        self.assertEqual(self.complete("fp8", "quantize", ""), {"some", "note.txt"})
        self.assertEqual(self.complete("fp8", "quantize", "some", "-o", ""), {"some"})

    def test_zsh_completion(self):
        text = (BUILD / "cli/completions/zsh").read_text()
        self.assertTrue(text.startswith("#compdef fp8\n"))
        self.assertEqual(set(WORD.findall(text)) - {"--dump-options"}, self.all)
        for verb in self.options:
            self.assertIn(f"    {verb})\n", text)
        if shutil.which("zsh"):
            subprocess.run(["zsh", "-n", BUILD / "cli/completions/zsh"], check=True)

    def test_exit_codes_are_documented(self):
        page = (command.ROOT / "man/fp8.1.scd").read_text().split("# EXIT STATUS")[1].split("\n# ")[0]
        for code in ("0", "1", "2", "3", "4", "5", "6", "130", "143"):
            self.assertIn(f"*{code}*", page)


if __name__ == "__main__":
    command.main()
