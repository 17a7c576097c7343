#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Help, version, and command lines that make no sense."""

import json
import os

import command

FAKE_CUDA = os.path.abspath(os.environ.get("FP8_FAKE_CUDA", command.ROOT / "build/release/tests/cuda/fake_cuda"))
VERBS = ["quantize", "dequantize", "convert", "inspect", "verify", "diff", "schemes", "doctor", "explain",
         "bench", "tune"]


class Usage(command.Case):
    def test_help_of_each_verb(self):
        for verb in VERBS:
            text = self.run_fp8(verb, "--help").stdout
            self.assertTrue(text.startswith(f"usage: fp8 {verb}"), text)
            self.assertLessEqual(max(map(len, text.splitlines())), 80, verb)
            self.assertIn("examples:", text)
            self.assertEqual(text, self.run_fp8("help", verb).stdout)
            self.assertEqual(text, self.run_fp8(verb, "-h", "--no-such-option").stdout)

    def test_help_names_all_verbs(self):
        text = self.run_fp8("--help").stdout
        for verb in VERBS:
            self.assertIn(verb, text)
        self.assertEqual(text, self.run_fp8("help").stdout)
        self.assertEqual(text, self.run_fp8(code=2).stderr)

    def test_version(self):
        version = self.run_fp8("--version").stdout
        self.assertRegex(version, r"^fp8 \d+\.\d+\.\d+\n$")
        self.assertEqual(version, self.run_fp8("quantize", "--version").stdout)
        self.assertEqual(version, self.run_fp8("-V").stdout)

    def test_errors_are_one_line_and_exit_2(self):
        model = self.checkpoint()
        for arguments, says in [
            (["quantise"], ["quantise", "quantize"]),
            (["frobnicate"], ["frobnicate", "--help"]),
            (["help", "frobnicate"], ["frobnicate"]),
            (["quantize"], ["path"]),
            (["quantize", model], ["-o"]),
            (["quantize", model, "out"], ["out", "-o"]),
            (["quantize", model, "-o", "out.safetensors"], ["out.safetensors", "directory"]),
            (["quantize", model, "-o"], ["--output", "DST"]),
            (["quantize", model, "-o", "out", "--shceme", "hf-block"], ["--shceme", "--scheme"]),
            (["quantize", model, "-o", "out", "-Z"], ["-Z"]),
            (["quantize", model, "-o", "out", "--json=yes"], ["--json"]),
            (["quantize", model, "-o", "out", "--scheme", "hfblock"], ["hfblock", "hf-block"]),
            (["quantize", model, "-o", "out", "--scheme", "int4"], ["int4", "hf-block", "ct-channel"]),
            (["quantize", model, "-o", "out", "--for", "vlm"], ["vlm", "vllm"]),
            (["quantize", model, "-o", "out", "--for", "vLLM"], ["vLLM", "did you mean vllm?"]),
            (["quantize", model, "-o", "out", "--numerics", "x"], ["'x'", "best"]),
            (["quantize", model, "-o", "out", "--max-memory", "99999999999GB"], ["99999999999GB", "64MiB"]),
            (["quantize", model, "-o", "out", "--max-memory", "-1"], ["-1"]),
            (["quantize", model, "-o", "out", "--shard", "3/2"], ["3/2"]),
            (["quantize", model, "-o", "out", "--report", "r.txt"], ["r.txt", ".html"]),
            (["quantize", model, "-o", "out", "-q", "-v"], ["--quiet", "--verbose"]),
            (["quantize", model, "-o", "out", "--set", "x"], ["--set"]),
            (["quantize", "", "-o", "out"], ["empty"]),
            (["convert", model, "-o", "out"], ["--scheme"]),
            (["diff", model], ["two"]),
            (["verify", model, "--tp", "0"], ["--tp"]),
            (["inspect", model, "--force"], ["--force"]),
            (["quantize", model, "x"], ["'x'?", "-o names the output"]),
            (["verify", "x", model], ["--against names the source"]),
            (["bench", "linear", "x"], ["takes one of: linear, quantize", "'x'?"]),
        ]:
            self.fails(*arguments, code=2, says=says)
        self.assert_no_output()

    def test_option_of_another_verb(self):
        self.fails("quantize", "m", "-o", "o", "--dtype", "f16", code=2, says=["quantize does not take --dtype"])
        for option in ("--keep", "--only", "--set"):
            self.fails("dequantize", "m", "-o", "o", option, "x", code=2, says=["dequantize does not take " + option])
            self.assertNotIn(option, self.run_fp8("dequantize", "--help").stdout)

    def test_lists_come_from_the_library(self):
        import json
        listed = json.loads(self.run_fp8("schemes", "--json").stdout)
        names = [scheme["name"] for scheme in listed["schemes"]]
        self.assertIn("hf-block", names)
        self.assertIn("best", listed["numerics"])
        self.assertIn("vllm", listed["engines"])
        text = self.run_fp8("schemes").stdout
        for name in names + listed["numerics"] + listed["engines"]:
            self.assertIn(name, text)

    def test_doctor(self):
        text = self.run_fp8("doctor").stdout
        for key in ["version", "isa", "threads", "cuda kernels", "cuda driver"]:
            self.assertIn(key + ": ", text)

    def test_doctor_lists_gpus(self):
        driver = {"LD_LIBRARY_PATH": FAKE_CUDA}
        lines = self.run_fp8("doctor", env=driver).stdout.splitlines()
        self.assertIn("cuda driver: CUDA 12.4", lines)
        none = "cuda kernels: none in this build" in lines
        self.assertIn("cuda:0: NVIDIA H100 80GB HBM3, compute capability 9.0, 132 multiprocessors, 85.0 GiB; runs " +
                      ("nothing: this build has no CUDA kernels" if none else "quantizers, linears and layers"), lines)
        document = json.loads(self.run_fp8("doctor", "--json", env=driver).stdout)
        self.assertEqual(document["cuda driver"], "CUDA 12.4")
        self.assertEqual([(gpu["index"], gpu["capability"]) for gpu in document["gpus"]], [(0, "9.0"), (1, "8.0")])


if __name__ == "__main__":
    command.main()
