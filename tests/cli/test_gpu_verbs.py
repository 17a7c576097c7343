#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""explain, bench and doctor on a GPU, over the fake driver and fakes of cuBLASLt and NVML: it computes nothing, but keeps a
clock of what it is given, so that times and ratios are known."""

import json
import os
import re

import command

FAKE_CUDA = os.path.abspath(os.environ.get("FP8_FAKE_CUDA", command.ROOT / "build/release/tests/cuda/fake_cuda"))
FAKE_VENDOR = os.path.abspath(os.environ.get("FP8_FAKE_VENDOR", command.ROOT / "build/release/tests/cuda/fake_vendor"))
WITH_PEERS = {"LD_LIBRARY_PATH": FAKE_CUDA + ":" + FAKE_VENDOR}
SCHEMES = ["w8a16", "tensor", "channel", "block", "mxfp8", "gemm", "fast"]
TUNED = [("gemm", "channel"), ("block", "block"), ("channel", "whole_channel"), ("block", "whole_block"),
         ("w8a16", "wide_channel"), ("mxfp8", "wide_mx")]  # schemes, and their kinds in a tuned file
QUICK = ["--device", "cuda", "--seconds", "0.001"]
LINEAR = ["shape", "scheme", "kernel", "weights", "copies", "launches", "rounds", "us", "best_us", "warm_us", "alone_us",
          "host_us", "launch_us", "whole_us", "whole_alone_us", "whole_host_us", "whole_launch_us", "TFLOP/s", "GB/s", "of_known", "of_product", "of_read",
          "roof_us", "of_roof", "sustained_us", "sustained_MHz", "sustained_W"]
QUANTIZE = ["shape", "scheme", "what", "matrix", "in", "memory", "copies", "launches", "rounds", "us", "best_us", "host_us",
            "launch_us", "GB/s", "copy_us", "of_copy", "static_us", "static_of_copy", "dequantize_us", "dequantize_of_copy"]


def fields(line):
    """{name: value} of a line of bench, without its first two words."""
    return dict(word.split("=", 1) for word in line.split()[2:])


class GpuVerbs(command.Case):
    def setUp(self):
        super().setUp()
        if "cuda kernels: none" in self.run_fp8("doctor").stdout:
            self.skipTest("this build has no CUDA kernels")

        self.alone = {"LD_LIBRARY_PATH": f"{self.folder}:{FAKE_CUDA}"}
        for name in ["libcublasLt.so.13", "libcublasLt.so.12", "libnvidia-ml.so.1"]:
            (self.folder / name).write_bytes(b"")  # found first, and no library

    def lines(self, *arguments, kind, env=None):
        text = self.run_fp8("bench", *arguments, *QUICK, env=env or self.alone).stdout
        return [fields(line) for line in text.splitlines() if line.startswith(f"bench {kind} ")]

    def test_linear_alone(self):
        lines = self.lines("linear", "--shape", "16x256x512", kind="linear")
        self.assertEqual([line["scheme"] for line in lines], SCHEMES)
        for line in lines:
            self.assertEqual(list(line), LINEAR)
            self.assertEqual((line["shape"], line["weights"]), ("16x256x512", "cold"))
            self.assertGreater(int(line["copies"]), 1)
            self.assertEqual(int(line["launches"]) % int(line["copies"]), 0)
            self.assertEqual(float(line["us"]), float(line["best_us"]))
            self.assertEqual(line["us"], line["sustained_us"])
            self.assertEqual(float(line["us"]) + 1, float(line["alone_us"]))
            self.assertEqual(line["sustained_W"], "-")
            self.assertEqual(line["whole_us"] == "-", line["scheme"] in ("w8a16", "gemm"), line)
        product = {line["scheme"]: float(line["us"]) for line in lines}
        self.assertEqual((product["channel"], product["gemm"]), (10, 10))  # one launch each
        whole = {line["scheme"]: float(line["whole_us"]) for line in lines if line["whole_us"] != "-"}
        self.assertEqual(whole["channel"], 20)  # one launch for X
        one = self.lines("linear", "--shape", "1x256x512", "--scheme", "channel", kind="linear")
        self.assertEqual(float(one[0]["whole_us"]), 10)  # one row of X is quantized there

    def test_machine(self):
        text = self.run_fp8("bench", "linear", "--shape", "16x256x512", "--scheme", "gemm", *QUICK, env=self.alone).stdout
        machine = fields(text.splitlines()[0])
        self.assertEqual((machine["device"], machine["name"]), ("cuda:0", "NVIDIA_H100_80GB_HBM3"))
        self.assertEqual(machine["known_TFLOP/s"], f"{132 * 8192 * 1980e6 * 1e-12:.4g}")
        self.assertEqual(machine["product_by"], "fp8")
        self.assertEqual(machine["product_TFLOP/s"], f"{2 * 8192**3 / 10e-6 * 1e-12:.4g}")
        self.assertIn("bench peer name=cublaslt: neither libcublasLt.so.13 nor libcublasLt.so.12 is installed", text)
        self.assertIn("bench peer name=nvml: libnvidia-ml.so.1 is not installed", text)
        self.assertNotIn("cublaslt_ratio", text)

    def test_linear_beside_a_peer(self):
        for line in self.lines("linear", "--shape", "16x256x512", kind="linear", env=WITH_PEERS):
            if line["scheme"] == "mxfp8":
                self.assertNotIn("cublaslt_us", line)
                continue
            self.assertEqual(float(line["cublaslt_us"]), 20)
            self.assertAlmostEqual(float(line["cublaslt_ratio"]), 20 / float(line["us"]), delta=0.01)
            self.assertEqual("cublaslt_fast_us" in line, line["scheme"] in ("tensor", "channel", "gemm", "fast"))
            self.assertEqual("cublaslt_tensor_fast_us" in line, line["scheme"] in ("channel", "gemm", "fast"))
            self.assertEqual((line["sustained_MHz"], line["sustained_W"]), ("1755", "412"))
            self.assertEqual(float(line["cublaslt_sustained_us"]), 20)

    def test_quantize(self):
        lines = self.lines("quantize", "--shape", "64x256x512", kind="quantize")
        self.assertEqual([(line["scheme"], line["what"]) for line in lines],
                         [("w8a16", "w")] + [(s, what) for s in ("tensor", "channel", "block", "mxfp8") for what in "xw"])
        for line in lines:
            self.assertEqual(list(line), QUANTIZE)
            self.assertEqual(line["copy_us"], "4")
            self.assertEqual(line["dequantize_us"], "10")
        lines = self.lines("quantize", "--shape", "64x256x512", "--scheme", "channel", "--dtype", "f32", "--numerics", "vllm",
                           kind="quantize")
        self.assertEqual([line["in"] for line in lines], ["F32", "F32"])

    def test_json(self):
        for subject, keys in [("linear", LINEAR), ("quantize", QUANTIZE)]:
            done = self.run_fp8("bench", subject, "--shape", "16x256x512", "--json", *QUICK, env=WITH_PEERS)
            document = json.loads(done.stdout)
            self.assertEqual(list(document), ["machine", "peers", "cases"])
            self.assertEqual(document["peers"]["nvml"], "timed")
            for case in document["cases"]:
                self.assertLessEqual(set(keys), set(case))

    def test_explain(self):
        done = self.run_fp8("explain", "--device", "cuda:0", "--shape", "16x4096x4096", "--activation", "codes", "--json", env=self.alone)
        for case in json.loads(done.stdout)["cases"]:
            candidates = case["candidates"]
            self.assertEqual([c["chosen"] for c in candidates], [True] + [False] * (len(candidates) - 1))
            if case["scheme"] != "channel":
                continue
            self.assertGreater(len(candidates), 5)
            estimates = [("only if no other" in c["reason"], float(re.search(r"estimated ([0-9.]+) us", c["reason"]).group(1)))
                         for c in candidates[1:-2]]
            self.assertIn("measured 7.1 us (built in)", candidates[0]["reason"])
            self.assertEqual(estimates, sorted(estimates))
            self.assertRegex(candidates[0]["reason"], r"tiles of \d+x\d+")
            self.assertIn("does everything", candidates[-1]["reason"])

    def tune(self, *arguments, code=0):
        return self.run_fp8("tune", "--seconds", "0.001", *arguments, code=code, env=self.alone)

    def test_tune(self):
        shapes = ["--shape", "16x256x512", "--shape", "7x256x512", "--shape", "16x256x512"]
        done = self.tune("--device", "cuda", *shapes, "-o", "tuned")
        lines = [dict(word.split("=", 1) for word in line.split()[1:]) for line in done.stdout.splitlines()]
        self.assertEqual([(line["shape"], line["scheme"], line["kind"]) for line in lines],
                         [(shape, *tuned) for shape in ("16x256x512", "7x256x512") for tuned in TUNED])
        for line in lines:
            few = line["shape"][0] == "7"
            us = "20" if line["scheme"] == "mxfp8" or ("whole" in line["kind"] and not few) else "10"  # a launch for X
            self.assertEqual(line["us"], us)
            self.assertGreater(int(line["candidates"]), 3)
            if "whole" in line["kind"] and few:  # here all launches take the same time, and a quantizer is one more
                before = 10 if "quantize" in line["before"] else 20
                self.assertEqual((int(line["before_us"]), int(line["gain"])), (before, before / 10))
                self.assertLess(int(line["timed"]), int(line["candidates"]))
                self.assertIn("gemm_small_quantize_", line["kernel"])
            else:
                self.assertEqual((line["before_us"], line["gain"]), (us, "1"))
                self.assertEqual(line["timed"], line["candidates"])
        text = (self.folder / "tuned").read_text().splitlines()
        self.assertEqual(text[:2], ["fp8-tuned 1", "device NVIDIA H100 80GB HBM3"])
        self.assertRegex(text[2], r"^driver \d+$")
        self.assertEqual(text[4:], [f"{line['kind']} 256 512 {line['shape'].split('x')[0]} "
                                    f"{line['kernel']} {line['us']}000" for line in lines])
        self.assertEqual([p.name for p in self.folder.glob("tuned*")], ["tuned"])

        for scheme, kind in [*TUNED, ("gemm", None)]:  # the last by bench
            activation = "dynamic" if "whole" in str(kind) else "none" if scheme == "w8a16" else "codes"
            verb, arguments = ("explain", ["--device", "cuda", "--activation", activation]) if kind else ("bench", ["linear", *QUICK])
            for rows, measured in ((12, "16x256x512"), (5, "7x256x512")):
                text = self.run_fp8(verb, *arguments, "--shape", f"{rows}x256x512", "--scheme", scheme, "--tuned", "tuned",
                                    env=self.alone).stdout
                kernel = next(line["kernel"] for line in lines
                              if (line["shape"], line["scheme"], line["kind"]) == (measured, scheme, kind or "channel"))
                self.assertRegex(text, rf"(?m)^\* +{kernel} .*measured [12]0.0 us \(by the file\)" if verb == "explain"
                                 else f"kernel={kernel} ")

        self.assertIn("tuned exists; --force replaces it", self.tune("--device", "cuda", *shapes, "-o", "tuned", code=2).stderr)
        document = json.loads(self.tune("--device", "cuda", *shapes, "--m", "32", "--scheme", "tensor", "-f", "-o", "tuned",
                                        "--json").stdout)
        self.assertEqual([case["shape"] for case in document["cases"]], ["32x256x512"])
        for rows, kinds in ((256, ["whole_channel", "channel"]), (257, ["channel"])):
            done = self.tune("--device", "cuda", *shapes, "--m", str(rows), "--scheme", "channel", "-f", "-o", "many", "--json")
            self.assertEqual([case["kind"] for case in json.loads(done.stdout)["cases"]], kinds)
        self.assertEqual((self.folder / "tuned").read_text().splitlines()[4].split()[:4], ["channel", "256", "512", "32"])

    def test_tune_with_nothing_to_choose(self):
        done = self.tune("--device", "cuda:1", "--shape", "16x256x512", "-o", "tuned")
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("nothing to choose"), 6)
        text = self.run_fp8("explain", "--device", "cuda", "--shape", "1x16x16", "--tuned", "tuned", code=3, env=self.alone).stderr
        self.assertRegex(text, "tuned, line 2: measured on NVIDIA A100.*, the context's device is NVIDIA H100 80GB HBM3")

    def test_tune_bad_input(self):
        shape = ["--shape", "16x256x512"]
        (self.folder / "link").symlink_to("elsewhere")
        for arguments, code, says in [
                ([*shape, "-o", "t"], 2, "--device cuda, or cuda:N"),
                ([*shape, "--device", "cuda"], 2, "needs -o FILE"),
                (["--device", "cuda", "-o", "t"], 2, "needs --shape MxNxK"),
                ([*shape, "--device", "cuda", "-o", "t", "--scheme", "mx"], 2, "there is no 'mx'"),
                ([*shape, "--device", "cuda", "-o", "none/t"], 4, "cannot write none/t: No such file"),
                ([*shape, "--device", "cuda", "-o", "/dev/full/t"], 4, "cannot write /dev/full/t: Not a directory"),
                ([*shape, "--device", "cuda", "-f", "-o", "link"], 2, "link is no regular file"),
                ([*shape, "--device", "cuda", "-f", "-o", "."], 2, ". is no regular file"),
                (["--shapes", "none", "--device", "cuda", "-o", "t"], 3, "none: cannot open"),
                ([*shape, "--device", "cuda:7", "-o", "t"], 6, "cuda:7: the driver shows 2 devices")]:
            done = self.tune(*arguments, code=code)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")  # nothing was measured
        self.assertTrue((self.folder / "link").is_symlink())
        (self.folder / "t.partial").symlink_to("/dev/full")
        self.assertIn("cannot write t: No space left", self.tune(*shape, "--device", "cuda", "-o", "t", code=4).stderr)
        self.assertEqual(list(self.folder.glob("t*")), [])
        (self.folder / "bad").write_text("fp8-tuned 3\n")
        done = self.run_fp8("explain", *shape, "--device", "cuda", "--tuned", "bad", code=6, env=self.alone)
        self.assertIn("bad: format 3, this library reads 1", done.stderr)
        self.run_fp8("explain", *shape, "--tuned", "bad", code=2)  # of the CPU

    def test_explain_on_another_gpu(self):
        text = self.run_fp8("explain", "--device", "cuda:1", "--shape", "16x4096x4096", "--scheme", "channel", env=self.alone).stdout
        self.assertRegex(text, r"(?m)^\* +gemm_mma_codes ")
        self.assertIn("for compute capability 9.0", text)

    def test_doctor(self):
        text = self.run_fp8("doctor", "--peaks", env=WITH_PEERS).stdout
        self.assertIn("cublaslt: libcublasLt.so.13, version 130100\n", text)
        self.assertIn("nvml: driver 999.1\n", text)
        self.assertEqual(re.findall(r"(?m)^peak (cuda:\d \w+): ", text), ["cuda:0 read", "cuda:0 copy", "cuda:1 read", "cuda:1 copy"])
        text = self.run_fp8("doctor", env=self.alone).stdout
        self.assertIn("cublaslt: not installed", text)
        self.assertIn("nvml: libnvidia-ml.so.1 is not installed\n", text)

    def test_bad_input(self):
        shape = ["--shape", "1x16x16"]
        for device, code, says in [("gpu", 2, ["--device", "cuda:N"]), ("cuda:", 2, ["cuda:"]), ("cuda:x", 2, ["cuda:x"]),
                                   ("cuda:-1", 2, ["cuda:-1"])]:
            self.fails("explain", *shape, "--device", device, code=code, says=says)
        done = self.run_fp8("bench", "linear", *shape, "--device", "cuda:2", code=6, env=self.alone)
        self.assertIn("cuda:2: the driver shows 2 devices", done.stderr)
        (self.folder / "libcuda.so.1").write_bytes(b"")
        nothing = {"LD_LIBRARY_PATH": str(self.folder)}
        done = self.run_fp8("bench", "linear", *shape, "--device", "cuda", code=6, env=nothing)
        self.assertIn("no CUDA driver", done.stderr)


if __name__ == "__main__":
    command.main()
