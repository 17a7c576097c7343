# SPDX-License-Identifier: Apache-2.0
"""Operators and FP8Linear on CUDA: the CPU's codes to the bit, moves, copies, files, gradients, streams, graphs, compile.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python python3 tests/python/test_cuda_layers.py
"""
import copy
import gc
import io
import itertools
import multiprocessing
import pickle
import threading
import unittest

from cuda_or_skip import CUDA

import torch
from torch import nn

import fp8
from fp8 import FP8GemmOptions, FP8Linear, enable_fp8_gemm, ops

SCHEMES = ("tensor", "channel", "block", "mxfp8", "weight-only")
STORAGES = ("keep", "cpu_offload", "discard")
N, K = 96, 160
NOISE = 2 * 2.0**-4
OPS = torch.ops.fp8
CODE_CHECKS = ("test_faketensor", "test_aot_dispatch_dynamic", "test_autograd_registration")


def options(storage="discard", **others):
    return FP8GemmOptions(fp16_weight_storage=storage, **others)


def linear(dtype=torch.bfloat16, bias=True, n=N, k=K, seed=1):
    """On the CPU; the same for the same seed."""
    torch.manual_seed(seed)
    return nn.Linear(k, n, bias=bias).to(dtype)


def inputs(*shape, dtype=torch.bfloat16, k=K):
    torch.manual_seed(2)
    return torch.randn(*shape, k).to(dtype).to(CUDA)


def in_another_process(layer, answers):
    answers.put((str(layer._layer.device), layer(inputs(3)).float().tolist()))


def codes_of(layer):
    codes, scales = layer.fp8_weight()
    return codes.view(torch.uint8).cpu(), scales.view(torch.uint8).cpu()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b))


class Near(unittest.TestCase):
    def near(self, y, want, relative=NOISE):
        self.assertEqual(y.shape, want.shape)
        y, want = y.detach().cpu().double(), want.detach().cpu().double()
        self.assertLess((y - want).norm() / want.norm(), relative)


