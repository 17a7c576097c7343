# SPDX-License-Identifier: Apache-2.0
"""torch.ops.fp8.*: PyTorch's own check of operators, shapes and strides, gradients, threads, numbers of handles, bad input.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python tests/python/test_ops.py
"""
import gc
import subprocess
import sys
import threading
import unittest

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing} (script/bootstrap python)")
    sys.exit(77)

import fp8
from fp8 import ops

torch.manual_seed(3)
N, K = 48, 96
W = torch.randn(N, K)
BIAS = torch.randn(N)
CODES, SCALES = fp8.quantize(W, (1, 0))
REAL = fp8.dequantize(CODES, SCALES, (1, 0))
OPS = torch.ops.fp8
# For FP8 inputs without "test_schema", which compares tensors by an operator that PyTorch does not have for them.
CODE_CHECKS = ("test_faketensor", "test_aot_dispatch_dynamic", "test_autograd_registration")


def layer(bias=BIAS, scheme="weight-only"):
    made = ops.Layer(N, K, scheme=scheme)
    made.load(CODES, SCALES)
    made.set_bias(bias)
    return made


class Operators(unittest.TestCase):
    def test_opcheck(self):
        h = layer()
        x = torch.randn(3, K)
        shapes = {(K,): torch.float32, (3, K): torch.bfloat16, (2, 3, K): torch.float16, (0, K): torch.float32}
        for shape, dtype in shapes.items():
            given = torch.randn(shape).to(dtype).requires_grad_()
            torch.library.opcheck(OPS.linear.default, (given, h.number, N))
        torch.library.opcheck(OPS.linear_dx.default, (torch.randn(5, N), h.number, K))
        torch.library.opcheck(OPS.quantize.default, (x, 1, 32, 0, torch.float8_e4m3fn, torch.float8_e8m0fnu, False))
        torch.library.opcheck(OPS.quantize.default, (x, 0, 0, 1, torch.float8_e4m3fn, torch.float32, False))
        torch.library.opcheck(OPS.dequantize.default, (CODES, SCALES, 1, 0, torch.bfloat16), test_utils=CODE_CHECKS)
        xc, xs = fp8.quantize(x, (1, 0))
        for bias in (None, BIAS):
            torch.library.opcheck(OPS.scaled_mm.default, (xc, xs, 1, 0, CODES, SCALES, 1, 0, bias, torch.bfloat16),
                                  test_utils=CODE_CHECKS)

    def test_results_are_the_librarys(self):
        x = torch.randn(5, K)
        codes, scales = OPS.quantize(x, 1, 0, int(fp8._c.Rule.VLLM), torch.float8_e4m3fn, torch.float32, False)
        want = fp8.quantize(x, (1, 0), rule="vllm")
        self.assertTrue(torch.equal(codes.view(torch.uint8), want[0].view(torch.uint8)) and torch.equal(scales, want[1]))
        self.assertTrue(torch.equal(OPS.dequantize(codes, scales, 1, 0, torch.float32), fp8.dequantize(*want, (1, 0))))
        self.assertTrue(torch.equal(OPS.scaled_mm(codes, scales, 1, 0, CODES, SCALES, 1, 0, BIAS, torch.bfloat16),
                                    fp8.matmul(codes, CODES, SCALES, BIAS, x_scales=scales, w_grid=(1, 0))))
        h = layer()
        self.assertTrue(torch.equal(OPS.linear(x, h.number, N), fp8.Linear(CODES, SCALES, BIAS, scheme="weight-only")(x)))

    def test_shapes_and_strides(self):
        h = layer()
        base = torch.randn(4, 6, 2 * K)
        cases = [base[..., :K], base[..., ::2], base[:, :1, :K], base.transpose(0, 1)[..., :K], base[::2, 1::3, K:],
                 base[0, 0, :K], base[:0, :, :K], base[None, :, None, :, :K], torch.randn(K, 5).t(),
                 base[:1, :1, :K].expand(3, 2, K)]
        for x in cases:
            y = OPS.linear(x, h.number, N)
            self.assertEqual(y.shape, (*x.shape[:-1], N))
            self.assertTrue(y.is_contiguous())
            self.assertTrue(torch.equal(y, OPS.linear(x.contiguous(), h.number, N)), x.stride())

    def test_gradient(self):
        x = torch.randn(2, 3, K, requires_grad=True)
        h = layer()
        y = OPS.linear(x, h.number, N)
        dy = torch.randn_like(y)
        y.backward(dy)
        want = dy.double() @ REAL.double()
        self.assertLess((x.grad - want).abs().max(), 1e-5 * want.abs().max())

    def test_compile(self):
        h = layer(scheme="channel")

        def f(x, number):
            return torch.relu(OPS.linear(x * 2, number, N)).sum(-1)

        compiled = torch.compile(f, fullgraph=True, dynamic=True)
        for rows in (1, 4, 9):
            x = torch.randn(rows, K)
            torch.testing.assert_close(compiled(x, h.number), f(x, h.number))

    def test_bits_do_not_depend_on_threads(self):
        h, x = layer(scheme="channel"), torch.randn(37, K).bfloat16()
        before, results = torch.get_num_threads(), []
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                results.append(OPS.linear(x, h.number, N))
        finally:
            torch.set_num_threads(before)
        self.assertTrue(all(torch.equal(results[0], y) for y in results))

    def test_loops_run_on_pytorchs_threads(self):
        """As many as PyTorch has at the call, whatever the context was made with; no thread of another pool appears."""
        script = """if True:
            import torch, fp8
            torch.set_num_threads(2)
            from fp8 import ops
            torch.set_num_threads(1)
            h = ops.Layer(512, 512, scheme="channel")
            h.set_source(torch.randn(512, 512))
            count = lambda: next(l for l in open("/proc/self/status") if l.startswith("Threads:"))
            before, x = count(), torch.randn(256, 512)
            torch.ops.fp8.linear(x, h.number, 512)
            assert count() == before, (count(), before)
            torch.set_num_threads(2)
            torch.ops.fp8.linear(x, h.number, 512)
            assert count() != before, before"""
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_profiler_names_the_operator(self):
        h = layer()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            OPS.linear(torch.randn(2, K), h.number, N)
        self.assertIn("fp8::linear", {event.key for event in profile.key_averages()})


