/* SPDX-License-Identifier: Apache-2.0 */
/* bench.cuh - host side of the ladder: problems with random data, the plain reference and its bound, CUDA graphs over cold
 * weights, cuBLASLt's best algorithms as peers in the same run, and one line per case.
 * Copies of W rotate so that together they exceed eight times the L2 (three let evict-first loads find old lines again). All
 * series of a shape are timed in turn (seven rounds, each in an order of its own, medians), so that clock and power drift
 * meet all of them alike. */
#pragma once
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define CK(x) do { cudaError_t e_ = (x); if (e_ != cudaSuccess) { printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); fflush(stdout); exit(1); } } while (0)

inline cudaStream_t g_stream;
inline int g_sms;
inline size_t g_l2;
inline cublasLtHandle_t g_lt;
inline void *g_work;
inline double *g_stats; /* err^2, ref^2, worst error over bound, NaNs in y */
static const size_t WORKSPACE = 64u << 20;
static void bench_init(void)
{
    static cudaDeviceProp p;
    setvbuf(stdout, NULL, _IOLBF, 0);
    CK(cudaGetDeviceProperties(&p, 0));
    g_sms = p.multiProcessorCount; g_l2 = (size_t)p.l2CacheSize;
    CK(cudaStreamCreateWithFlags(&g_stream, cudaStreamNonBlocking));
    CK(cudaMalloc(&g_work, WORKSPACE));
    CK(cudaMallocManaged(&g_stats, 64));
    if (cublasLtCreate(&g_lt)) { printf("cublasLtCreate failed\n"); exit(1); }
    printf("# %s, %d SMs, cuBLASLt %zu\n", p.name, g_sms, cublasLtGetVersion());
}

/* ---- tensor maps and launches ---- */
static CUtensorMap map_any(const void *p, CUtensorMapDataType type, uint64_t size, uint64_t rows, uint64_t cols, uint64_t ld, uint32_t box_rows, uint32_t box_cols, CUtensorMapSwizzle sw)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static encode_fn f;
    if (!f) { cudaDriverEntryPointQueryResult q; CK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&f, 12000, cudaEnableDefault, &q)); }
    CUtensorMap m;
    cuuint64_t d[2] = {cols, rows}, s[1] = {ld * size};
    cuuint32_t b[2] = {box_cols, box_rows}, e[2] = {1, 1};
    CUresult r = f(&m, type, 2, (void *)p, d, s, b, e, CU_TENSOR_MAP_INTERLEAVE_NONE, sw, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r) { printf("encode failed %d: rows %d cols %d box %u x %u\n", (int)r, (int)rows, (int)cols, box_rows, box_cols); exit(1); }
    return m;
}
static CUtensorMap map_bytes(const void *p, int rows, int cols, int br, int bc) { return map_any(p, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, (uint64_t)rows, (uint64_t)cols, (uint64_t)cols, (uint32_t)br, (uint32_t)bc, CU_TENSOR_MAP_SWIZZLE_128B); }
static CUtensorMap map_bf16(const void *p, int rows, int cols, int br, int bc) { return map_any(p, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (uint64_t)rows, (uint64_t)cols, (uint64_t)cols, (uint32_t)br, (uint32_t)bc, bc == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : bc == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_32B); }
static CUtensorMap map_f32(const void *p, int rows, int cols, int bc) { return map_any(p, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, (uint64_t)rows, (uint64_t)cols, (uint64_t)cols, 1, (uint32_t)bc, CU_TENSOR_MAP_SWIZZLE_NONE); }
static cudaError_t launch_args(const void *k, int grid, int threads, size_t smem, int cluster, int pdl, void **args)
{
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute a[2];
    int n = 0;
    c.gridDim = dim3((unsigned)grid); c.blockDim = dim3((unsigned)threads); c.dynamicSmemBytes = smem; c.stream = g_stream; c.attrs = a;
    if (cluster >= 1) { a[n].id = cudaLaunchAttributeClusterDimension; a[n].val.clusterDim.x = (unsigned)cluster; a[n].val.clusterDim.y = a[n].val.clusterDim.z = 1; n++; }
    if (pdl) { a[n].id = cudaLaunchAttributeProgrammaticStreamSerialization; a[n].val.programmaticStreamSerializationAllowed = 1; n++; }
    c.numAttrs = (unsigned)n;
    return cudaLaunchKernelExC(&c, k, args);
}
static cudaError_t launch(const void *k, int grid, int threads, size_t smem, int cluster, int pdl, void *arg)
{
    void *args[1] = {arg};
    return launch_args(k, grid, threads, smem, cluster, pdl, args);
}