class Operators(Near):
    def layer(self, device=CUDA, scheme="channel"):
        made = ops.Layer(N, K, scheme=scheme, device=device)
        module = linear()
        made.set_source(module.weight.detach().to(device), module.bias.detach().float().to(device))
        return made

    def test_opcheck(self):
        h, x = self.layer(), torch.randn(3, K, device=CUDA)
        for shape, dtype in (((K,), torch.float32), ((3, K), torch.bfloat16), ((2, 3, K), torch.float16),
                             ((0, K), torch.bfloat16)):
            given = torch.randn(shape, device=CUDA).to(dtype).requires_grad_()
            torch.library.opcheck(OPS.linear.default, (given, h.number, N))
        torch.library.opcheck(OPS.linear_dx.default, (torch.randn(5, N, device=CUDA), h.number, K))
        torch.library.opcheck(OPS.quantize.default, (x, 1, 32, 0, torch.float8_e4m3fn, torch.float8_e8m0fnu, False))
        torch.library.opcheck(OPS.quantize.default, (x, 0, 0, 1, torch.float8_e4m3fn, torch.float32, False))
        codes, scales = OPS.quantize(x, 1, 0, 1, torch.float8_e4m3fn, torch.float32, False)
        torch.library.opcheck(OPS.dequantize.default, (codes, scales, 1, 0, torch.bfloat16), test_utils=CODE_CHECKS)

    def test_quantizers_give_the_cpus_bits(self):
        for dtype, (rows, cols) in itertools.product((torch.bfloat16, torch.float16, torch.float32),
                                                     ((0, 0), (1, 0), (1, 128), (128, 128), (1, 32))):
            x = torch.randn(130, 256).to(dtype)
            scale = torch.float8_e8m0fnu if cols == 32 else torch.float32
            given = (rows, cols, int(fp8._c.Rule.VLLM) if cols != 32 else int(fp8._c.Rule.MX_OCP), torch.float8_e4m3fn, scale,
                     False)
            here, there = OPS.quantize(x, *given), OPS.quantize(x.to(CUDA), *given)
            self.assertEqual(there[0].device, CUDA)
            self.assertTrue(same([t.view(torch.uint8) for t in here], [t.cpu().view(torch.uint8) for t in there]), given)
            self.assertTrue(torch.equal(OPS.dequantize(*here, rows, cols, torch.bfloat16),
                                        OPS.dequantize(*there, rows, cols, torch.bfloat16).cpu()))

    def test_scaled_mm(self):
        w, x = torch.randn(N, K), torch.randn(7, K)
        w, x = (OPS.quantize(t, 1, 0, 1, torch.float8_e4m3fn, torch.float32, False) for t in (w, x))
        bias = torch.randn(N)
        here = OPS.scaled_mm(*x, 1, 0, *w, 1, 0, bias, torch.float32)
        there = OPS.scaled_mm(*(t.to(CUDA) for t in x), 1, 0, *(t.to(CUDA) for t in w), 1, 0, bias.to(CUDA), torch.float32)
        self.near(there, here, 1e-3)

    def test_shapes_and_strides(self):
        h, base = self.layer(), torch.randn(4, 6, 2 * K, device=CUDA).bfloat16()
        for x in (base[..., :K], base[..., ::2], base[:, :1, :K], base.transpose(0, 1)[..., :K], base[::2, 1::3, K:],
                  base[0, 0, :K], base[:0, :, :K], torch.randn(K, 5, device=CUDA).bfloat16().t()):
            y = OPS.linear(x, h.number, N)
            self.assertEqual((y.shape, y.device), ((*x.shape[:-1], N), CUDA))
            self.assertTrue(torch.equal(y, OPS.linear(x.contiguous(), h.number, N)), x.stride())

    def test_streams(self):
        """What is before it in the current stream is done when it runs, and it is done before what comes after."""
        h, side = self.layer(), torch.cuda.Stream()
        x = torch.randn(64, K, device=CUDA).bfloat16()
        want = OPS.linear(x, h.number, N)
        slow = torch.randn(4096, 4096, device=CUDA)
        torch.cuda.synchronize()
        for _ in range(5):
            with torch.cuda.stream(side):
                late = torch.full_like(x, float("nan"))
                for _ in range(3):
                    slow @ slow
                late.copy_(x)
                y = OPS.linear(late, h.number, N).clone()
            side.synchronize()
            self.assertTrue(torch.equal(y, want))

    def test_sentences(self):
        h, cpu, x = self.layer(), self.layer(torch.device("cpu")), inputs(2)
        codes, scales = OPS.quantize(x, 1, 0, 1, torch.float8_e4m3fn, torch.float32, False)
        cases = [
            (lambda: OPS.linear(x, cpu.number, N), "x is on cuda:0, must be on cpu"),
            (lambda: OPS.linear(x.cpu(), h.number, N), "x is on cpu, must be on cuda:0"),
            (lambda: OPS.linear(x, h.number.to(CUDA), N), "handle is on cuda:0, must be on cpu"),
            (lambda: OPS.linear(x[:, :5], h.number, N), r"x is \[2,5\]"),
            (lambda: OPS.dequantize(codes, scales.cpu(), 1, 0, torch.float32), "scales is on cpu, must be on cuda:0"),
            (lambda: OPS.dequantize(codes.cpu(), scales, 1, 0, torch.float32), "scales is on cuda:0, must be on cpu"),
            (lambda: OPS.quantize(x, 1, 0, 99, torch.float8_e4m3fn, torch.float32, False), "99"),
        ]
        for call, words in cases:
            with self.subTest(words), self.assertRaisesRegex(RuntimeError, words):
                call()
        y = OPS.linear(x, h.number, N)  # nothing of it broke the device
        self.assertTrue(torch.isfinite(y).all())


