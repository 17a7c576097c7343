# SPDX-License-Identifier: Apache-2.0
"""fp8.compat against the vectors that vLLM's own code made, and FP8Linear's codes against its online quantization.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python tests/python/test_compat.py
"""
import itertools
import pathlib
import sys
import types
import unittest
from unittest import mock

try:
    import torch
    from safetensors import safe_open
except ImportError as missing:
    print(f"skipped: {missing} (script/bootstrap python)")
    sys.exit(77)

import fp8
from fp8 import compat

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def vectors(name):
    with safe_open(GOLDEN / f"{name}.safetensors", "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata()


def stems(tensors, tail):
    return sorted(name.removesuffix(tail) for name in tensors if name.endswith(tail))


class Case(unittest.TestCase):
    def same(self, got, want, what=""):
        """Bit for bit, but for the sign and the payload of NaN."""
        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), what)
        nan = got.float().isnan() & want.float().isnan()
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[got.itemsize]
        equal = got.contiguous().view(bits) == want.contiguous().view(bits)
        self.assertTrue((equal | nan).all(), f"{what}: {int((~(equal | nan)).sum())} differ")


class Scales(Case):
    def test_all_close_1d(self):
        t, _ = vectors("gemm/all_close_1d")
        for i, want in enumerate(t["result"].tolist()):
            self.assertEqual(compat.all_close_1d(t["x"][t["offsets"][i]:t["offsets"][i + 1]]), bool(want), i)

    def test_convert_to_channelwise(self):
        t, _ = vectors("gemm/convert_to_channelwise")
        for case in stems(t, "_widths"):
            self.same(compat.convert_to_channelwise(t[case + "_scale"], t[case + "_widths"].tolist()), t[case + "_out"], case)

    def test_channelwise_of_other_dtypes_and_of_a_column(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            scales = torch.tensor([0.5, 3.0, 1e-3]).to(dtype)
            want = scales.float().repeat_interleave(torch.tensor([2, 0, 3])).reshape(-1, 1)
            self.same(compat.convert_to_channelwise(scales, [2, 0, 3]), want, str(dtype))
            self.same(compat.convert_to_channelwise(scales.reshape(-1, 1), [2, 0, 3]), want, str(dtype))
        with self.assertRaisesRegex(ValueError, "3 scales for 2 widths"):
            compat.convert_to_channelwise(scales, [2, 3])

    def test_dequantize_of_no_codes_and_by_a_double(self):
        codes = torch.arange(0, 12, dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(3, 4)
        for scale in (0.3, torch.tensor(0.3), torch.tensor(0.3, dtype=torch.float64), torch.tensor([0.3])):
            for part in (codes, codes[:0], codes[:, :0]):
                self.same(compat.per_tensor_dequantize(part, scale), part.half() * scale, str(scale))

    def test_per_tensor_dequantize(self):
        t, _ = vectors("gemm/per_tensor_dequantize")
        for i, scale in enumerate(t["scale"]):
            self.same(compat.per_tensor_dequantize(t["codes"], scale), t["out_f16"][i])
            self.same(compat.per_tensor_dequantize(t["codes"], float(scale)), t["out_f16"][i])
            self.same(compat.per_tensor_dequantize(t["codes"], scale.half()), t["out_f16_scale_rounded"][i])
            self.same(compat.per_tensor_dequantize(t["codes"], scale.reshape(1)), t["out_f32_scale_1d"][i])
        with self.assertRaisesRegex(ValueError, "one number"):
            compat.per_tensor_dequantize(t["codes"], t["scale"])

    def test_requantize_with_max_scale(self):
        t, _ = vectors("gemm/requantize_with_max_scale")
        for case in stems(t, "_weight"):
            weight, scale = t[case + "_weight"].clone(), t[case + "_scale"]
            most, out = compat.requantize_with_max_scale(weight, scale.reshape(()) if "scalar0d" in case else scale,
                                                         t[case + "_widths"].tolist())
            self.assertIs(out, weight)
            self.assertEqual(most, t[case + "_max_scale"].reshape(()))
            self.same(out, t[case + "_out"], case)

    def test_normalize(self):
        t, _ = vectors("gemm/normalize_e4m3fn_to_e4m3fnuz")
        codes = t["codes_fn"].clone()
        weight, scale, input_scale = compat.normalize_e4m3fn_to_e4m3fnuz(codes, t["weight_scale"], t["input_scale"])
        self.assertEqual(weight.dtype, torch.float8_e4m3fnuz)
        self.assertTrue(torch.equal(weight.view(torch.uint8), t["codes_fnuz"]))
        self.same(scale, t["weight_scale_out"])
        self.same(input_scale, t["input_scale_out"])
        self.assertIsNone(compat.normalize_e4m3fn_to_e4m3fnuz(t["codes_fn"].clone(), t["weight_scale"])[2])

    def test_normalize_scales_of_any_strides(self):
        blocks = torch.arange(1.0, 4097.0).reshape(64, 64)
        for scale in (blocks.t(), blocks[:, ::2], blocks[0, 0].expand(64, 64), blocks[0, 0]):
            codes = torch.zeros(4, 4, dtype=torch.float8_e4m3fn)
            _, weight_scale, input_scale = compat.normalize_e4m3fn_to_e4m3fnuz(codes, scale, scale)
            self.same(weight_scale, scale * 2)
            self.same(input_scale, scale * 2)
        self.assertEqual(blocks[0, 0], 1)

    def test_requant_weight_ue8m0(self):
        t, _ = vectors("block/requant_weight_ue8m0")
        for case in stems(t, "_w"):
            weight, scale = t[case + "_w"].clone(), t[case + "_s"].clone()
            compat.requant_weight_ue8m0_inplace(weight, scale)
            self.same(weight, t[case + "_w_out"])
            self.same(scale, t[case + "_s_out"])
        with self.assertRaisesRegex(ValueError, "experts"):
            compat.requant_weight_ue8m0_inplace(t["e3_w"].clone(), t["e3_s"][:2].clone())

    def test_validate_fp8_block_shape(self):
        t, metadata = vectors("block/tp_validate")
        for row, ok, message in zip(t["cases"].tolist(), t["ok"].tolist(), metadata["messages"].split("\n")):
            k, n, k_shard, tp, block_n, block_k, allow, parts, *widths = row
            layer = types.SimpleNamespace(tp_size=tp, allow_fp8_block_shape_mismatch=bool(allow))
            arguments = (layer, k, n, k_shard, widths[:parts], [block_n, block_k])
            if ok:
                compat.validate_fp8_block_shape(*arguments)
            else:
                with self.assertRaises(ValueError) as caught:
                    compat.validate_fp8_block_shape(*arguments)
                self.assertIn(message.removeprefix("Weight ").rstrip("."), str(caught.exception))


class Support(Case):
    def test_predicates(self):
        t, _ = vectors("gemm/predicates")
        checked = 0
        for capability, cuda, compiled, fp8_, block, _group, gated in t["rows"].tolist():
            if capability < 0 or not compiled:
                continue
            version = f"{cuda // 1000}.{cuda % 1000 // 10}"
            with mock.patch.object(torch.version, "cuda", version), \
                    mock.patch.object(torch.cuda, "is_available", lambda: True), \
                    mock.patch.object(torch.cuda, "get_device_capability", lambda c=capability: (c // 10, c % 10)):
                got = (compat.cutlass_fp8_supported(), compat.cutlass_block_fp8_supported(),
                       compat.cutlass_group_gemm_supported())
            self.assertEqual(got, (bool(fp8_), bool(block), bool(gated)), (capability, cuda))
            checked += 1
        self.assertGreater(checked, 50)

    def test_without_a_gpu_nothing_is_supported(self):
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            self.assertFalse(compat.cutlass_fp8_supported() or compat.cutlass_block_fp8_supported() or
                             compat.cutlass_group_gemm_supported() or compat.sparse_cutlass_supported())

    def test_dispatch(self):
        t, metadata = vectors("gemm/dispatch_seed")
        names = metadata["names"].split(",")
        for rocm, rowwise, cutlass, weights, activations, per_token, chosen in t["rows"].tolist():
            with mock.patch.object(torch.version, "hip", "6.4" if rocm else None), \
                    mock.patch.object(compat, "USE_ROWWISE_TORCH_SCALED_MM", bool(rowwise)):
                got = compat.dispatch_w8a8_scaled_mm(bool(cutlass), bool(weights), bool(activations),
                                                     None if per_token < 0 else bool(per_token))
            self.assertEqual(got.__name__, names[chosen])

    def test_shapes_for_deepgemm(self):
        t, _ = vectors("gemm/shape_predicates")
        for n, k, bf16, ok in t["deepgemm_linear"].tolist():
            dtype = torch.bfloat16 if bf16 else torch.float16
            self.assertEqual(compat.should_use_deepgemm_for_fp8_linear(dtype, n, k), bool(ok))


class Quantizers(Case):
    def test_scaled_fp8_quant(self):
        inputs, _ = vectors("quant/inputs")
        t, _ = vectors("quant/vllm_spec")
        checked = 0
        for name in stems(t, "/codes"):
            mode, case = name.split("/")
            x, codes, scales = inputs[case], t[name + "/codes"], t[name + "/scales"]
            if "zeros" in case or "tiny" in case:
                continue  # where the original is defective: docs/numerics.md 6
            if mode == "dynamic_tensor":
                got = compat.scaled_fp8_quant(x)
            elif mode == "dynamic_token":
                got = compat.scaled_fp8_quant(x, use_per_token_if_dynamic=True)
            elif mode == "dynamic_token_ub":
                got = compat.scaled_fp8_quant(x, use_per_token_if_dynamic=True, scale_ub=t[name + "/ub"])
            elif mode in ("static_tensor", "static_token", "static_channel"):
                shape = {"static_tensor": None, "static_token": (1, -1), "static_channel": (-1, 1)}[mode]
                got = compat.scaled_fp8_quant(x, scales, group_shape=shape)
            elif mode == "block128":
                got = compat.per_block_cast_to_fp8(x)
            elif mode == "input_to_float8":
                got = compat.input_to_float8(x)
                scales = scales.reshape(())
            else:
                continue
            self.same(got[0], codes.view(torch.float8_e4m3fn), name)
            self.same(got[1], scales, name)
            checked += 1
        self.assertGreater(checked, 100)

    def test_input_to_float8_of_any_shape(self):
        x = torch.randn(3, 4, 5)
        codes, scale = compat.input_to_float8(x)
        for shape in (-1,), (12, 5):
            other = compat.input_to_float8(x.reshape(shape))
            self.same(other[0].reshape(x.shape), codes)
            self.same(other[1], scale)

    def test_padding_and_output(self):
        x = torch.randn(3, 16)
        codes, scale = compat.scaled_fp8_quant(x, num_token_padding=17)
        self.assertEqual(codes.shape, (17, 16))
        self.assertFalse(codes[3:].float().any())
        out = torch.empty(3, 16, dtype=torch.float8_e4m3fn)
        self.assertIs(compat.scaled_fp8_quant(x, output=out)[0], out)
        self.same(out, codes[:3])

    def test_the_kind_of_a_scale_is_never_guessed(self):
        with self.assertRaisesRegex(ValueError, "group_shape"):
            compat.scaled_fp8_quant(torch.randn(4, 4), torch.ones(4))
        with self.assertRaisesRegex(ValueError, "divide"):
            compat.scaled_fp8_quant(torch.randn(4, 4), torch.ones(3, 1))

    def test_per_block_cast(self):
        t, _ = vectors("block/per_block_cast")
        codes, scales = compat.per_block_cast_to_fp8(t["ns64x32_w"], (64, 32))
        self.same(codes, t["ns64x32_q"])
        self.same(scales, t["ns64x32_s"])
        for case, ue in itertools.product(set(stems(t, "_w")) - {"ns64x32"}, (0, 1)):
            codes, scales = compat.per_block_cast_to_fp8(t[case + "_w"], use_ue8m0=bool(ue))
            self.same(codes, t[f"{case}_q_ue{ue}"], case)
            self.same(scales, t[f"{case}_s_ue{ue}"], case)

    def test_per_token_group_quant(self):
        t, _ = vectors("block/per_token_group_quant")
        for case, ue in itertools.product(stems(t, "_x"), (0, 1)):
            x, want = t[case + "_x"], t.get(f"{case}_s_ue{ue}")
            if want is None or x.shape[1] % want.shape[1]:
                continue
            codes, scales = compat.per_token_group_quant_fp8(x, x.shape[1] // want.shape[1], use_ue8m0=bool(ue))
            self.same(codes, t[f"{case}_q_ue{ue}"], case)
            self.same(scales, want, case)
            made = compat.per_token_group_quant_fp8(x, x.shape[1] // want.shape[1], use_ue8m0=bool(ue),
                                                    column_major_scales=True)
            self.same(made[1], want, case)
            self.assertTrue(made[1].t().is_contiguous())
            out = torch.empty_like(codes)
            made = compat.per_token_group_quant_fp8(x, x.shape[1] // want.shape[1], 1e-10, None, True, True, out, bool(ue))
            self.assertIs(made[0], out)
            self.same(out, codes)
            self.same(made[1], want, case)
            self.assertEqual(made[1].stride(), (1, -(-x.shape[0] // 4) * 4))
        with self.assertRaisesRegex(ValueError, "out_q"):
            compat.per_token_group_quant_fp8(torch.randn(2, 128), 128, out_q=torch.empty(2, 128))
        with self.assertRaisesRegex(ValueError, "multiple"):
            compat.per_token_group_quant_fp8(torch.randn(2, 200), 128)
        with self.assertRaises(NotImplementedError):
            compat.per_token_group_quant_fp8(torch.randn(2, 128), 128, eps=1e-5)


class Products(Case):
    def test_scaled_mm(self):
        """CUTLASS's epilogue and the unfused one, bit for bit where every sum is exact."""
        functions = {"epi": compat.cutlass_w8a8_scaled_mm, "unfused": compat.torch_channelwise_w8a8_scaled_mm}
        checked = 0
        for path in sorted(GOLDEN.glob("gemm/scaled_mm_*_exact.safetensors")):
            t, _ = vectors(f"gemm/{path.stem}")
            for name, want in t.items():
                kind, *rest = name.split("_")
                if kind not in functions:
                    continue
                a, b, bias, dtype = rest
                y = functions[kind](qinput=t["a"], weight=t["b"].t(), out_dtype=DTYPES[dtype], scale_a=t["scale_a_" + a],
                                    scale_b=t["scale_b_" + b], bias=t["bias_" + dtype] if bias == "bias" else None,
                                    output_shape=list(want.shape))
                self.same(y, want, f"{path.stem} {name}")
                checked += 1
        self.assertGreater(checked, 20)

    def test_no_rows(self):
        weight = torch.ones(32, 16).to(torch.float8_e4m3fn).t()
        per_token = torch.tensor([[0.5]] * 32)
        for lead in ((0,), (2, 0, 3)):
            x = torch.empty(*lead, 16, dtype=torch.bfloat16)
            for cutlass, token, pad, scale, weight_scale in itertools.product(
                    (False, True), (False, True), (False, True), (None, torch.tensor([0.1])), (per_token[:1, 0], per_token)):
                y = compat.Fp8LinearOp(cutlass, token, pad).apply(x, weight, weight_scale, input_scale=scale)
                self.assertEqual((y.shape, y.dtype), ((*lead, 32), torch.bfloat16))
            codes, scales = compat.per_token_group_quant_fp8(x, 16)
            y = compat.w8a8_block_fp8_matmul(codes, weight.t(), scales, torch.ones(2, 1), [16, 16])
            self.assertEqual(y.shape, (*lead, 32))
        codes, _ = compat.scaled_fp8_quant(x.reshape(0, 16), torch.tensor(0.1), num_token_padding=17)
        self.assertTrue(torch.equal(codes.view(torch.uint8), torch.zeros(17, 16, dtype=torch.uint8)))

    def test_block_matmul(self):
        for name, block in (("mm_m4_n256_k256_exact", (128, 128)), ("mm_m7_n136_k272_exact", (128, 128))):
            t, _ = vectors("block/" + name)
            for dtype in ("bf16", "f16"):
                y = compat.w8a8_block_fp8_matmul(t["a"], t["b"], t["a_scale"], t["b_scale"], block, DTYPES[dtype])
                self.same(y, t["out_" + dtype], name)

    def test_linear_op(self):
        torch.manual_seed(6)
        x, w, bias = torch.randn(2, 3, 64).bfloat16(), torch.randn(48, 64).bfloat16(), torch.randn(48).bfloat16()
        codes, scale = compat.scaled_fp8_quant(w)
        want = fp8.FP8Linear(linear_of(w, bias), options=fp8.FP8GemmOptions())(x)
        per_token = compat.GroupShape.PER_TOKEN
        for op in (compat.Fp8LinearOp(use_per_token_if_dynamic=True), compat.Fp8LinearOp(True, True),
                   compat.Fp8LinearOp(act_quant_static=False, act_quant_group_shape=per_token, pad_output=False)):
            y = op.apply(input=x, weight=codes.t(), weight_scale=scale, bias=bias)
            self.assertEqual((y.shape, y.dtype), ((2, 3, 48), torch.bfloat16))
            torch.testing.assert_close(y, want, rtol=2.0**-7, atol=2.0**-7)
        self.assertTrue(torch.equal(compat.Fp8LinearOp(True, True).apply(x, codes.t(), scale, bias=bias), want))
        padded, plain = (compat.Fp8LinearOp(pad_output=pad).apply(x, codes.t(), scale) for pad in (None, False))
        self.assertTrue(torch.equal(padded, plain))
        static = compat.Fp8LinearOp().apply(x, codes.t(), scale, input_scale=torch.tensor(0.01))
        self.assertLess((static - x @ w.t()).float().norm(), 0.1 * (x @ w.t()).float().norm())
        xq, xs = compat.scaled_fp8_quant(x.reshape(-1, 64))
        given = compat.Fp8LinearOp().apply(xq, codes.t(), scale, out_dtype=torch.bfloat16, input_scale=xs)
        self.assertTrue(torch.equal(given, plain.reshape(-1, 48)))
        with self.assertRaises(TypeError):
            compat.Fp8LinearOp(True).apply(xq, codes.t(), scale, out_dtype=torch.bfloat16, input_scale=xs)
        self.assertEqual(compat.Fp8LinearOp().apply(x[:0], codes.t(), scale).shape, (0, 3, 48))


def linear_of(weight, bias=None):
    made = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight.data, made.bias = weight, None if bias is None else torch.nn.Parameter(bias)
    return made


class Online(Case):
    def test_codes_of_a_layer_are_those_of_vllm_online(self):
        """Weights of bf16; others are rounded to it first, as the utility does."""
        checked = 0
        for file in ("linear", "fused"):
            t, _ = vectors("online/" + file)
            for case, scheme in itertools.product(stems(t, "_w"), ("tensor", "channel", "block")):
                codes = t.get(f"{case}_{scheme}_q")
                if codes is None or t[case + "_w"].dtype != torch.bfloat16 or "nan" in case or "zero" in case:
                    continue
                layer = fp8.FP8Linear(linear_of(t[case + "_w"]), options=fp8.FP8GemmOptions(scheme=scheme))
                got, scales = layer.fp8_weight()
                self.same(got, codes, f"{case} {scheme}")
                self.same(scales.reshape(t[f"{case}_{scheme}_s"].shape), t[f"{case}_{scheme}_s"], f"{case} {scheme}")
                checked += 1
        self.assertGreater(checked, 8)
        t, _ = vectors("online/linear")
        got, scales = fp8.FP8Linear(linear_of(t["mx_w"]), options=fp8.FP8GemmOptions(scheme="mxfp8")).fp8_weight()
        self.same(got, t["mx_q"])
        self.assertTrue(torch.equal(scales.view(torch.uint8), t["mx_s"].view(torch.uint8)))


if __name__ == "__main__":
    unittest.main()