/* how many clusters of this launch run at once */
static int max_clusters(const void *k, int threads, size_t smem, int cluster)
{
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute a[1];
    c.gridDim = dim3((unsigned)cluster); c.blockDim = dim3((unsigned)threads); c.dynamicSmemBytes = smem; c.attrs = a; c.numAttrs = 1;
    a[0].id = cudaLaunchAttributeClusterDimension; a[0].val.clusterDim.x = (unsigned)cluster; a[0].val.clusterDim.y = a[0].val.clusterDim.z = 1;
    int n = 0;
    if (cudaOccupancyMaxActiveClusters(&n, k, &c) != cudaSuccess) { cudaGetLastError(); return 0; }
    return n;
}

/* ---- problems ---- */
enum { MAX_COPIES = 64 };
typedef struct {
    int m, n, k, copies, launches, ldsx, same; /* copies of W; launches of a graph */
    __nv_bfloat16 *xb, *y;      /* [m,k], [m,n] */
    uint8_t *x, *xc;            /* codes of xb, by row (scales sx) and by 1x128 (scales sxb) */
    uint8_t *w[MAX_COPIES];     /* [n,k] e4m3 */
    float *sx, *sw, *bias;      /* [m], [n], [n] or null */
    float *sxb, *swb;           /* [k/128][ldsx] and [n/128][k/128], both rounded up */
    uint8_t *q;                 /* [m,k], [m] or as sxb: for a quantizer that is timed */
    float *sq;
} problem;
__host__ __device__ static uint32_t mix(uint32_t v) { v ^= v >> 16; v *= 0x7feb352dU; v ^= v >> 15; v *= 0x846ca68bU; return v ^ (v >> 16); }
__device__ static float noise(size_t i, uint32_t seed)
{
    float s = 0;
    for (uint32_t j = 0; j < 4; j++) s += (float)mix((uint32_t)i * 4u + j + seed * 0x9e3779b9U) * (1.0f / 4294967296.0f);
    return (s - 2.0f) * 1.7f;
}
__global__ static void fill_e4m3(uint8_t *p, size_t n, uint32_t seed, int same)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) { const float v = noise(i, seed) * 100.0f; p[i] = __nv_fp8_e4m3(same ? fabsf(v) : v).__x; }
}
__global__ static void fill_bf16(__nv_bfloat16 *p, size_t n, uint32_t seed, int same)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) { const float v = noise(i, seed); p[i] = __float2bfloat16(same ? fabsf(v) : v); }
}
/* The plain quantizer: scale = amax / 448, code = value * (1 / scale), to nearest even. One warp a row (or a row's block of 128). */
__global__ static void quantize_plain(const __nv_bfloat16 *x, uint8_t *codes, float *scales, int M, int K, int ld, int block)
{
    const int id = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, kb = (K + 127) / 128;
    if (id >= (block ? M * kb : M)) return;
    const int m = block ? id / kb : id, g = block ? id % kb : 0, k0 = g * 128, k1 = block ? min(K, k0 + 128) : K;
    float amax = 0;
    for (int k = k0 + lane; k < k1; k += 32) amax = fmaxf(amax, fabsf(__bfloat162float(x[(size_t)m * K + k])));
    for (int o = 16; o; o /= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, o));
    const float s = amax / 448.0f, inverse = s > 0 ? 1.0f / s : 0;
    for (int k = k0 + lane; k < k1; k += 32) codes[(size_t)m * K + k] = __nv_fp8_e4m3(__bfloat162float(x[(size_t)m * K + k]) * inverse).__x;
    if (lane == 0) scales[block ? (size_t)g * ld + m : (size_t)m] = s;
}
__global__ static void fill_f32(float *p, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) p[i] = 0.001f + 0.001f * (float)(mix((uint32_t)i + seed) & 255) / 256.0f;
}
static void make_f32(float **p, size_t n, uint32_t seed) { CK(cudaMalloc((void **)p, n * 4)); fill_f32<<<264, 256, 0, g_stream>>>(*p, n, seed); }
static double roofline(int m, int n, int k) /* us: reads and writes once at 3.08 TB/s, products at 1450 T */
{
    return fmax(((double)m * k + (double)n * k + 2.0 * m * n) / 3.08e6, 2.0 * m * n * k / 1450e6);
}
static void problem_make(problem *p, int m, int n, int k, int biased, int same)
{
    memset(p, 0, sizeof *p);
    p->m = m; p->n = n; p->k = k; p->same = same; p->ldsx = (m + 3) / 4 * 4;
    const size_t nk = (size_t)n * (size_t)k, kb = (size_t)(k + 127) / 128;
    p->copies = (int)(8.0 * (double)g_l2 / (double)nk) + 1;
    if (p->copies > MAX_COPIES) p->copies = MAX_COPIES;
    if (biased) p->copies = 1;
    p->launches = p->copies * (roofline(m, n, k) < 60 ? (39 + p->copies) / p->copies : 1); /* the start of a graph must not count */
    const size_t mk = (size_t)m * (size_t)k;
    CK(cudaMalloc(&p->xb, mk * 2)); CK(cudaMalloc(&p->x, mk)); CK(cudaMalloc(&p->xc, mk)); CK(cudaMalloc(&p->q, mk)); CK(cudaMalloc(&p->y, (size_t)m * (size_t)n * 2));
    CK(cudaMalloc(&p->sx, (size_t)m * 4)); CK(cudaMalloc(&p->sxb, kb * (size_t)p->ldsx * 4));
    CK(cudaMalloc(&p->sq, kb * (size_t)p->ldsx * 4));
    CK(cudaMemsetAsync(p->sxb, 0, kb * (size_t)p->ldsx * 4, g_stream));
    fill_bf16<<<1056, 256, 0, g_stream>>>(p->xb, mk, 1, same);
    quantize_plain<<<(unsigned)(m + 7) / 8, 256, 0, g_stream>>>(p->xb, p->x, p->sx, m, k, 0, 0);
    quantize_plain<<<(unsigned)(((size_t)m * kb + 7) / 8), 256, 0, g_stream>>>(p->xb, p->xc, p->sxb, m, k, p->ldsx, 1);
    for (int c = 0; c < p->copies; c++) { CK(cudaMalloc(&p->w[c], nk)); fill_e4m3<<<1056, 256, 0, g_stream>>>(p->w[c], nk, 10 + (uint32_t)c, same); }
    make_f32(&p->sw, (size_t)n, 3); if (biased) make_f32(&p->bias, (size_t)n, 4);
    make_f32(&p->swb, kb * (size_t)((n + 127) / 128), 6);
    CK(cudaStreamSynchronize(g_stream));
}
static void problem_free(problem *p)
{
    for (int c = 0; c < p->copies; c++) CK(cudaFree(p->w[c]));
    CK(cudaFree(p->xb)); CK(cudaFree(p->x)); CK(cudaFree(p->xc)); CK(cudaFree(p->y)); CK(cudaFree(p->sx)); CK(cudaFree(p->sw)); CK(cudaFree(p->bias)); CK(cudaFree(p->q)); CK(cudaFree(p->sq)); CK(cudaFree(p->sxb)); CK(cudaFree(p->swb));
}
static void poison(problem *p)
{
    CK(cudaMemsetAsync(p->y, 0xFF, (size_t)p->m * (size_t)p->n * 2, g_stream));
    CK(cudaMemsetAsync(p->q, 0xFF, (size_t)p->m * (size_t)p->k, g_stream));
    CK(cudaMemsetAsync(p->sq, 0xFF, (size_t)((p->k + 127) / 128) * (size_t)p->ldsx * 4, g_stream));
}

