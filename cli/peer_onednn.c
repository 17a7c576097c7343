/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_onednn.c - oneDNN's matmul through its C interface, versions 2 and 3, which differ in how a
 * layout is described. Weights are brought into the layout that the library likes best before they
 * are timed, as an inference engine would. */
#include "cli/bench_data.h"
#include "cli/peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Values of the library's enumerations. */
enum {
    ENGINE_CPU = 1,
    STREAM_IN_ORDER = 1,
    DATA_BF16 = 2,
    DATA_F32 = 3,
    TAG_ANY = 1,
    QUERY_WEIGHTS = 131,
    ARG_SRC = 1,
    ARG_DST = 17,
    ARG_WEIGHTS = 33,
    MOST_DIMS = 12,
    LAYOUT_BYTES = 8192, /* more than version 2's structures of layouts and operations have */
};

typedef struct argument {
    int role;
    void *memory;
} argument;

/* The functions. A layout is a structure in version 2, a handle in version 3: a pointer in both. */
static struct {
    int version;
    int (*engine_create)(void **engine, int kind, size_t index);
    int (*stream_create)(void **stream, void *engine, unsigned flags);
    int (*stream_wait)(void *stream);
    int (*init_by_strides)(void *layout, int n, const int64_t *dims, int data,
                           const int64_t *strides);
    int (*init_by_tag)(void *layout, int n, const int64_t *dims, int data, int tag);
    int (*matmul_init)(void *op, const void *src, const void *w, const void *bias, const void *dst);
    int (*create_op)(void **pd, const void *op, const void *attr, void *engine, const void *hint);
    int (*create_with_strides)(void **layout, int n, const int64_t *dims, int data,
                               const int64_t *strides);
    int (*create_with_tag)(void **layout, int n, const int64_t *dims, int data, int tag);
    int (*matmul_create)(void **pd, void *engine, const void *src, const void *w, const void *bias,
                         const void *dst, const void *attr);
    int (*layout_destroy)(void *layout);
    const void *(*query_layout)(const void *pd, int what, int index);
    size_t (*layout_bytes)(const void *layout);
    int (*memory_create)(void **memory, const void *layout, void *engine, void *data);
    int (*memory_destroy)(void *memory);
    int (*reorder_create)(void **pd, const void *from, void *from_engine, const void *to,
                          void *to_engine, const void *attr);
    int (*primitive_create)(void **primitive, const void *pd);
    int (*primitive_destroy)(void *primitive);
    int (*primitive_desc_destroy)(void *pd);
    int (*execute)(const void *primitive, void *stream, int n, const argument *arguments);
    void *engine, *stream;
} onednn;

/* Which symbol goes where, and which version has it (0: both). */
static const struct {
    const char *name;
    size_t field;
    int version;
} symbols[] = {
#define SYMBOL(field, name, version)                       \
    {                                                      \
        name, offsetof(__typeof__(onednn), field), version \
    }
    SYMBOL(engine_create, "dnnl_engine_create", 0),
    SYMBOL(stream_create, "dnnl_stream_create", 0),
    SYMBOL(stream_wait, "dnnl_stream_wait", 0),
    SYMBOL(init_by_strides, "dnnl_memory_desc_init_by_strides", 2),
    SYMBOL(init_by_tag, "dnnl_memory_desc_init_by_tag", 2),
    SYMBOL(matmul_init, "dnnl_matmul_desc_init", 2),
    SYMBOL(create_op, "dnnl_primitive_desc_create", 2),
    SYMBOL(create_with_strides, "dnnl_memory_desc_create_with_strides", 3),
    SYMBOL(create_with_tag, "dnnl_memory_desc_create_with_tag", 3),
    SYMBOL(matmul_create, "dnnl_matmul_primitive_desc_create", 3),
    SYMBOL(layout_destroy, "dnnl_memory_desc_destroy", 3),
    SYMBOL(query_layout, "dnnl_primitive_desc_query_md", 0),
    SYMBOL(layout_bytes, "dnnl_memory_desc_get_size", 0),
    SYMBOL(memory_create, "dnnl_memory_create", 0),
    SYMBOL(memory_destroy, "dnnl_memory_destroy", 0),
    SYMBOL(reorder_create, "dnnl_reorder_primitive_desc_create", 0),
    SYMBOL(primitive_create, "dnnl_primitive_create", 0),
    SYMBOL(primitive_destroy, "dnnl_primitive_destroy", 0),
    SYMBOL(primitive_desc_destroy, "dnnl_primitive_desc_destroy", 0),
    SYMBOL(execute, "dnnl_primitive_execute", 0),
#undef SYMBOL
};

