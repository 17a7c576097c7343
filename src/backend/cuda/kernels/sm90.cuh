/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90.cuh - the instructions of sm_90a that the fast kernels use, a function each: barriers in
 * shared memory, bulk copies by tensor maps, dependent launch, clusters, warpgroup products.
 * Addresses are those of shared memory in 32 bits. */
#ifndef FP8_KERNELS_SM90_CUH
#define FP8_KERNELS_SM90_CUH

#include "fp8.h"

#include <stdint.h>

#define DEV static __device__ __forceinline__

DEV uint32_t smem_u32(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* --- mbarrier --- */
DEV void mbar_init(uint32_t bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
DEV void mbar_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEV void mbar_expect_tx(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
DEV void mbar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
DEV void mbar_arrive_remote(uint32_t cluster_addr)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_addr) : "memory");
}
DEV void mbar_init_if(uint32_t lead, uint32_t bar, uint32_t count) /* see elect_one */
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %2, 0;\n @p mbarrier.init.shared::cta.b64 "
                 "[%0], %1;\n}" ::"r"(bar),
                 "r"(count), "r"(lead)
                 : "memory");
}
DEV bool mbar_try(uint32_t bar, uint32_t parity)
{
    uint32_t ok;
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n "
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ok)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return ok;
}
DEV void mbar_wait(uint32_t bar, uint32_t parity)
{
    while (!mbar_try(bar, parity)) {
    }
}
/* the same with acquire at cluster scope */
DEV void mbar_wait_cluster(uint32_t bar, uint32_t parity)
{
    uint32_t ok;
    do {
        asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
                     "p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(ok)
                     : "r"(bar), "r"(parity)
                     : "memory");
    } while (!ok);
}

DEV uint32_t clocks() /* of this SM, modulo 2^32 */
{
    uint32_t c;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(c)::"memory");
    return c;
}
/* Whether fewer than `wait` clocks have passed since `begun`. Not signed: who is stopped meanwhile,
 * for however long, does not wait after that. */
DEV bool too_early(uint32_t begun, uint32_t wait)
{
    return clocks() - begun < wait;
}
DEV void st_shared(uint32_t addr, uint4 v)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

/* --- bulk copies --- */
DEV uint64_t policy_evict_normal()
{
    uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(p));
    return p;
}
DEV uint64_t policy_evict_first()
{
    uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
DEV void bulk_to_cta(
    uint32_t dst, uint32_t src, uint32_t bytes,
    uint32_t bar) /* own shared memory to that of a CTA of the cluster; dst and bar there */
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], "
                 "[%1], %2, [%3];" ::"r"(dst),
                 "r"(src), "r"(bytes), "r"(bar)
                 : "memory");
}
DEV void tma_prefetch_map(const void *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
DEV void tma_prefetch_map_if(uint32_t lead, const void *map)
{
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %1, 0;\n @p prefetch.tensormap [%0];\n}" ::"l"(map),
        "r"(lead)
        : "memory");
}
DEV void fence_async_smem()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* --- dependent launch --- */
DEV void pdl_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
DEV void pdl_launch()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* The same; of what it takes to use what was waited for, `known`, which is not 0, is computed
 * before it: while there is time. An empty asm would not keep the assembler from doing so after. */
DEV void pdl_wait_with(uint32_t known)
{
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %0, 0;\n @p griddepcontrol.wait;\n}" ::"r"(known)
        : "memory");
}

