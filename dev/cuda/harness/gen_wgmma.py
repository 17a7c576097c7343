# SPDX-License-Identifier: Apache-2.0
# Writes wgmma_gen.h (not committed): kblock<N>::ss(d, a, b, acc) issues the four m64nNk32 e4m3 wgmmas of one
# 128-byte block of K. a, b: low words of the descriptors (128-byte swizzle, K-major); acc = 0 starts from zero.
#   python3 gen_wgmma.py > wgmma_gen.h
print("#pragma once\ntemplate <int N> struct kblock;")
for n in (8, 16, 32, 64, 96, 112, 128, 160, 192, 224):
    r = n // 2
    regs = ", ".join(f"%{i}" for i in range(r))
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(r))
    print(f"template <> struct kblock<{n}> {{\n  static __device__ __forceinline__ void ss(float (&d)[{r}], uint32_t a, uint32_t b, int acc) {{")
    print(f'    asm volatile("{{\\n.reg .b64 x, y;\\n.reg .pred p;\\nmov.b64 x, {{%{r}, %{r+2}}};\\nmov.b64 y, {{%{r+1}, %{r+2}}};\\nsetp.ne.b32 p, %{r+3}, 0;\\n"')
    for j in range(4):
        print(f'      "wgmma.mma_async.sync.aligned.m64n{n}k32.f32.e4m3.e4m3 {{{regs}}}, x, y, {"p" if j == 0 else "1"}, 1, 1;\\n"')
        if j < 3:
            print('      "add.s64 x, x, 2;\\nadd.s64 y, y, 2;\\n"')
    print(f'      "}}" : {outs} : "r"(a), "r"(b), "n"(0x40000040), "r"(acc));\n  }}\n}};')