/* ---- the reference: one warp per output, double accumulation; every output of small problems, else `samples` of them ---- */
__device__ static float e4m3_value(uint8_t c) { __nv_fp8_e4m3 v; v.__x = c; return (float)v; }
__global__ static void reference(const uint8_t *x, const uint8_t *w, const __nv_bfloat16 *y, const float *sx, const float *sw, const float *sxb, const float *swb, const float *bias, int M, int N, int K, int ldsx, int block, double tol, size_t samples, double *stats)
{
    const size_t id = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32, kb = (K + 127) / 128;
    if (id >= samples) return;
    size_t at = id;
    if (samples < (size_t)M * N) at = id == 0 ? (size_t)M * N - 1 : (((size_t)mix((uint32_t)id) << 20) ^ mix((uint32_t)id * 7u + 1u)) % ((size_t)M * N);
    const int m = (int)(at / (size_t)N), n = (int)(at % (size_t)N);
    double sum = 0, mag = 0;
    for (int k = lane; k < K; k += 32) {
        double v = (double)e4m3_value(x[(size_t)m * K + k]) * (double)e4m3_value(w[(size_t)n * K + k]);
        if (block) v *= (double)sxb[(size_t)(k / 128) * ldsx + m] * (double)swb[(size_t)(n / 128) * kb + k / 128];
        sum += v; mag += fabs(v);
    }
    for (int o = 16; o; o /= 2) { sum += __shfl_xor_sync(~0u, sum, o); mag += __shfl_xor_sync(~0u, mag, o); }
    if (lane) return;
    const double s = block ? 1.0 : (double)sx[m] * (double)sw[n], ref = sum * s + (bias ? (double)bias[n] : 0.0);
    const double err = fabs((double)__bfloat162float(y[at]) - ref), bound = tol * mag * s + fabs(ref) / 256 + 1e-30;
    atomicAdd(&stats[0], err * err); atomicAdd(&stats[1], ref * ref);
    if (!(err <= bound)) atomicAdd(&stats[2], 1.0);
}
__global__ static void count_nan(const uint16_t *y, size_t n, double *stats)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) if ((y[i] & 0x7FFF) > 0x7F80) atomicAdd(&stats[3], 1.0);
}
/* 1 when y is wrong. Every output: error <= tol * sum|a b| + |y| / 256 (bf16). tol: the tensor core aligns 32 products and the sum to the
 * largest and truncates toward zero at 13 bits. Promoted every 128: 1e-3 whatever K. Fast, one sign: the loss grows with K (1.2e-5
 * to 1.8e-5 a step of K seen), bound 2.5e-5 K; both signs: it mostly cancels, 1e-3 + 5e-7 K. Also the norm of the error. */