/* --- clusters --- */
DEV uint32_t cluster_rank()
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
DEV uint32_t cluster_id()
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(r));
    return r;
}
DEV uint32_t cluster_count()
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(r));
    return r;
}
DEV void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
DEV void cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
} /* enough after fence.mbarrier_init */
DEV void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
DEV uint32_t mapa(uint32_t addr, uint32_t rank)
{
    uint32_t r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank));
    return r;
}
DEV void st_async4(uint32_t dst, float a, float b, float c, float d, uint32_t bar)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, "
                 "%3, %4}, [%5];" ::"r"(dst),
                 "f"(a), "f"(b), "f"(c), "f"(d), "r"(bar)
                 : "memory");
}
DEV void bar_named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEV void bar_named(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* --- wgmma --- */
DEV void wg_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEV void wg_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> DEV void wg_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* For a producer loop that a whole warp runs: `lead` is true in one lane, all else is the same in
 * all. So the operands stay in uniform registers; in a branch of one lane each copy costs a loop of
 * moves into them, some 100 clocks. */
DEV uint32_t elect_one()
{
    uint32_t r;
    asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(r));
    return r;
}
DEV void mbar_expect_tx_if(uint32_t lead, uint32_t bar, uint32_t bytes)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %2, 0;\n @p "
                 "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n}" ::"r"(bar),
                 "r"(bytes), "r"(lead)
                 : "memory");
}
DEV void tma_2d_if(uint32_t lead, uint32_t dst, const void *map, int c0, int c1, uint32_t bar)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %5, 0;\n @p "
                 "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];\n}" ::"r"(dst),
                 "l"(map), "r"(c0), "r"(c1), "r"(bar), "r"(lead)
                 : "memory");
}
DEV void tma_2d_hint_if(uint32_t lead, uint32_t dst, const void *map, int c0, int c1, uint32_t bar,
                        uint64_t pol)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %6, 0;\n @p "
                 "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::"
                 "cache_hint [%0], [%1, {%2, %3}], [%4], %5;\n}" ::"r"(dst),
                 "l"(map), "r"(c0), "r"(c1), "r"(bar), "l"(pol), "r"(lead)
                 : "memory");
}
DEV void tma_prefetch_2d_if(uint32_t lead, const void *map, int c0, int c1)
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %3, 0;\n @p "
                 "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];\n}" ::"l"(map),
                 "r"(c0), "r"(c1), "r"(lead)
                 : "memory");
}
DEV void tma_2d_mc_if(uint32_t lead, uint32_t dst, const void *map, int c0, int c1, uint32_t bar,
                      uint16_t mask) /* to every CTA of the mask, same offsets */
{
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %6, 0;\n @p "
                 "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes."
                 "multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;\n}" ::"r"(dst),
                 "l"(map), "r"(c0), "r"(c1), "r"(bar), "h"(mask), "r"(lead)
                 : "memory");
}
DEV void tma_store_2d(const void *map, uint32_t src, int c0, int c1)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(c0), "r"(c1), "r"(src)
        : "memory");
}
DEV void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int N> DEV void bulk_wait_read() /* of all stores but the last N */
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
DEV void bulk_wait_all()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
/* stmatrix: no memory clobber, so that the next loads may pass it; a fence and a barrier follow
 * before anybody reads */
DEV void stmatrix4(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
                 "r"(a), "r"(b), "r"(c), "r"(d));
}
DEV void stmatrix2(uint32_t addr, uint32_t a, uint32_t b)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(addr), "r"(a),
                 "r"(b));
}
DEV void stmatrix2_trans(uint32_t addr, uint32_t a, uint32_t b)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(addr),
                 "r"(a), "r"(b));
}
DEV uint32_t transpose8(uint32_t v) /* an 8x8 matrix of 16-bit values over the warp: lane l held row
                                       l/4, columns 2(l%4)+{0,1} */
{
    uint32_t r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    return r;
}
DEV uint32_t bf16x2(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
/* Two of them in fp16 or bf16; dtype is the same in all lanes. */
DEV uint32_t half2_of(int dtype, float lo, float hi)
{
    uint32_t r;
    if (dtype == FP8_BF16)
        return bf16x2(lo, hi);
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
/* wgmma results are registers that the compiler does not know to be in flight: pin them after the
 * wait */
template <int R> DEV void pin(float (&d)[R])
{
#pragma unroll
    for (int i = 0; i < R; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> DEV void reg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> DEV void reg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

#endif
