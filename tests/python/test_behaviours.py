# SPDX-License-Identifier: Apache-2.0
"""What FP8Linear does, by the numbers of docs/python.md: a test of each, named by it. test_enable.py has 14 to 16.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python tests/python/test_behaviours.py
"""
import copy
import dataclasses
import functools
import io
import itertools
import multiprocessing
import pickle
import sys
import threading
import time
import unittest
import warnings

try:
    import torch
    from torch import nn
except ImportError as missing:
    print(f"skipped: {missing} (script/bootstrap python)")
    sys.exit(77)

import fp8
from fp8 import FP8GemmOptions, FP8Linear, enable_fp8_gemm

SCHEMES = ("tensor", "channel", "block", "mxfp8", "weight-only")
STORAGES = ("keep", "cpu_offload", "discard")
N, K = 96, 160
# One code of e4m3 is within 2^-4 of its number; weights and activations rounded once each, signs mixed.
NOISE = 2 * 2.0**-4


def options(storage="discard", **others):
    return FP8GemmOptions(fp16_weight_storage=storage, **others)


def linear(dtype=torch.bfloat16, bias=True, n=N, k=K, seed=1):
    torch.manual_seed(seed)
    return nn.Linear(k, n, bias=bias).to(dtype)


def inputs(*shape, dtype=torch.bfloat16):
    torch.manual_seed(2)
    return torch.randn(*shape, K).to(dtype)


def codes_of(layer):
    codes, scales = layer.fp8_weight()
    return codes.view(torch.uint8), scales


def same_codes(a, b):
    return all(torch.equal(x, y) for x, y in zip(codes_of(a), codes_of(b)))


def in_another_process(layers, asked, answers):
    """What layers compute there that came with the process, and one through a queue; and a number of the parent's."""
    layers = [*layers, asked.get()]
    found = {"ready": [layer.is_materialized for layer in layers], "y": [layer(inputs(3)).float().tolist() for layer in layers]}
    try:
        fp8.ops.linear(inputs(1), torch.tensor(int(layers[0]._layer.number) ^ 1 << 40), N)
    except RuntimeError as error:
        found["words"] = str(error)
    answers.put(found)


def by_the_formula(x, module):
    """The utility's numbers in PyTorch: one scale for W, one a token, products of codes, scales, bias, one rounding."""
    w = module.weight.detach().bfloat16().float()
    sw = w.abs().max() / 448
    wq = (w * (1 / sw)).clamp(-448, 448).to(torch.float8_e4m3fn).double()
    xs = (x.float().abs().amax(-1, keepdim=True) / 448).clamp(min=1 / (448 * 512))
    xq = (x.float() / xs).clamp(-448, 448).to(torch.float8_e4m3fn).double()
    y = xs.double() * (sw.double() * (xq @ wq.T))
    return y if module.bias is None else y + module.bias.detach().double()