static int verify(const problem *p, int copy, const char *name, int block, int fast)
{
    const double tol = !fast ? 1e-3 : p->same ? 1e-3 + 2.5e-5 * p->k : 1e-3 + 5e-7 * p->k, limit = 1.0 / 256 + (fast && !p->same ? 4e-7 * p->k : tol);
    size_t all = (size_t)p->m * (size_t)p->n, samples = all <= 300000 ? all : 65536;
    CK(cudaStreamSynchronize(g_stream));
    memset(g_stats, 0, 64);
    reference<<<(unsigned)((samples + 7) / 8), 256, 0, g_stream>>>(block ? p->xc : p->x, p->w[copy], p->y, p->sx, p->sw, p->sxb, p->swb, p->bias, p->m, p->n, p->k, p->ldsx, block, tol, samples, g_stats);
    count_nan<<<264, 256, 0, g_stream>>>((const uint16_t *)p->y, all, g_stats);
    CK(cudaGetLastError()); CK(cudaStreamSynchronize(g_stream));
    const double e = sqrt(g_stats[0] / (g_stats[1] + 1e-300));
    const int wrong = !(e < limit) || g_stats[2] > 0 || g_stats[3] > 0;
    if (wrong) printf("%s %d %d %d %s%s: relative error %.2e, %.0f outputs over the bound, %.0f unwritten\n", wrong ? "WRONG" : "right", p->m, p->n, p->k, name, p->same ? " same-sign" : "", e, g_stats[2], g_stats[3]);
    return wrong;
}