class Functions(Near):
    """fp8.quantize and its like on tensors of the device."""

    def test_matrices(self):
        x = torch.randn(130, 256)
        for grid in ((0, 0), (1, 0), (1, 128), (128, 128)):
            here = fp8.quantize(x, grid, nan="propagate")
            there = fp8.quantize(x.to(CUDA), grid, nan="propagate")
            self.assertEqual({t.device for t in there}, {CUDA})
            self.assertTrue(same([t.view(torch.uint8) for t in here], [t.cpu().view(torch.uint8) for t in there]))
            self.assertTrue(torch.equal(fp8.dequantize(*here, grid), fp8.dequantize(*there, grid).cpu()))

    def test_linears(self):
        w, x, bias = torch.randn(N, K), torch.randn(7, K), torch.randn(N)
        for scheme in SCHEMES:
            here, there = fp8.Linear(w, bias=bias, scheme=scheme), fp8.Linear(w.to(CUDA), bias=bias.to(CUDA), scheme=scheme)
            self.assertTrue(same([t.view(torch.uint8) for t in here.export(w)],
                                 [t.cpu().view(torch.uint8) for t in there.export(w.to(CUDA))]))
            self.near(there(x.to(CUDA)), here(x), 2.0**-7)
            self.near(there.gradient(here(x).to(CUDA)), here.gradient(here(x)), 2.0**-7)
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                self.near(there.clone()(x.to(CUDA)), here(x), 2.0**-7)
        codes, scales = fp8.quantize(w, (1, 0))
        self.near(fp8.matmul(x.to(CUDA), codes.to(CUDA), scales.to(CUDA), w_grid=(1, 0)),
                  fp8.matmul(x, codes, scales, w_grid=(1, 0)), 2.0**-7)

    def test_places_are_not_mixed(self):
        w, x = torch.randn(N, K), torch.randn(7, K)
        for call in (lambda: fp8.Linear(w)(x.to(CUDA)), lambda: fp8.Linear(w.to(CUDA))(x),
                     lambda: fp8.matmul(x.to(CUDA), w), lambda: fp8.matmul(x, w.to(CUDA))):
            with self.assertRaisesRegex((ValueError, NotImplementedError), "is on"):
                call()


