# SPDX-License-Identifier: Apache-2.0
"""CuPy and PyTorch in one process: the C interface on CuPy's pointers and streams, CuPy's arrays as tensors, contexts shared.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python python3 tests/python/test_cuda_cupy.py
"""
import contextlib
import ctypes
import sys
import threading
import unittest

from cuda_or_skip import CUDA

import torch

import fp8
from fp8 import _c, errors, ops
from fp8._c import Dtype

try:
    import cupy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

N, K = 192, 256
BLOCKS = (128, 128)
LONG = 4096  # a product of such matrices takes far longer than to enqueue what comes after it


def tensor_of(array, dtype):
    """fp8_tensor of a CuPy array; its strides are in bytes."""
    made = _c.Tensor(data=array.data.ptr, dtype=dtype, ndim=array.ndim)
    made.shape[:array.ndim] = array.shape
    made.stride[:array.ndim] = [step // array.itemsize for step in array.strides]
    return made


@contextlib.contextmanager
def in_both(stream):
    """CuPy's stream is the current one of both packages."""
    with stream, torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr, CUDA)):
        yield


def late(array, values):
    """In the current stream of CuPy: array becomes values, after long work."""
    big = cupy.ones((LONG, LONG), cupy.float32)
    array[...] = values + 0 * (big @ big)[0, 0]


class Cupy(unittest.TestCase):
    def setUp(self):
        cupy.cuda.Device(CUDA.index).use()
        cupy.random.seed(4)
        self.x = cupy.random.standard_normal((N, K), dtype=cupy.float32)
        self.tensor = torch.from_dlpack(self.x)
        torch.cuda.synchronize()

    def want(self, scale=1.0):
        return fp8.quantize(self.tensor * scale, BLOCKS)

    def same(self, array, tensor):
        self.assertTrue(torch.equal(torch.from_dlpack(array).view(torch.uint8), tensor.view(torch.uint8)))

    def test_the_c_interface_on_pointers_and_a_stream(self):
        want_codes, want_scales = self.want(2.0)
        context, stream = fp8.Context(device=CUDA), cupy.cuda.Stream(non_blocking=True)
        codes, scales = cupy.empty((N, K), cupy.uint8), cupy.empty((2, 2), cupy.float32)
        desc = _c.QuantizeDesc(grid=_c.Grid(*BLOCKS), nan=_c.NanPolicy.PROPAGATE)
        x, values = cupy.zeros((K, N), cupy.float32).T, 2 * self.x  # strides that are not the usual ones
        cupy.cuda.Device().synchronize()
        with stream:
            late(x, values)
            errors.call("fp8_quantize", context.handle, ctypes.byref(desc), ctypes.byref(tensor_of(x, Dtype.F32)),
                        ctypes.byref(tensor_of(codes, Dtype.E4M3FN)), ctypes.byref(tensor_of(scales, Dtype.F32)), stream.ptr)
            copies = codes.copy(), scales.copy()
        stream.synchronize()
        self.same(copies[0], want_codes)
        self.same(copies[1], want_scales)

    def test_arrays_as_tensors_in_cupys_stream(self):
        want_codes, want_scales = self.want(3.0)
        linear = fp8.Linear(self.tensor, scheme="channel")
        want_y = linear(self.tensor * 3)
        stream, values = cupy.cuda.Stream(non_blocking=True), 3 * self.x
        cupy.cuda.Device().synchronize()
        with in_both(stream):
            late(self.x, values)
            codes, scales = fp8.quantize(self.tensor, BLOCKS, nan="propagate")
            y = linear(self.tensor)
            taken = [cupy.from_dlpack(t) + 0 for t in (codes.view(torch.uint8), scales, y)]
        stream.synchronize()
        for array, tensor in zip(taken, (want_codes, want_scales, want_y)):
            self.same(array, tensor)

    def test_cupy_in_pytorchs_stream(self):
        layer = fp8.enable_fp8_gemm(torch.nn.Linear(K, N).to(CUDA)).requires_grad_(False)
        x = torch.ones(LONG, K, device=CUDA)
        want = layer(x) * 2
        stream = torch.cuda.Stream(CUDA)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), cupy.cuda.ExternalStream(stream.cuda_stream):
            got = cupy.from_dlpack(layer(x)) * 2
        stream.synchronize()
        self.same(got, want)

    def test_one_context_in_threads_and_streams_of_both(self):
        context, wrong = fp8.Context(device=CUDA), []
        want_codes, _ = self.want()

        def run(stream):
            cupy.cuda.Device(CUDA.index).use()
            with in_both(stream) if isinstance(stream, cupy.cuda.Stream) else torch.cuda.stream(stream):
                for _ in range(50):
                    codes, _ = fp8.quantize(self.tensor, BLOCKS, nan="propagate", context=context)
                    torch.cuda.current_stream().synchronize()
                    if not torch.equal(codes.view(torch.uint8), want_codes.view(torch.uint8)):
                        wrong.append(stream)

        streams = [cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream(CUDA), cupy.cuda.Stream(), torch.cuda.Stream(CUDA)]
        threads = [threading.Thread(target=run, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertNotEqual(context.handle.value, ops.context_of(CUDA).handle.value)

    def test_an_array_itself_is_refused(self):
        with self.assertRaisesRegex(TypeError, "got cupy.ndarray; torch.from_dlpack makes a tensor of it"):
            fp8.quantize(self.x)


if __name__ == "__main__":
    unittest.main()