class Behaviours(unittest.TestCase):
    def near(self, y, want, relative=NOISE):
        self.assertEqual(y.shape, want.shape)
        error = (y.double() - want.double()).norm() / want.double().norm()
        self.assertLess(error, relative)

    def test_01_options(self):
        o = FP8GemmOptions()
        self.assertEqual((o.cast_inputs, o.cast_output_back, o.fp16_weight_storage, o.materialize_fp8_on_wrap),
                         (True, True, "discard", True))
        self.assertEqual([f.name for f in dataclasses.fields(o)][:4],
                         ["cast_inputs", "cast_output_back", "fp16_weight_storage", "materialize_fp8_on_wrap"])
        with self.assertRaises(dataclasses.FrozenInstanceError):
            o.cast_inputs = False

    def test_02_wrong_arguments(self):
        cases = [
            (TypeError, "nn.Linear.*Conv2d", lambda: FP8Linear(nn.Conv2d(1, 1, 1), options=options())),
            (TypeError, "FP8GemmOptions, got None", lambda: enable_fp8_gemm(linear(), options=None)),
            (TypeError, "nn.Module.*str", lambda: enable_fp8_gemm("model")),
            (ValueError, "'disk'.*keep", lambda: FP8Linear(linear(), options=options("disk"))),
            (ValueError, "discard.*cast_inputs", lambda: FP8Linear(linear(), options=options(cast_inputs=False))),
            (ValueError, "'int4'.*mxfp8", lambda: FP8Linear(linear(), options=options(scheme="int4"))),
            (ValueError, "'gpu'.*linear", lambda: FP8Linear(linear(), options=options(cpu="gpu"))),
            (ValueError, "'best'|'other'.*vllm", lambda: FP8Linear(linear(), options=options(rule="other"))),
            (ValueError, "33.*32|32.*33", lambda: FP8Linear(nn.Linear(33, 8), options=options(scheme="mxfp8"))),
        ]
        for kind, words, call in cases:
            with self.subTest(words), self.assertRaisesRegex(kind, words):
                call()

    def test_02_a_refused_model_is_unchanged(self):
        model = nn.Sequential(linear(n=64), nn.Linear(33, 8))
        before = list(model)
        with self.assertRaisesRegex(ValueError, "^1: "):
            enable_fp8_gemm(model, options=options(scheme="mxfp8"))
        self.assertTrue(all(a is b for a, b in zip(before, model)))

    def test_02_weights_that_are_no_numbers(self):
        for dtype in (torch.complex64, torch.int8):
            module = nn.Linear(K, N, bias=False)
            module.weight = nn.Parameter(torch.ones(N, K).to(dtype), requires_grad=False)
            with self.assertRaisesRegex(TypeError, f"floating-point.*{dtype}"):
                FP8Linear(module, options=options())
        broken = linear(n=K)
        broken.weight.data[3, 4] = float("nan")
        model = nn.Sequential(linear(n=K), broken)
        with self.assertRaisesRegex(ValueError, r"^1: .*\[3,4\] is NaN"):
            enable_fp8_gemm(model)
        self.assertIs(model[1], broken)

    def test_03_keep(self):
        module = linear()
        layer = FP8Linear(module, options=options("keep"))
        layer(inputs(2))
        self.assertIs(layer.weight, module.weight)
        self.assertIsInstance(layer.weight, nn.Parameter)
        self.assertEqual(list(layer.state_dict()), ["weight", "bias"])
        for prefix in ("", "linear."):
            other = FP8Linear(linear(seed=9), options=options("keep"))
            other.load_state_dict({prefix + k: v for k, v in module.state_dict().items()})
            self.assertTrue(torch.equal(other(inputs(2)), layer(inputs(2))))

    def test_04_offload_and_discard(self):
        module = linear(torch.float32)
        offload = FP8Linear(module, options=options("cpu_offload"))
        offload(inputs(2))
        self.assertEqual(offload.weight.dtype, torch.bfloat16)
        self.assertTrue(torch.equal(offload.weight, module.weight.bfloat16()))
        self.assertEqual(list(offload.state_dict()), ["weight", "bias"])
        discard = FP8Linear(module, options=options())
        self.assertEqual(discard.state_dict()["weight"].dtype, torch.bfloat16)  # not yet codes
        discard(inputs(2))
        held = [t for t in vars(discard).values() if isinstance(t, torch.Tensor)] + list(discard.parameters())
        self.assertFalse([t for t in held if t.numel() >= N * K])
        state = discard.state_dict()
        self.assertEqual(list(state), ["weight", "bias", "weight_scale"])
        self.assertEqual((state["weight"].dtype, state["weight_scale"].dtype), (torch.float8_e4m3fn, torch.float32))
        self.assertEqual(state["weight_scale"].shape, (1,))

    def test_04_either_kind_of_state_is_loaded_into_either_kind_of_layer(self):
        for scheme, source, target in itertools.product(SCHEMES, STORAGES, STORAGES):
            with self.subTest(scheme=scheme, source=source, target=target):
                a = FP8Linear(linear(), options=options(source, scheme=scheme))
                a(inputs(1))
                b = FP8Linear(linear(seed=7), options=options(target, scheme=scheme))
                b.load_state_dict(a.state_dict())
                self.assertTrue(same_codes(a, b))
                self.assertTrue(torch.equal(a(inputs(3)), b(inputs(3))))
                a.save_codes = True
                b.load_state_dict(a.state_dict())
                self.assertTrue(same_codes(a, b))

    def test_04_bad_states_are_refused_and_named(self):
        layer = FP8Linear(linear(), options=options())
        y = layer(inputs(2))
        state = layer.state_dict()
        cases = [({"bias": state["bias"]}, "Missing.*weight"),
                 (state | {"weight": state["weight"][:5]}, "size mismatch for weight"),
                 ({k: v for k, v in state.items() if k != "weight_scale"}, "weight_scale are missing"),
                 (state | {"weight_scale": torch.ones(7)}, "weight_scale are of shape"),
                 (state | {"extra": torch.ones(7)}, "Unexpected.*extra")]
        for bad, words in cases:
            with self.subTest(words), self.assertRaisesRegex(RuntimeError, words):
                layer.load_state_dict(bad)
            self.assertTrue(torch.equal(layer(inputs(2)), y))
        with self.assertRaisesRegex(ValueError, "finite and positive"):
            layer.load_state_dict(state | {"weight_scale": torch.zeros(1)})
        self.assertTrue(torch.equal(layer(inputs(2)), y))

    def test_05_deepcopy_and_pickle(self):
        for scheme, storage, used in itertools.product(SCHEMES, STORAGES, (False, True)):
            layer = FP8Linear(linear(), options=options(storage, scheme=scheme))
            if used:
                layer(inputs(1))
            file = io.BytesIO()
            torch.save(layer, file)
            file.seek(0)
            for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)):
                with self.subTest(scheme=scheme, storage=storage, used=used):
                    self.assertEqual(other.is_materialized, used)
                    self.assertEqual(other.options, layer.options)
                    self.assertTrue(torch.equal(other(inputs(3)), layer(inputs(3))))
                    self.assertTrue(same_codes(other, layer))

    def test_05_into_a_process_that_is_spawned(self):
        for storage in STORAGES:
            layers = [FP8Linear(linear(seed=s), options=options(storage, scheme="channel")) for s in (1, 2)]
            layers[0](inputs(1))
            spawn = multiprocessing.get_context("spawn")
            asked, answers = spawn.Queue(), spawn.Queue()
            child = spawn.Process(target=in_another_process, args=(layers, asked, answers))
            child.start()
            asked.put(layers[0])
            found = answers.get(timeout=120)
            child.join()
            self.assertEqual(child.exitcode, 0)
            self.assertEqual(found["ready"], [True, False, True])
            for there, here in zip(found["y"], (*layers, layers[0])):
                self.assertTrue(torch.equal(torch.tensor(there), here(inputs(3)).float()))
            self.assertRegex(found["words"], "names no layer of this process")

    def test_05_replicas(self):
        layer = FP8Linear(linear(), options=options())
        with self.assertRaisesRegex(NotImplementedError, "DataParallel.*a process for each GPU"):
            layer._replicate_for_data_parallel()
        self.assertEqual(layer(inputs(2)).shape, (2, N))

    def test_05_a_copy_is_deep_and_keeps_what_is_stale(self):
        layer = FP8Linear(linear(), options=options("keep"))
        layer(inputs(1))
        other = copy.deepcopy(layer)
        with torch.no_grad():
            other.weight.mul_(3)
        self.assertFalse(same_codes(other, layer))
        with torch.no_grad():
            layer.weight.mul_(2)
        stale = copy.deepcopy(layer)  # before the change was noticed
        self.assertTrue(torch.equal(stale(inputs(2)), layer(inputs(2))))

    def test_05_codes_of_another_format(self):
        layer = FP8Linear(linear(), options=options())
        codes, scales = fp8.quantize(linear(seed=3).weight.detach(), code="float8_e5m2")
        layer.load_state_dict({"weight": codes, "weight_scale": scales, "bias": layer.bias.detach()})
        for other in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            self.assertEqual(other.fp8_weight()[0].dtype, torch.float8_e5m2)
            self.assertTrue(torch.equal(codes_of(other)[0], codes.view(torch.uint8)))
            self.assertTrue(torch.equal(other(inputs(2)), layer(inputs(2))))

    def test_05_shallow_copies_share_their_codes(self):
        for storage in STORAGES:
            layer = FP8Linear(linear(), options=options(storage))
            y, other = layer(inputs(2)), copy.copy(layer)
            self.assertTrue(torch.equal(other(inputs(2)), y))
            del layer
            self.assertTrue(torch.equal(other(inputs(2)), y))

    def test_06_invalidate(self):
        for storage in STORAGES:
            layer = FP8Linear(linear(), options=options(storage))
            y = layer(inputs(2))
            layer.invalidate_weight_cache()
            self.assertFalse(layer.is_materialized)
            if storage == "discard":
                for call in (functools.partial(layer, inputs(2)), layer.state_dict, layer.materialize_fp8_weight):
                    with self.assertRaisesRegex(RuntimeError, "discard.*invalidated"):
                        call()
                layer.load_state_dict(linear().state_dict())
            self.assertTrue(torch.equal(layer(inputs(2)), y))

    def test_06_threads_that_use_what_another_invalidates(self):
        for storage in ("keep", "cpu_offload"):
            layer, x, wrong = FP8Linear(linear(), options=options(storage)), inputs(2), []
            want, ends = layer(x), time.monotonic() + 0.5

            def use(layer=layer, x=x, want=want, wrong=wrong, ends=ends):
                while time.monotonic() < ends:
                    try:
                        if not torch.equal(layer(x), want):
                            wrong.append("another result")
                    except RuntimeError as error:
                        wrong.append(str(error))

            workers = [threading.Thread(target=use) for _ in range(2)]
            for worker in workers:
                worker.start()
            while time.monotonic() < ends:
                layer.invalidate_weight_cache()
            for worker in workers:
                worker.join()
            self.assertEqual(set(wrong), set())
            self.assertTrue(torch.equal(layer(x), want))

    def test_07_materialize(self):
        layer = FP8Linear(linear(), options=options())
        self.assertFalse(layer.is_materialized)
        layer.materialize_fp8_weight(torch.device("cpu"))
        self.assertTrue(layer.is_materialized)
        with self.assertRaisesRegex(NotImplementedError, "meta"):
            layer.materialize_fp8_weight("meta")
        for asked in (True, False):
            model = enable_fp8_gemm(nn.Sequential(linear()), options=options(materialize_fp8_on_wrap=asked))
            self.assertEqual(model[0].is_materialized, asked)

    def test_07_threads_that_ask_at_once(self):
        for storage in STORAGES:
            x = inputs(2)
            want = FP8Linear(linear(), options=options(storage))(x)
            layer, results = FP8Linear(linear(), options=options(storage)), []
            start = threading.Barrier(4)

            def ask(x=x, layer=layer, results=results, start=start):
                start.wait()
                results.append(layer(x))

            workers = [threading.Thread(target=ask) for _ in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            self.assertEqual([torch.equal(y, want) for y in results], [True] * 4)

    def test_08_a_changed_weight_is_noticed(self):
        layer = FP8Linear(linear(), options=options("keep"))
        x = inputs(2)

        def step():
            optimizer = torch.optim.SGD([layer.weight], lr=0.5)
            layer.weight.grad = torch.randn_like(layer.weight)
            optimizer.step()

        def replaced():
            layer.weight = nn.Parameter(torch.randn(N, K).bfloat16())

        def data():
            layer.weight.data = torch.randn(N, K).bfloat16()

        def bias():
            with torch.no_grad():
                layer.bias.add_(1)

        for change in (step, replaced, data, bias, lambda: layer.weight.copy_(torch.randn(N, K)),
                       lambda: layer.load_state_dict(linear(seed=5).state_dict())):
            before = layer(x)
            with torch.no_grad():
                change()
            self.assertFalse(torch.equal(layer(x), before))
            self.near(layer(x), by_the_formula(x, layer), 2.0**-8)
        discard = FP8Linear(linear(), options=options())
        before, codes = discard(x), codes_of(discard)
        with torch.no_grad():
            discard.bias.add_(1)
        self.near(discard(x), before.double() + 1, 2.0**-7)
        discard.bias = None
        without = discard(x)
        self.near(without, before.double() - linear().bias.detach().double(), 2.0**-7)
        discard.bias = nn.Parameter(torch.zeros(N))
        self.assertTrue(torch.equal(discard(x), without))
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(codes, codes_of(discard))))

    def test_08_fused_optimizers_are_noticed(self):
        x = inputs(2).float()
        for make in (torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad):
            layers = {storage: FP8Linear(linear(torch.float32), options=options(storage)) for storage in STORAGES}
            other = nn.Parameter(torch.zeros(2))
            versions = other._version
            for storage, layer in layers.items():
                before = layer(x)
                optimizer = make([*layer.parameters(), other], lr=0.5, fused=True)
                for parameter in (*layer.parameters(), other):
                    parameter.grad = torch.ones_like(parameter)
                with torch.no_grad():
                    optimizer.step()
                    self.assertFalse(torch.equal(layer(x), before), (make, storage))
                    if storage == "keep":
                        self.near(layer(x), by_the_formula(x, layer), 2.0**-7)
                    else:
                        bias = linear(torch.float32).bias.detach().double()
                        self.near(layer(x), before.double() - bias + layer.bias.double(), 2.0**-7)
            self.assertEqual(other._version, versions)  # what is not ours is left alone

    def test_08_a_parameter_that_was_taken_away(self):
        for storage in STORAGES:
            layer = FP8Linear(linear(), options=options(storage))
            layer(inputs(1))
            del layer.weight
            with self.assertRaisesRegex(RuntimeError, "parameter weight was removed or renamed"):
                layer(inputs(1))
        layer = FP8Linear(linear(), options=options("keep"))
        layer.weight = None
        with self.assertRaisesRegex(RuntimeError, "its parameter weight is None"):
            layer(inputs(1))

    def test_09_to(self):
        for storage in STORAGES:
            layer = FP8Linear(linear(), options=options(storage))
            y = layer(inputs(2))
            codes = codes_of(layer)
            for move in (lambda m: m.to("cpu"), lambda m: m.float(), lambda m: m.bfloat16(), lambda m: m.half(),
                         lambda m: m.to(torch.float64), lambda m: m.to(torch.bfloat16), lambda m: m.share_memory()):
                move(layer)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(codes, codes_of(layer))), storage)
            self.near(layer(inputs(2)), y, 2.0**-7)  # the bias went through half
        with self.assertRaisesRegex(NotImplementedError, "CPU"):
            FP8Linear(linear(), options=options()).materialize_fp8_weight("mps")

    def test_09_meta(self):
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(K, N))
        enable_fp8_gemm(model)
        self.assertTrue(model[0].weight.is_meta)
        self.assertEqual(model(torch.empty(3, K, device="meta")).shape, (3, N))
        with self.assertRaisesRegex(RuntimeError, "meta"):
            model(inputs(2))
        want = FP8Linear(linear(), options=options())(inputs(2))
        model.load_state_dict({"0." + k: v for k, v in linear().state_dict().items()}, assign=True)
        self.assertTrue(model[0].is_materialized)
        self.assertTrue(torch.equal(model(inputs(2)), want))
        with torch.device("meta"):
            filled = FP8Linear(nn.Linear(K, N), options=options())
        filled.to_empty(device="cpu")
        with torch.no_grad():
            for name, tensor in linear().state_dict().items():
                getattr(filled, name).copy_(tensor)
        self.near(filled(inputs(2)), want, 2.0**-7)

    def test_10_other_dtypes_of_inputs(self):
        module = linear(torch.float32)
        x = inputs(3, dtype=torch.float32)
        layer = FP8Linear(module, options=options())
        want = layer(x.bfloat16())
        for dtype in (torch.float32, torch.float64):
            self.assertEqual(layer(x.to(dtype)).dtype, dtype)
            self.assertTrue(torch.equal(layer(x.to(dtype)).bfloat16(), want))
        self.assertEqual(FP8Linear(module, options=options(cast_output_back=False))(x).dtype, torch.bfloat16)
        keep = FP8Linear(module, options=options("keep", cast_inputs=False))
        self.assertTrue(torch.equal(keep(x), module(x)))
        offload = FP8Linear(module, options=options("cpu_offload", cast_inputs=False))
        self.near(offload(x), module(x), 2.0**-8)
        with self.assertRaisesRegex(TypeError, "int64"):
            layer(torch.ones(2, K, dtype=torch.int64))

    def test_10_inputs_that_are_none(self):
        layer = FP8Linear(linear(), options=options())
        for x, words in (([1.0] * K, "Tensor, not list"), (torch.ones(2, K).to(torch.float8_e4m3fn), "float8_e4m3fn"),
                         (torch.ones(2, K, dtype=torch.bool), "torch.bool"), (torch.ones(2, K).cfloat(), "complex64")):
            with self.assertRaisesRegex(TypeError, words):
                layer(x)
        for x in (inputs(2).to_sparse(), torch.nested.nested_tensor([inputs(2), inputs(1)]), inputs(2).float().to_mkldnn()):
            with self.assertRaises((NotImplementedError, RuntimeError)):
                layer(x)

    def test_10_float32_that_is_not_cast(self):
        module = linear(torch.float32)
        x = inputs(3, dtype=torch.float32) + 2.0**-12  # no numbers of bf16
        for scheme, storage in itertools.product(SCHEMES, STORAGES):
            o = options(storage, scheme=scheme, cast_to="float32")
            layer = FP8Linear(module, options=o)
            want = fp8.Linear(module.weight.detach(), bias=module.bias.detach(), scheme=scheme)
            self.assertTrue(torch.equal(layer(x), want(x)))
            self.assertTrue(torch.equal(layer(x.double()), want(x).double()))
            self.assertEqual(layer(x.bfloat16()).dtype, torch.bfloat16)
            self.assertTrue(torch.equal(copy.deepcopy(layer)(x), want(x)))
        x.requires_grad_()
        layer(x).sum().backward()
        self.assertEqual(x.grad.dtype, torch.float32)
        with self.assertRaisesRegex(ValueError, "'float64'.*float32"):
            FP8Linear(module, options=options(cast_to="float64"))

    def test_11_dtypes_of_outputs_and_biases(self):
        for dtype in (torch.float16, torch.bfloat16):
            for bias_dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
                module = linear(dtype)
                module.bias.data = module.bias.data.to(bias_dtype)
                x = inputs(4, dtype=dtype)
                y = FP8Linear(module, options=options())(x)
                self.assertEqual(y.dtype, dtype)
                self.near(y, by_the_formula(x, module), 2.0**-8)

    def test_11_a_bias_may_be_infinite(self):
        module = linear()
        module.bias.data[3] = -torch.inf
        y = FP8Linear(module, options=options())(inputs(2))
        self.assertTrue((y[:, 3] == -torch.inf).all())
        self.assertTrue(torch.isfinite(y[:, 4]).all())

    def test_12_shapes(self):
        layer = FP8Linear(linear(), options=options())
        x = inputs(4, 3, 2)
        self.assertEqual(layer(x).shape, (4, 3, 2, N))
        self.assertTrue(torch.equal(layer(x).reshape(-1, N), layer(x.reshape(-1, K))))
        self.assertEqual(layer(x[0, 0, 0]).shape, (N,))
        self.assertEqual(layer(x[:0]).shape, (0, 3, 2, N))
        for view in (x.transpose(0, 1), x[:, ::2], torch.randn(K, 5).bfloat16().t(), x[..., :1, :].expand(4, 3, 6, K)):
            self.assertTrue(torch.equal(layer(view), layer(view.contiguous())))
        with self.assertRaisesRegex(RuntimeError, f"x is .*{K - 1}"):
            layer(x[..., 1:])

    def test_12_no_columns_and_no_rows(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyTorch's, of an empty weight
            for n, k in ((8, 0), (0, 32)):
                layer = FP8Linear(nn.Linear(k, n).bfloat16(), options=options())
                y = layer(torch.ones(3, k).bfloat16())
                self.assertEqual(y.shape, (3, n))
                other = copy.deepcopy(layer)
                other.load_state_dict(layer.state_dict())
                self.assertTrue(torch.equal(other(torch.ones(3, k).bfloat16()), y))

    def test_13_cpu(self):
        x, module = inputs(3), linear()
        self.near(FP8Linear(module, options=options())(x), by_the_formula(x, module), 2.0**-8)
        for storage in ("keep", "cpu_offload", "discard"):
            layer = FP8Linear(module, options=options(storage, cpu="linear"))
            self.assertTrue(torch.equal(layer(x), module(x)))
            self.assertFalse(layer.is_materialized)
        layer.materialize_fp8_weight()
        with self.assertRaisesRegex(RuntimeError, "cpu='linear'.*discarded.*cpu_offload"):
            layer(x)
        wrapped = enable_fp8_gemm(nn.Sequential(module), options=options(cpu="linear"))
        self.assertTrue(torch.equal(wrapped(x), module(x)))

    def test_17_gradients(self):
        module = linear(torch.float32)
        for storage in STORAGES:
            layer = FP8Linear(module, options=options(storage))
            layer.bias.grad = None
            x = inputs(2, 3, dtype=torch.float32).requires_grad_()
            y = layer(x)
            dy = torch.randn_like(y)
            y.backward(dy)
            codes, scales = layer.fp8_weight()
            real = fp8.dequantize(codes, scales, dtype=torch.float32)
            self.near(x.grad, dy.double() @ real.double(), 2.0**-7)
            self.near(layer.bias.grad, dy.sum((0, 1)), 2.0**-7)
            if storage == "keep":
                self.assertIsNone(layer.weight.grad)

    def test_17_modes(self):
        layer = FP8Linear(linear(), options=options())
        x = inputs(2)
        want = layer(x)
        with torch.no_grad():
            self.assertTrue(torch.equal(layer(x), want))
            self.assertFalse(layer(x.clone().requires_grad_()).requires_grad)
        with torch.inference_mode():
            self.assertTrue(torch.equal(layer(inputs(2)), want))
        layer.requires_grad_(False)
        self.assertFalse(layer(x).requires_grad)
        self.assertTrue(layer(x.clone().requires_grad_()).requires_grad)
        self.assertTrue(torch.equal(layer.eval()(x), want))
        self.assertTrue(torch.equal(layer.train()(x), want))
        with torch.autocast("cpu", torch.bfloat16):
            self.assertTrue(torch.equal(layer(x.float()), want))
        with torch.inference_mode():
            made = FP8Linear(linear(), options=options("keep"))
            self.assertTrue(torch.equal(made(inputs(2)), want))

    def test_17_what_has_no_derivative_says_so(self):
        layer = FP8Linear(linear(), options=options()).requires_grad_(False)
        x, factor = inputs(3).requires_grad_(), torch.ones(3, N).bfloat16().requires_grad_()
        dx, = torch.autograd.grad((layer(x) * factor).sum(), x, create_graph=True)
        with self.assertRaisesRegex(NotImplementedError, "no second derivatives"):
            dx.sum().backward()
        with self.assertRaisesRegex(NotImplementedError, "forward-mode"):
            torch.func.jvp(layer, (inputs(2),), (inputs(2),))

    def test_17_export_is_refused(self):
        with self.assertRaisesRegex(NotImplementedError, "cannot be exported"):
            torch.export.export(enable_fp8_gemm(nn.Sequential(linear())), (inputs(2),))

    def test_17_lora_trains_on_top(self):
        try:
            import peft
        except ImportError as missing:
            self.skipTest(str(missing))
        model = nn.Sequential(linear(n=K), nn.ReLU(), linear(n=K))
        enable_fp8_gemm(model)
        tuned = peft.get_peft_model(model, peft.LoraConfig(target_modules=["0", "2"], r=4, init_lora_weights=True))
        optimizer = torch.optim.Adam((p for p in tuned.parameters() if p.requires_grad), lr=0.01)
        x, goal, losses = inputs(16), torch.randn(16, K), []
        for _ in range(20):
            loss = (tuned(x).float() - goal).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.9 * losses[0])

    def test_17_adapters_are_merged_where_there_is_a_weight(self):
        try:
            import peft
        except ImportError as missing:
            self.skipTest(str(missing))
        for storage in STORAGES:
            model = enable_fp8_gemm(nn.Sequential(linear(n=K)), options=options(storage))
            tuned = peft.get_peft_model(model, peft.LoraConfig(target_modules=["0"], r=4, init_lora_weights=False))
            y = tuned(inputs(5))
            if storage == "discard":
                with self.assertRaisesRegex(RuntimeError, "discarded.*would be lost.*keep"):
                    tuned.merge_and_unload()
                self.assertTrue(torch.equal(tuned(inputs(5)), y))
                continue
            merged = tuned.merge_and_unload()
            merged[0].invalidate_weight_cache()
            self.near(merged(inputs(5)), y, NOISE)


if __name__ == "__main__":
    warnings.simplefilter("ignore", FutureWarning)
    unittest.main()