class Layers(Near):
    def test_codes_are_the_cpus(self):
        for scheme, storage, dtype in itertools.product(SCHEMES, STORAGES, (torch.bfloat16, torch.float16, torch.float32)):
            here = FP8Linear(linear(dtype), options=options(storage, scheme=scheme))
            there = enable_fp8_gemm(linear(dtype).to(CUDA), options=options(storage, scheme=scheme))
            self.assertEqual(there._layer.device, CUDA)
            with self.subTest((scheme, storage, dtype)):
                self.assertTrue(there.is_materialized)
                self.assertTrue(same(codes_of(here), codes_of(there)))
                x = inputs(5)
                y = there(x)
                self.assertEqual((y.device, y.dtype), (CUDA, x.dtype))
                self.near(y, nn.functional.linear(x.cpu().float(), linear(dtype).weight.float(), linear(dtype).bias.float()))
                self.near(y, here(x.cpu()), 2.0**-7)
                self.assertEqual((there.weight.shape, there.weight.device.type),
                                 ((N, K), "cpu" if storage == "cpu_offload" else "cuda"))

    def test_moves_never_cast(self):
        for scheme, storage in itertools.product(SCHEMES, STORAGES):
            layer = FP8Linear(linear(), options=options(storage, scheme=scheme))
            before, x = codes_of(layer), inputs(4)
            y = layer(x.cpu())
            for device in ("cuda", "cpu", "cuda:0"):
                layer = layer.to(device)
                self.assertEqual(layer._layer.device, ops.place(device))
                self.assertTrue(same(before, codes_of(layer)))
                self.near(layer(x.to(device)), y, 2.0**-7)
            layer = layer.half()
            if storage == "discard":
                self.assertTrue(same(before, codes_of(layer)))
            self.assertEqual(layer(x.half()).dtype, torch.float16)
            self.assertEqual(nn.Sequential(layer).cpu()[0]._layer.device.type, "cpu")

    def test_to_before_there_are_codes(self):
        for storage in STORAGES:
            layer = FP8Linear(linear(), options=options(storage)).cuda()
            self.assertFalse(layer.is_materialized)
            self.near(layer(inputs(3)), nn.functional.linear(inputs(3).cpu(), linear().weight, linear().bias))
            self.assertTrue(same(codes_of(layer), codes_of(FP8Linear(linear(), options=options()))))

    def test_an_input_elsewhere_takes_the_codes_along(self):
        layer = FP8Linear(linear(), options=options())
        y = layer(inputs(3).cpu())
        self.near(layer(inputs(3)), y, 2.0**-7)
        self.assertEqual(layer._layer.device, CUDA)
        layer.materialize_fp8_weight("cpu")
        self.assertEqual(layer._layer.device.type, "cpu")
        layer.materialize_fp8_weight("cuda")
        self.assertTrue(torch.equal(layer(inputs(3).cpu()), y))

    def test_files_and_copies(self):
        for scheme, storage in itertools.product(("tensor", "block", "mxfp8"), STORAGES):
            layer = enable_fp8_gemm(linear().to(CUDA), options=options(storage, scheme=scheme))
            x, codes = inputs(4), codes_of(layer)
            y = layer(x)
            buffer = io.BytesIO()
            torch.save(layer, buffer)
            for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)),
                          torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)):
                self.assertEqual(other._layer.device, CUDA)
                self.assertTrue(same(codes, codes_of(other)) and torch.equal(other(x), y))
            home = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False, map_location="cpu")
            self.assertEqual(home._layer.device.type, "cpu")
            self.assertTrue(same(codes, codes_of(home)))
            layer.save_codes = True
            state = layer.state_dict()
            self.assertEqual({state["weight"].dtype, state["weight"].device}, {torch.float8_e4m3fn, CUDA})
            for device in ("cpu", CUDA):
                other = FP8Linear(linear(seed=9), options=options(storage, scheme=scheme)).to(device)
                other.load_state_dict({key: value.cpu() for key, value in state.items()})
                self.assertEqual(other._layer.device.type, torch.device(device).type)
                self.assertTrue(same(codes, codes_of(other)))
                self.near(other(x.to(device)), y, 2.0**-7)

    def test_into_a_process_that_is_spawned(self):
        layer = enable_fp8_gemm(linear(bias=False).to(CUDA), options=options(scheme="channel"))
        spawn = multiprocessing.get_context("spawn")
        answers = spawn.Queue()
        child = spawn.Process(target=in_another_process, args=(layer, answers))
        child.start()
        device, y = answers.get(timeout=120)
        child.join()
        self.assertEqual((child.exitcode, device), (0, str(CUDA)))
        self.assertEqual(y, layer(inputs(3)).float().tolist())

    def test_high_precision_states_stay_where_the_layer_is(self):
        for storage in STORAGES:
            layer = enable_fp8_gemm(linear(seed=4).to(CUDA), options=options(storage))
            layer.load_state_dict(linear().state_dict())
            self.assertEqual(layer._layer.device, CUDA)
            self.assertTrue(same(codes_of(layer), codes_of(FP8Linear(linear(), options=options()))))

    def test_gradients(self):
        for scheme in SCHEMES:
            layer = enable_fp8_gemm(linear().to(CUDA), options=options("keep", scheme=scheme))
            x = inputs(2, 3).requires_grad_()
            y = layer(x)
            dy = torch.randn_like(y)
            y.backward(dy)
            codes, scales = layer.fp8_weight()
            real = OPS.dequantize(codes, scales, *fp8.schemes.weight_grid(scheme), torch.float32)
            self.near(x.grad, dy.double() @ real.double(), 2.0**-7)
            self.near(layer.bias.grad, dy.double().sum((0, 1)), 2.0**-6)
            self.assertIsNone(layer.weight.grad)

    def test_dtypes_modes_and_shapes(self):
        layer = enable_fp8_gemm(linear().to(CUDA), options=options())
        want = layer(inputs(6))
        self.near(layer(inputs(6, dtype=torch.float32)), want, 2.0**-7)
        self.assertEqual(layer(inputs(6, dtype=torch.float32)).dtype, torch.float32)
        self.assertEqual(layer(inputs(0)).shape, (0, N))
        self.assertTrue(torch.equal(layer(inputs(6).reshape(2, 3, K)).reshape(6, N), want))
        with torch.autocast("cuda", torch.float16):
            self.assertEqual(layer(inputs(2, dtype=torch.float32)).dtype, torch.float16)
        with torch.inference_mode():
            self.assertTrue(torch.equal(layer(inputs(6)), want))
        kept = enable_fp8_gemm(linear().to(CUDA), options=options("cpu_offload", cast_inputs=False))
        self.near(kept(inputs(6, dtype=torch.float32)), want)

    def test_a_changed_weight_is_noticed(self):
        layer = enable_fp8_gemm(linear().to(CUDA), options=options("keep"))
        before = layer(inputs(3))
        with torch.no_grad():
            layer.weight.mul_(2)
            layer.bias.zero_()
        self.near(layer(inputs(3)), 2 * (before - linear().bias.to(CUDA)), 2.0**-6)

    def test_discarded_weights_leave_the_device(self):
        side = 4096
        model = nn.Sequential(*(nn.Linear(side, side, bias=False, dtype=torch.bfloat16, device=CUDA) for _ in range(4)))
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[0]
        enable_fp8_gemm(model)
        gc.collect()
        torch.cuda.empty_cache()
        gained = (torch.cuda.mem_get_info()[0] - before) / 2**20
        print(f"4 linears of {side}: {4 * 2 * side * side / 2**20:.0f} MiB in bf16, wrapping them frees {gained:.0f} MiB")
        self.assertGreaterEqual(gained, 4 * (side * side / 2**20 - 2))  # CUDA gives memory in pieces of 2 MiB

    def test_threads_with_streams_of_their_own(self):
        """Two threads run a layer while a third quantizes it again and again: each result is of one weight or the other."""
        layer = enable_fp8_gemm(linear().to(CUDA), options=options("keep"))
        x, weights, failures = inputs(33), [linear(seed=s).weight.detach().to(CUDA) for s in (1, 7)], []
        wants = []
        for weight in weights:
            with torch.no_grad():
                layer.weight.copy_(weight)
            wants.append(layer(x).clone())

        def run():
            with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
                for _ in range(200):
                    y = OPS.linear(x, layer._layer.number, N)
                    torch.cuda.current_stream().synchronize()
                    if not any(torch.equal(y, want) for want in wants):
                        failures.append(y)

        workers = [threading.Thread(target=run) for _ in range(2)]
        for worker in workers:
            worker.start()
        for i in range(50):
            layer._layer.set_source(weights[i % 2], layer.bias.detach())
        for worker in workers:
            worker.join()
        self.assertEqual(len(failures), 0)

    def test_profiler_names_the_operator(self):
        model = enable_fp8_gemm(nn.Sequential(linear(n=K), linear()).to(CUDA))
        model(inputs(2))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            model(inputs(2))
        seen = {event.key for event in profile.key_averages()}
        self.assertIn("fp8::linear", seen)
        self.assertFalse(seen & {"aten::linear", "aten::mm", "aten::addmm", "aten::matmul"})