class Handles(unittest.TestCase):
    def test_a_number_after_its_linear_is_an_error(self):
        h = layer()
        number = h.number.clone()
        del h
        gc.collect()
        with self.assertRaisesRegex(RuntimeError, "names no layer of this process"):
            OPS.linear(torch.randn(1, K), number, N)

    def test_numbers_are_never_used_twice(self):
        numbers = set()
        for _ in range(200):
            numbers.add(int(layer().number))
        self.assertEqual(len(numbers), 200)

    def test_freed_while_threads_run_it(self):
        """Whoever has it runs to its end; who comes later gets the error. Nobody crashes."""
        x, failures = torch.randn(4, K), []

        def run(number):
            try:
                for _ in range(300):
                    OPS.linear(x, number, N)
            except RuntimeError as error:
                if "names no layer" not in str(error):
                    failures.append(error)

        for _ in range(5):
            h = layer()
            workers = [threading.Thread(target=run, args=(h.number.clone(),)) for _ in range(4)]
            for worker in workers:
                worker.start()
            del h
            for worker in workers:
                worker.join()
        self.assertEqual(failures, [])


class BadInput(unittest.TestCase):
    def test_sentences(self):
        h, x = layer(), torch.randn(2, K)
        cases = [
            (lambda: OPS.linear(x[:, :5], h.number, N), r"x is \[2,5\]"),
            (lambda: OPS.linear(x, h.number, N + 1), "48 columns, asked for 49"),
            (lambda: OPS.linear(x.double(), h.number, N), "dtype"),
            (lambda: OPS.linear(x, h.number.int(), N), "dtype|int64"),
            (lambda: OPS.linear(x, h.number.reshape(1), N), "int64 scalar"),
            (lambda: OPS.linear(torch.tensor(1.0), h.number, N), "0 dimensions"),
            (lambda: OPS.linear_dx(x, h.number, K), r"\[2,96\]"),
            (lambda: OPS.quantize(x[0], 1, 0, 0, torch.float8_e4m3fn, torch.float32, False), "must be a matrix"),
            (lambda: OPS.quantize(x, 1, 0, 99, torch.float8_e4m3fn, torch.float32, False), "99"),
            (lambda: OPS.quantize(x, -1, 0, 0, torch.float8_e4m3fn, torch.float32, False), "-1"),
            (lambda: OPS.dequantize(CODES, SCALES[:3], 1, 0, torch.float32), "scales"),
            (lambda: OPS.scaled_mm(CODES, SCALES, 1, 0, CODES[:, :5], SCALES, 1, 0, None, torch.float32), "5"),
        ]
        for call, words in cases:
            with self.subTest(words), self.assertRaisesRegex(RuntimeError, words):
                call()


if __name__ == "__main__":
    unittest.main()