/* A layout [dims] of a dtype, with strides or (NULL) as the library likes; NULL if it refuses. */
static void *layout_new(const int64_t dims[MOST_DIMS], int data, const int64_t *strides)
{
    void *layout = NULL;
    int status;
    if (onednn.version == 3) {
        status = strides ? onednn.create_with_strides(&layout, 2, dims, data, strides)
                         : onednn.create_with_tag(&layout, 2, dims, data, TAG_ANY);
        return status == 0 ? layout : NULL;
    }
    layout = calloc(1, LAYOUT_BYTES);
    if (layout == NULL)
        return NULL;
    status = strides ? onednn.init_by_strides(layout, 2, dims, data, strides)
                     : onednn.init_by_tag(layout, 2, dims, data, TAG_ANY);
    if (status == 0)
        return layout;
    free(layout);
    return NULL;
}

static void layout_free(void *layout)
{
    if (onednn.version == 2)
        free(layout);
    else if (layout != NULL)
        onednn.layout_destroy(layout);
}

/* The description of dst = src w. */
static void *matmul_desc(const void *src, const void *w, const void *dst)
{
    void *pd = NULL;
    if (onednn.version == 3)
        return onednn.matmul_create(&pd, onednn.engine, src, w, NULL, dst, NULL) == 0 ? pd : NULL;
    void *op = calloc(1, LAYOUT_BYTES);
    if (op == NULL || onednn.matmul_init(op, src, w, NULL, dst) != 0 ||
        onednn.create_op(&pd, op, NULL, onednn.engine, NULL) != 0)
        pd = NULL;
    free(op);
    return pd;
}

typedef struct dnnl_case {
    fp8_tensor x, y;
    void *data[CLI_MOST_COPIES];          /* of the weights */
    void *w[CLI_MOST_COPIES], *src, *dst; /* their memory objects */
    void *pd, *primitive;
    int copies, next;
} dnnl_case;

static void call(void *state)
{
    dnnl_case *c = state;
    const argument arguments[] = {
        {ARG_SRC, c->src}, {ARG_WEIGHTS, c->w[c->next]}, {ARG_DST, c->dst}};
    c->next = (c->next + 1) % c->copies;
    onednn.execute(c->primitive, onednn.stream, 3, arguments);
    onednn.stream_wait(onednn.stream);
}

static void release(void *state)
{
    dnnl_case *c = state;
    void *const memories[] = {c->src, c->dst};
    for (int i = 0; i < 2; i++)
        if (memories[i] != NULL)
            onednn.memory_destroy(memories[i]);
    for (int i = 0; i < c->copies; i++) {
        if (c->w[i] != NULL)
            onednn.memory_destroy(c->w[i]);
        free(c->data[i]);
    }
    if (c->primitive != NULL)
        onednn.primitive_destroy(c->primitive);
    if (c->pd != NULL)
        onednn.primitive_desc_destroy(c->pd);
    free(c->x.data);
    free(c->y.data);
    free(c);
}

static bool reorder(const void *from, void *from_memory, const void *to, void *to_memory)
{
    void *pd = NULL, *primitive = NULL;
    const argument arguments[] = {{ARG_SRC, from_memory}, {ARG_DST, to_memory}};
    bool good = onednn.reorder_create(&pd, from, onednn.engine, to, onednn.engine, NULL) == 0 &&
                onednn.primitive_create(&primitive, pd) == 0 &&
                onednn.execute(primitive, onednn.stream, 2, arguments) == 0 &&
                onednn.stream_wait(onednn.stream) == 0;
    if (primitive != NULL)
        onednn.primitive_destroy(primitive);
    if (pd != NULL)
        onednn.primitive_desc_destroy(pd);
    return good;
}