/* ---- timing ---- */
enum { ROUNDS = 7, PEERS = 8 };
typedef struct { char name[32]; int acc, xin, model, launches, reps; cudaGraphExec_t g; float t[ROUNDS]; } series; /* model: the choice of the model */
static void series_begin(void) { CK(cudaStreamBeginCapture(g_stream, cudaStreamCaptureModeThreadLocal)); }
static series series_end(const char *name, int acc, int xin, int model, int launches)
{
    series s = {};
    cudaGraph_t g;
    CK(cudaStreamEndCapture(g_stream, &g));
    CK(cudaGraphInstantiate(&s.g, g, 0));
    CK(cudaGraphDestroy(g));
    snprintf(s.name, sizeof s.name, "%s", name);
    s.acc = acc; s.xin = xin; s.model = model; s.launches = launches;
    return s;
}
static float series_ms(series *s, int reps)
{
    static cudaEvent_t a, b;
    float ms;
    if (!a) { CK(cudaEventCreate(&a)); CK(cudaEventCreate(&b)); }
    CK(cudaEventRecord(a, g_stream));
    for (int i = 0; i < reps; i++) CK(cudaGraphLaunch(s->g, g_stream));
    CK(cudaEventRecord(b, g_stream)); CK(cudaEventSynchronize(b)); CK(cudaEventElapsedTime(&ms, a, b));
    return ms;
}
static void interleave(series *s, int n)
{
    for (int i = 0; i < n; i++) { series_ms(&s[i], 1); s[i].reps = (int)(2.5f / (series_ms(&s[i], 1) + 1e-3f)) + 1; }
    /* under the power cap a series profits from a frugal one before it, so every round has an order of its own */
    static uint32_t seed = 1;
    for (int r = 0; r < ROUNDS; r++) {
        int order[512];
        for (int i = 0; i < n; i++) {
            const int at = (int)(mix(seed++) % (uint32_t)(i + 1));
            order[i] = order[at]; order[at] = i;
        }
        for (int j = 0, i; j < n && (i = order[j], 1); j++) s[i].t[r] = series_ms(&s[i], s[i].reps) * 1e3f / (float)s[i].reps / (float)s[i].launches;
    }
}
static float median(const series *s)
{
    float t[ROUNDS];
    memcpy(t, s->t, sizeof t);
    for (int i = 1; i < ROUNDS; i++) for (int j = i; j > 0 && t[j] < t[j - 1]; j--) { float x = t[j]; t[j] = t[j - 1]; t[j - 1] = x; }
    return t[ROUNDS / 2];
}
/* CASE M N K name kind us roofline time/roofline peer_us peer/ours x model; the peer is the best of the same kind (0 fast, 1 promoted, 2 block);
 * x: 0 codes, 1 bf16 quantized inside, 2 by a kernel before; model: 1 where the model would choose this version */
static void report(const problem *p, series *s, int n)
{
    const double roof = roofline(p->m, p->n, p->k);
    float peer[3] = {0, 0, 0};
    for (int i = 0; i < n; i++) if (!strncmp(s[i].name, "lt_", 3)) { const float t = median(&s[i]); if (peer[s[i].acc] == 0 || t < peer[s[i].acc]) peer[s[i].acc] = t; }
    for (int i = 0; i < n; i++) {
        const float t = median(&s[i]), q = peer[s[i].acc];
        printf("CASE\t%d\t%d\t%d\t%s\t%d\t%.2f\t%.2f\t%.3f\t%.2f\t%.3f\t%d\t%d\n", p->m, p->n, p->k, s[i].name, s[i].acc, t, roof, t / roof, q, q / t, s[i].xin, s[i].model);
        cudaGraphExecDestroy(s[i].g);
    }
}