class Graphs(Near):
    def captured(self, model, x):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            model(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            y = model(x)
        return graph, y

    def test_a_graph_of_linears(self):
        for scheme, rows in itertools.product(SCHEMES, (1, 17, 300)):
            model = enable_fp8_gemm(nn.Sequential(linear(n=K), nn.ReLU(), linear()).to(CUDA), options=options(scheme=scheme))
            x = inputs(rows).clone()
            graph, y = self.captured(model, x)
            for scale in (1.0, -0.5):
                x.copy_(inputs(rows) * scale)
                graph.replay()
                with torch.no_grad():
                    self.assertTrue(torch.equal(y, model(x)))

    def test_a_graph_sees_weights_that_are_loaded_later(self):
        model = enable_fp8_gemm(nn.Sequential(linear()).to(CUDA), options=options("keep"))
        x = inputs(5)
        graph, y = self.captured(model, x)
        graph.replay()
        before = y.clone()
        model.load_state_dict(nn.Sequential(linear(seed=7)).state_dict())
        graph.replay()
        self.assertFalse(torch.equal(y, before))
        with torch.no_grad():
            self.assertTrue(torch.equal(y, model(x)))

    def test_compile_without_a_break(self):
        for storage in STORAGES:
            torch.compiler.reset()
            model = enable_fp8_gemm(nn.Sequential(linear(n=K), nn.GELU(), linear()).to(CUDA), options=options(storage))
            model.requires_grad_(False)
            compiled = torch.compile(model, fullgraph=True, backend="inductor" if storage == "discard" else "aot_eager")
            for rows in (1, 5):
                torch.testing.assert_close(compiled(inputs(rows)), model(inputs(rows)), rtol=2.0**-6, atol=2.0**-6)
            x = inputs(3).requires_grad_()
            compiled(x).sum().backward()
            self.assertTrue(torch.isfinite(x.grad).all())


if __name__ == "__main__":
    unittest.main()
