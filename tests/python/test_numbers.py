# SPDX-License-Identifier: Apache-2.0
"""quantize, dequantize, requantize, matmul and Linear on numpy arrays and torch tensors, and the exceptions of bad input.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python tests/python/test_numbers.py
"""
import gc
import itertools
import pickle
import sys
import unittest

try:
    import ml_dtypes
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing} (script/bootstrap python)")
    sys.exit(77)

import fp8

RNG = np.random.default_rng(5)
GRIDS = [(0, 0), (1, 0), (0, 1), (1, 32), (128, 128), (3, 5)]


def expected(x, grid, scale_of=lambda amax: amax / np.float32(448)):
    """codes as real numbers, and scales, by the formula of docs/numerics.md in numpy."""
    rows, cols = (extent or size for extent, size in zip(grid, x.shape))
    codes = np.zeros(x.shape, np.float32)
    scales = np.zeros(fp8.numbers.scale_shape(*x.shape, grid), np.float32)
    for i, j in itertools.product(*(range(n) for n in scales.shape)):
        block = np.s_[i * rows:(i + 1) * rows, j * cols:(j + 1) * cols]
        scales[i, j] = scale_of(np.abs(x[block]).max()) or 1
        codes[block] = (x[block] / scales[i, j]).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return codes, scales


def spread(scales, grid, shape):
    rows, cols = (extent or size for extent, size in zip(grid, shape))
    return np.repeat(np.repeat(scales, rows, 0), cols, 1)[:shape[0], :shape[1]]


class Numbers(unittest.TestCase):
    def test_quantize_is_the_formula_on_every_grid(self):
        x = RNG.standard_normal((150, 260)).astype(np.float32)
        for grid in GRIDS:
            codes, scales = fp8.quantize(x, grid)
            want_codes, want_scales = expected(x, grid)
            self.assertTrue(np.array_equal(codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32), want_codes), grid)
            self.assertTrue(np.array_equal(scales, want_scales), grid)
            real = fp8.dequantize(codes, scales, grid)
            self.assertTrue(np.array_equal(real, want_codes * spread(want_scales, grid, x.shape)), grid)

    def test_torch_gets_the_bytes_that_numpy_gets(self):
        x = RNG.standard_normal((40, 96)).astype(np.float32)
        for rule, grid in (("best", (1, 32)), ("vllm", (1, 0)), ("vllm", (0, 0)), ("compressed-tensors", (128, 128))):
            codes, scales = fp8.quantize(x, grid, rule=rule)
            tcodes, tscales = fp8.quantize(torch.from_numpy(x), grid, rule=rule)
            self.assertEqual(tcodes.dtype, torch.float8_e4m3fn)
            self.assertTrue(np.array_equal(tcodes.view(torch.uint8).numpy(), codes))
            self.assertTrue(np.array_equal(tscales.numpy(), scales))

    def test_other_dtypes_of_inputs_codes_and_scales(self):
        x = RNG.standard_normal((8, 64)).astype(ml_dtypes.bfloat16)
        codes, scales = fp8.quantize(x, (1, 32), code="float8_e5m2", scale="float8_e8m0fnu")
        self.assertEqual((codes.dtype, scales.dtype), (np.uint8, np.uint8))
        real = fp8.dequantize(codes, scales, (1, 32), code="float8_e5m2", dtype="bfloat16")
        self.assertEqual(real.dtype, ml_dtypes.bfloat16)
        self.assertLess(np.abs(real.astype(float) - x.astype(float)).max(), 0.13 * np.abs(x.astype(float)).max())
        t = torch.from_numpy(x.astype(np.float32)).to(torch.float16)
        tcodes, tscales = fp8.quantize(t, (1, 32), code=torch.float8_e4m3fn, scale=torch.float8_e8m0fnu)
        self.assertEqual((tcodes.dtype, tscales.dtype), (torch.float8_e4m3fn, torch.float8_e8m0fnu))

    def test_strides_are_taken_as_they_are(self):
        base = RNG.standard_normal((40, 60)).astype(np.float32)
        for x in (base.T, base[::2, ::3], base[::-1]):
            codes, scales = fp8.quantize(x, (1, 0))
            again, _ = fp8.quantize(np.ascontiguousarray(x), (1, 0))
            self.assertTrue(np.array_equal(codes, again))
        codes, _ = fp8.quantize(torch.from_numpy(base).t(), (1, 0))
        self.assertTrue(np.array_equal(codes.view(torch.uint8).numpy(), fp8.quantize(base.T, (1, 0))[0]))

    def test_given_scales_padding_and_bounds(self):
        x = RNG.standard_normal((3, 16)).astype(np.float32)
        codes, scales = fp8.quantize(x, scales=np.full((1, 1), 0.5, np.float32), rows=5)
        self.assertEqual(codes.shape, (5, 16))
        self.assertFalse(codes[3:].any())
        self.assertTrue(np.array_equal(fp8.dequantize(codes[:3], scales),
                                       (x * 2).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) / 2))
        self.assertEqual(fp8.quantize(x, scale_ub=4.48)[1], min(np.abs(x).max(), np.float32(4.48)) / np.float32(448))

    def test_requantize(self):
        x = RNG.standard_normal((64, 64)).astype(np.float32)
        codes, scales = fp8.quantize(x, (1, 0))
        again, new = fp8.requantize(codes, scales, (1, 0), (32, 32))
        want, want_scales = fp8.quantize(fp8.dequantize(codes, scales, (1, 0)), (32, 32))
        self.assertTrue(np.array_equal(again, want) and np.array_equal(new, want_scales))

    def test_linear_and_matmul_agree_with_fp64(self):
        x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in ((7, 130), (40, 130)))
        bias = RNG.standard_normal(40).astype(np.float32)
        codes, scales = fp8.quantize(w, (128, 128))
        want = x.astype(float) @ fp8.dequantize(codes, scales, (128, 128)).T.astype(float) + bias
        bound = 130 * 2.0**-24 * (np.abs(x.astype(float)) @ np.abs(fp8.dequantize(codes, scales, (128, 128))).T + np.abs(bias))
        y = fp8.matmul(x, codes, scales, bias, w_grid=(128, 128))
        self.assertTrue((np.abs(y - want) <= bound).all())
        linear = fp8.Linear(codes, scales, bias, desc=fp8._c.LinearDesc(w=fp8._c.QuantizeDesc(grid=fp8._c.Grid(128, 128))))
        self.assertTrue((np.abs(linear(x) - want) <= bound).all())
        self.assertTrue(np.array_equal(linear.export(w)[0], codes))
        self.assertTrue(np.array_equal(linear.clone()(x), linear(x)))
        dy = RNG.standard_normal((7, 40)).astype(np.float32)
        self.assertLess(np.abs(linear.gradient(dy) - dy @ fp8.dequantize(codes, scales, (128, 128))).max(), 1e-3)

    def test_matmul_of_codes(self):
        x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 64), (16, 64)))
        (xc, xs), (wc, ws) = fp8.quantize(x, (1, 0)), fp8.quantize(w, (1, 0))
        y = fp8.matmul(xc, wc, ws, x_scales=xs, w_grid=(1, 0), out="float32")
        want = fp8.dequantize(xc, xs, (1, 0)) @ fp8.dequantize(wc, ws, (1, 0)).T
        self.assertLess(np.abs(y - want).max(), 1e-4 * np.abs(want).max())

    def test_a_linear_outlives_the_name_of_its_context(self):
        linear = fp8.Linear(RNG.standard_normal((16, 16)).astype(np.float32), context=fp8.Context(threads=1))
        gc.collect()
        self.assertEqual(linear(np.ones((1, 16), np.float32)).shape, (1, 16))

    def test_no_rows_no_columns(self):
        self.assertEqual(fp8.quantize(np.zeros((0, 8), np.float32), (1, 0))[1].shape, (0, 1))
        w = np.ones((4, 8), np.float32)
        self.assertEqual(fp8.Linear(w)(np.zeros((0, 8), np.float32)).shape, (0, 4))