/* ---- cuBLASLt: up to 12 algorithms tried once each, the best two of every mode become series ---- */
typedef struct { const char *name; int acc, fast; cublasLtMatmulMatrixScale_t w, x; } lt_mode;
static int lt_series(const problem *p, const lt_mode *md, series *out)
{
    enum { ALGOS = 12, KEPT = 2 };
    cublasLtMatmulDesc_t d;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtMatmulPreference_t pref;
    cublasOperation_t tr = CUBLAS_OP_T, no = CUBLAS_OP_N;
    const int8_t fast = (int8_t)md->fast;
    const float *sw = md->acc == 2 ? p->swb : p->sw, *sx = md->acc == 2 ? p->sxb : p->sx;
    cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &tr, sizeof tr);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &no, sizeof no);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &md->w, sizeof md->w);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &md->x, sizeof md->x);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &sw, sizeof sw);
    cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &sx, sizeof sx);
    cublasLtMatrixLayoutCreate(&la, CUDA_R_8F_E4M3, (uint64_t)p->k, (uint64_t)p->n, p->k);
    cublasLtMatrixLayoutCreate(&lb, CUDA_R_8F_E4M3, (uint64_t)p->k, (uint64_t)p->m, p->k);
    cublasLtMatrixLayoutCreate(&lc, CUDA_R_16BF, (uint64_t)p->n, (uint64_t)p->m, p->n);
    cublasLtMatmulPreferenceCreate(&pref);
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE, sizeof WORKSPACE);
    cublasLtMatmulHeuristicResult_t h[ALGOS];
    const float one = 1, zero = 0;
    int found = 0, made = 0;
    float quick[ALGOS];
    if (cublasLtMatmulAlgoGetHeuristic(g_lt, d, la, lb, lc, lc, pref, ALGOS, h, &found) != CUBLAS_STATUS_SUCCESS) found = 0;
    cudaEvent_t e0, e1;
    CK(cudaEventCreate(&e0)); CK(cudaEventCreate(&e1));
    for (int a = 0; a < found; a++)
        for (int rep = 0; rep < 2; rep++) {
            int ok = 1;
            CK(cudaEventRecord(e0, g_stream));
            for (int c = 0; c < p->copies && ok; c++) ok = cublasLtMatmul(g_lt, d, &one, p->w[c], la, md->acc == 2 ? p->xc : p->x, lb, &zero, p->y, lc, p->y, lc, &h[a].algo, g_work, WORKSPACE, g_stream) == CUBLAS_STATUS_SUCCESS;
            CK(cudaEventRecord(e1, g_stream)); CK(cudaEventSynchronize(e1)); CK(cudaEventElapsedTime(&quick[a], e0, e1));
            if (!ok) quick[a] = 1e30f;
        }
    for (; made < KEPT && made < found; made++) {
        int pick = 0;
        for (int a = 1; a < found; a++) if (quick[a] < quick[pick]) pick = a;
        if (quick[pick] > 1e29f) break;
        quick[pick] = 1e30f;
        series_begin();
        for (int c = 0; c < p->launches; c++) cublasLtMatmul(g_lt, d, &one, p->w[c % p->copies], la, md->acc == 2 ? p->xc : p->x, lb, &zero, p->y, lc, p->y, lc, &h[pick].algo, g_work, WORKSPACE, g_stream);
        out[made] = series_end(md->name, md->acc, 0, 0, p->launches);
    }
    cudaEventDestroy(e0); cudaEventDestroy(e1);
    cublasLtMatmulPreferenceDestroy(pref);
    cublasLtMatrixLayoutDestroy(la); cublasLtMatrixLayoutDestroy(lb); cublasLtMatrixLayoutDestroy(lc);
    cublasLtMatmulDescDestroy(d);
    return made;
}
static int peers(const problem *p, series *out)
{
    static const lt_mode modes[] = {
        {"lt_tensor", 0, 1, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F},
        {"lt_outer", 0, 1, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F},
        {"lt_tensor_slow", 1, 0, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F},
        {"lt_block", 2, 0, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F}};
    int n = 0;
    for (int i = 0; i < 4 && !getenv("NOPEERS"); i++) n += lt_series(p, &modes[i], out + n);
    return n;
}