/* The weight [n,k], as columns of W^T, in copies of the layout that the description wants. */
static bool make_weights(dnnl_case *c, const cli_shape *s, fp8_dtype dtype, const void *plain)
{
    bool cold, good;
    void *memory = NULL;
    const void *layout = onednn.query_layout(c->pd, QUERY_WEIGHTS, 0);
    const double bytes = (double)s->n * (double)s->k * fp8_dtype_bits(dtype) / 8;
    const size_t size = (onednn.layout_bytes(layout) + 63) / 64 * 64;
    fp8_tensor w = cli_bench_matrix(dtype, s->n, s->k);
    good = w.data != NULL && onednn.memory_create(&memory, plain, onednn.engine, w.data) == 0;
    for (int copies = cli_bench_copies(s->m, bytes, &cold); good && c->copies < copies;) {
        void **data = &c->data[c->copies], **copy = &c->w[c->copies];
        c->copies++;
        *data = aligned_alloc(64, size);
        good = *data != NULL && onednn.memory_create(copy, layout, onednn.engine, *data) == 0 &&
               reorder(plain, memory, layout, *copy);
    }
    if (memory != NULL)
        onednn.memory_destroy(memory);
    free(w.data);
    return good;
}

static bool fill_case(dnnl_case *c, const cli_shape *s, fp8_dtype dtype, void *const layouts[4])
{
    if (layouts[0] == NULL || layouts[1] == NULL || layouts[2] == NULL || layouts[3] == NULL)
        return false;
    c->x = cli_bench_matrix(dtype, s->m, s->k);
    c->y = cli_bench_matrix(dtype, s->m, s->n);
    c->pd = matmul_desc(layouts[0], layouts[2], layouts[3]);
    return c->x.data != NULL && c->y.data != NULL && c->pd != NULL &&
           onednn.primitive_create(&c->primitive, c->pd) == 0 &&
           onednn.memory_create(&c->src, layouts[0], onednn.engine, c->x.data) == 0 &&
           onednn.memory_create(&c->dst, layouts[3], onednn.engine, c->y.data) == 0 &&
           make_weights(c, s, dtype, layouts[1]);
}

static bool make(const cli_peer *peer, const cli_shape *s, cli_peer_case *out)
{
    const int data = peer->dtype == FP8_BF16 ? DATA_BF16 : DATA_F32;
    const int64_t src[MOST_DIMS] = {s->m, s->k}, w[MOST_DIMS] = {s->k, s->n};
    const int64_t dst[MOST_DIMS] = {s->m, s->n};
    const int64_t by_k[MOST_DIMS] = {s->k, 1}, by_n[MOST_DIMS] = {s->n, 1};
    const int64_t columns[MOST_DIMS] = {1, s->k};
    if (s->m == 0 || s->n == 0 || s->k == 0)
        return false;
    dnnl_case *c = calloc(1, sizeof *c);
    void *layouts[] = {layout_new(src, data, by_k), layout_new(w, data, columns),
                       layout_new(w, data, NULL), layout_new(dst, data, by_n)};
    const bool good = c != NULL && fill_case(c, s, peer->dtype, layouts);
    for (int i = 0; i < 4; i++)
        layout_free(layouts[i]);
    if (good)
        *out = (cli_peer_case){c, call, release};
    else if (c != NULL)
        release(c);
    return good;
}

/* The library, all its functions looked up; an error in `missing`. */
static bool load(char missing[CLI_PEER_TEXT])
{
    void *library = dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL);
    onednn.version = library != NULL ? 3 : 2;
    if (library == NULL)
        library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(missing, CLI_PEER_TEXT, "libdnnl.so.3 (or .2) is not installed");
        return false;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        *(void **)(void *)((char *)&onednn + symbols[i].field) = symbol;
        if (symbol == NULL && (symbols[i].version == 0 || symbols[i].version == onednn.version)) {
            snprintf(missing, CLI_PEER_TEXT, "libdnnl has no %s", symbols[i].name);
            return false;
        }
    }
    if (onednn.engine_create(&onednn.engine, ENGINE_CPU, 0) == 0 &&
        onednn.stream_create(&onednn.stream, onednn.engine, STREAM_IN_ORDER) == 0)
        return true;
    snprintf(missing, CLI_PEER_TEXT, "libdnnl has no engine for this processor");
    return false;
}

void cli_onednn_open(cli_peer peers[2], int threads)
{
    char missing[CLI_PEER_TEXT] = "";
    peers[0] = (cli_peer){"onednn-f32", FP8_F32, make, ""};
    peers[1] = (cli_peer){"onednn-bf16", FP8_BF16, make, ""};
    if (!load(missing))
        for (int i = 0; i < 2; i++)
            snprintf(peers[i].missing, CLI_PEER_TEXT, "%s", missing);
    void (*set_threads)(int) = (void (*)(int))(uintptr_t)dlsym(NULL, "omp_set_num_threads");
    if (set_threads != NULL)
        set_threads(threads);
}