class Elsewhere:
    """An array of another package."""

    shape = (2, 2)
    __module__ = "numbers.of"

    def __dlpack__(self):
        raise AssertionError("nobody asks")


class BadInput(unittest.TestCase):
    def raises(self, kind, words, call, status=None):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIs(type(caught.exception), kind)
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertEqual(getattr(caught.exception, "status", None), status)
        return caught.exception

    def test_classes_and_sentences(self):
        x = np.ones((4, 8), np.float32)
        nan = x.copy()
        nan[2, 3] = np.nan
        self.raises(TypeError, ["numpy array", "list"], lambda: fp8.quantize([[1.0]]))
        self.raises(TypeError, ["numpy array", "list"], lambda: fp8.Linear([[1.0]]))
        self.raises(TypeError, ["numpy array", "list"], lambda: fp8.matmul([[1.0]], x, x, x))
        for grid in (128, (128,), (1, 2, 3), (1.5, 2), None):
            self.raises(TypeError, ["grid", str(grid), "rows"], lambda: fp8.quantize(x, grid))  # noqa: B023
        self.raises(ValueError, ["[8]", "matrix"], lambda: fp8.quantize(x[0]))
        self.raises(TypeError, ["F64"], lambda: fp8.quantize(x.astype(float)), "FP8_E_DTYPE")
        self.raises(TypeError, ["int64"], lambda: fp8.quantize(x.astype(int)))
        self.raises(TypeError, [">f4", "byte order"], lambda: fp8.quantize(x.astype(">f4")))
        self.raises(ValueError, ["'median'", "slime"], lambda: fp8.quantize(x, rule="median"))
        self.raises(ValueError, ["'maybe'", "refuse"], lambda: fp8.quantize(x, nan="maybe"))
        self.assertEqual(self.raises(ValueError, ["NaN", "[2,3]"], lambda: fp8.quantize(nan), "FP8_E_NAN").pos, 19)
        self.raises(NotImplementedError, ["vllm"], lambda: fp8.quantize(x, (1, 32), rule="vllm-native"), "FP8_E_UNSUPPORTED")
        self.raises(ValueError, ["scale"], lambda: fp8.quantize(x, scales=np.zeros((1, 1), np.float32)), "FP8_E_SCALE")
        self.raises(ValueError, ["scales"], lambda: fp8.quantize(x, scales=np.ones((2, 1), np.float32)), "FP8_E_SHAPE")
        self.raises(ValueError, ["x is [4,8]"], lambda: fp8.Linear(np.ones((3, 5), np.float32))(x), "FP8_E_SHAPE")
        self.raises(ValueError, ["threads"], lambda: fp8.Context(threads=-1), "FP8_E_ARGUMENT")
        self.raises(NotImplementedError, ["meta", "CPU"], lambda: fp8.quantize(torch.ones(2, 2, device="meta")))
        self.raises(TypeError, ["numbers.Elsewhere", "torch.from_dlpack"], lambda: fp8.quantize(Elsewhere()))
        self.raises(TypeError, ["export", "clone"], lambda: pickle.dumps(fp8.Linear(x)))
        self.raises(TypeError, ["float7"], lambda: fp8.quantize(x, code="float7"))
        self.raises(ValueError, ["dimensions"], lambda: fp8.arrays.view(np.ones((1,) * 5, np.float32)))


if __name__ == "__main__":
    unittest.main()
