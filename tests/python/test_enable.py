# SPDX-License-Identifier: Apache-2.0
"""What enable_fp8_gemm does to a model, by the numbers 14 to 16 of docs/python.md, and models under torch.compile.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python tests/python/test_enable.py
"""
import copy
import itertools
import unittest
import warnings

from test_behaviours import NOISE, SCHEMES, STORAGES, K, N, inputs, linear, options  # exits with 77 without PyTorch

import torch
from torch import nn

from fp8 import FP8Linear, enable_fp8_gemm


class Enable(unittest.TestCase):
    def near(self, y, want, relative=NOISE):
        self.assertEqual(y.shape, want.shape)
        self.assertLess((y.double() - want.double()).norm() / want.double().norm(), relative)

    def test_14_enable(self):
        def model():
            return nn.ModuleDict({"a": linear(), "b": nn.Sequential(linear(n=K), nn.ReLU(), linear())})

        seen = []
        m = model()
        self.assertIs(enable_fp8_gemm(m, module_filter=lambda name, module: seen.append((name, module)) or name != "b.0"), m)
        self.assertEqual([name for name, _ in seen], ["a", "b.0", "b.2"])
        self.assertTrue(all(isinstance(module, nn.Linear) for _, module in seen))
        self.assertEqual([type(m["a"]), type(m["b"][0]), type(m["b"][2])], [FP8Linear, nn.Linear, FP8Linear])
        m = model()
        other = enable_fp8_gemm(m, inplace=False)
        self.assertFalse(any(isinstance(module, FP8Linear) for module in m.modules()))
        self.assertEqual(sum(isinstance(module, FP8Linear) for module in other.modules()), 3)
        self.assertIsInstance(enable_fp8_gemm(linear()), FP8Linear)
        self.assertIsInstance(other["a"], nn.Linear)
        again = list(other.modules())
        enable_fp8_gemm(other)
        self.assertTrue(all(a is b for a, b in zip(again, other.modules())))

    def test_14_hooks_stay(self):
        module, calls = linear(), []
        module.register_forward_hook(lambda *_: calls.append(1))
        enable_fp8_gemm(nn.Sequential(module))(inputs(1))
        self.assertEqual(calls, [1])

    def test_14_all_that_was_put_on_a_linear_stays(self):
        module, calls = linear(), []
        module.flag = "mine"
        module.register_full_backward_hook(lambda m, dx, dy: calls.append(("backward", type(m), dx[0].shape)))
        module.register_state_dict_pre_hook(lambda m, prefix, keep_vars: calls.append(("save", type(m))))
        module.register_load_state_dict_pre_hook(lambda m, *_: calls.append(("load", type(m))))
        module.register_load_state_dict_post_hook(lambda m, keys: calls.append(("loaded", type(m))))
        optimizer = torch.optim.SGD([module.bias], lr=1.0)
        model = enable_fp8_gemm(nn.Sequential(module))
        del module
        self.assertEqual(model[0].flag, "mine")
        self.assertIs(optimizer.param_groups[0]["params"][0], model[0].bias)
        model(inputs(3).requires_grad_()).sum().backward()
        model.load_state_dict(model.state_dict())
        self.assertEqual(calls, [("backward", FP8Linear, (3, K)), ("save", FP8Linear), ("load", FP8Linear),
                                 ("loaded", FP8Linear)])

    def test_14_linears_that_are_more_than_a_weight_and_a_bias(self):
        for word in ("buffer", "parameter", "module", "lazy", "integers"):
            module = nn.LazyLinear(4) if word == "lazy" else linear()
            if word == "integers":
                module.weight = nn.Parameter(torch.ones(N, K, dtype=torch.int8), requires_grad=False)
            elif word != "lazy":
                value = {"buffer": torch.ones(1), "parameter": nn.Parameter(torch.ones(1)), "module": nn.ReLU()}[word]
                getattr(module, "register_" + word)("extra", value)
            with self.subTest(word), self.assertWarnsRegex(UserWarning, "more than a weight|no shape yet|torch.int8"):
                self.assertIs(enable_fp8_gemm(nn.Sequential(module))[0], module)

    def test_15_ties_of_biases_and_of_what_another_module_reads(self):
        a, b = linear(n=K), linear(n=K, seed=3)
        b.bias = a.bias
        model = enable_fp8_gemm(nn.Sequential(a, b))
        self.assertIs(model[0].bias, model[1].bias)
        attention = nn.MultiheadAttention(64, 4)
        model = nn.ModuleList([attention.out_proj, attention])
        parent = nn.ModuleList([linear()])
        parent.register_parameter("same", parent[0].weight)
        with self.assertWarnsRegex(UserWarning, "0 .its weight is tied to the model itself"):
            enable_fp8_gemm(parent)
        with self.assertWarnsRegex(UserWarning, "^enable_fp8_gemm left as they are: 0 .*reads.*; 1.out_proj .*reads"):
            enable_fp8_gemm(model)
        self.assertIs(model[0], attention.out_proj)

    def test_15_shared_and_tied(self):
        shared = linear(n=K)
        model = nn.Sequential(nn.Sequential(shared), shared)
        enable_fp8_gemm(model)
        self.assertIsInstance(model[1], FP8Linear)
        self.assertIs(model[0][0], model[1])

        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.proj, self.head = nn.Embedding(N, K), linear(n=K), nn.Linear(K, N, bias=False)
                self.head.weight = self.embed.weight

        model = Tied()
        with self.assertWarnsRegex(UserWarning, "head .*tied to embed"):
            enable_fp8_gemm(model)
        self.assertIs(type(model.head), nn.Linear)
        self.assertIsInstance(model.proj, FP8Linear)
        model = enable_fp8_gemm(Tied(), options=options("keep"))
        self.assertIsInstance(model.head, FP8Linear)
        self.assertIs(model.head.weight, model.embed.weight)
        self.assertIs(copy.deepcopy(model).head.weight is model.embed.weight, False)
        other = copy.deepcopy(model)
        self.assertIs(other.head.weight, other.embed.weight)

    def test_16_modules_that_read_a_childs_weight(self):
        torch.manual_seed(4)
        model = nn.ModuleDict({"mha": nn.MultiheadAttention(64, 4), "layer": nn.TransformerEncoderLayer(64, 4, 128),
                               "plain": nn.Linear(64, 64)}).eval()
        x = torch.randn(3, 2, 64)
        want = model["mha"](x, x, x)[0], model["layer"](x)
        with self.assertWarnsRegex(UserWarning, "mha.out_proj .*reads.*layer.linear1 .*reads"):
            enable_fp8_gemm(model)
        self.assertTrue(torch.equal(model["mha"](x, x, x)[0], want[0]))
        with torch.no_grad():
            torch.testing.assert_close(model["layer"](x), want[1])
        self.assertIsInstance(model["plain"], FP8Linear)

        class Own(nn.Linear):
            def forward(self, x):
                return super().forward(x) + 1

        with self.assertWarnsRegex(UserWarning, "Own has a forward"):
            self.assertIs(type(enable_fp8_gemm(nn.Sequential(Own(4, 4)))[0]), Own)
        normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        with self.assertWarnsRegex(UserWarning, "parametrization"):
            enable_fp8_gemm(nn.Sequential(normed))

    def test_16_a_weight_that_is_read_all_the_same_is_right(self):
        for scheme, storage in itertools.product(SCHEMES, STORAGES):
            module = linear()
            layer = FP8Linear(module, options=options(storage, scheme=scheme))
            layer(inputs(1))
            self.assertEqual((layer.weight.shape, layer.weight.dtype), ((N, K), torch.bfloat16))
            self.near(layer.weight, module.weight, 2.0**-4)

    def test_16_a_computed_weight_is_a_plain_tensor_but_for_writing(self):
        layer = FP8Linear(linear(), options=options())
        layer.materialize_fp8_weight()
        weight = layer.weight
        for made in (weight + 1, weight.clone(), weight.t(), weight[0]):
            self.assertIs(type(made), torch.Tensor)
        x = inputs(2).requires_grad_()
        nn.functional.linear(x, weight).sum().backward()
        self.assertEqual(x.grad.shape, x.shape)

    def test_16_a_computed_weight_cannot_be_written_to(self):
        layer = FP8Linear(linear(), options=options())
        y, weight = layer(inputs(2)), layer.weight
        for write in (lambda w: w.zero_(), lambda w: nn.init.normal_(w), lambda w: w.data.normal_(), lambda w: w.copy_(w * 2),
                      lambda w: w.__setitem__(0, 1.0), lambda w: w.data.__iadd__(1), lambda w: w.__imul__(2)):
            with torch.no_grad(), self.assertRaisesRegex(RuntimeError, "discarded.*would be lost.*keep"):
                write(weight)
        self.assertTrue(torch.equal(layer(inputs(2)), y))

    def test_compile_without_a_break(self):
        for storage in STORAGES:
            torch.compiler.reset()
            model = enable_fp8_gemm(nn.Sequential(linear(n=K), nn.GELU(), linear()), options=options(storage))
            model.requires_grad_(False)
            compiled = torch.compile(model, fullgraph=True, backend="inductor" if storage == "discard" else "aot_eager")
            for rows in (1, 5):
                torch.testing.assert_close(compiled(inputs(rows)), model(inputs(rows)), rtol=2.0**-6, atol=2.0**-6)
            x = inputs(3).requires_grad_()
            compiled(x).sum().backward()
            self.assertTrue(torch.isfinite(x.grad).all())

    def test_compile_makes_the_codes_if_there_are_none(self):
        torch.compiler.reset()
        layer = FP8Linear(linear(), options=options())
        y = torch.compile(layer, fullgraph=True, backend="aot_eager")(inputs(3))
        self.assertTrue(layer.is_materialized)
        self.assertTrue(torch.equal(y, layer(inputs(3))))

    def test_compiled_graphs_see_codes_that_were_made_again(self):
        torch.compiler.reset()
        layer = FP8Linear(linear(), options=options("keep"))
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        before = compiled(inputs(3))
        with torch.no_grad():
            layer.weight.mul_(2)
        layer.materialize_fp8_weight()
        self.assertFalse(torch.equal(layer(inputs(3)), before))
        self.assertTrue(torch.equal(compiled(inputs(3)), layer(inputs(3))))


if __name__ == "__main__":
    warnings.simplefilter("ignore", FutureWarning)
    unittest.main()
