/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_doctor.c - fp8 doctor: the library's lines "key: value" about build and machine, the GPUs,
 * the libraries of others that fp8 bench would use, and what the machine does when it is measured.
 */
#include "cli/cublaslt.h"
#include "cli/exit_code.h"
#include "cli/json_out.h"
#include "cli/nvml.h"
#include "cli/start.h"
#include "cli/verbs.h"

#include <string.h>

static void print_text(const fp8_context *ctx)
{
    const char *line;
    for (int64_t i = 0; (line = fp8_doctor(ctx, i)) != NULL; i++)
        puts(line);
}

static void print_json(cli_json *json, const fp8_context *ctx)
{
    const char *line;
    for (int64_t i = 0; (line = fp8_doctor(ctx, i)) != NULL; i++) {
        char key[64] = "";
        const char *colon = strstr(line, ": ");
        if (colon == NULL || (size_t)(colon - line) >= sizeof key)
            continue;
        memcpy(key, line, (size_t)(colon - line));
        cli_json_text(json, key, colon + 2);
    }
}

static void print_line(cli_json *json, const char *key, const char *text)
{
    if (json != NULL)
        cli_json_text(json, key, text);
    else
        printf("%s: %s\n", key, text);
}

/* What others have installed that `fp8 bench` times and reads beside ours. */
static void print_libraries(cli_json *json)
{
    char text[160];
    cli_nvml nvml;
    cli_cublaslt_installed(text, sizeof text);
    print_line(json, "cublaslt", text);
    cli_nvml_open(&nvml, NULL);
    snprintf(text, sizeof text, "driver %s", nvml.driver);
    print_line(json, "nvml", nvml.missing[0] ? nvml.missing : text);
    cli_nvml_close(&nvml);
}

static void print_gpu(cli_json *json, int64_t i, const fp8_gpu_info *gpu)
{
    char capability[16];
    snprintf(capability, sizeof capability, "%d.%d", gpu->capability / 10, gpu->capability % 10);
    if (json == NULL) {
        printf("cuda:%lld: %s, compute capability %s, %d multiprocessors, %.1f GiB; runs %s\n",
               (long long)i, gpu->name, capability, gpu->processors,
               (double)gpu->memory_bytes / (1 << 30), gpu->runs);
        return;
    }
    cli_json_begin(json, NULL, '{');
    cli_json_int(json, "index", i);
    cli_json_text(json, "name", gpu->name);
    cli_json_text(json, "capability", capability);
    cli_json_int(json, "multiprocessors", gpu->processors);
    cli_json_size(json, "memory_bytes", gpu->memory_bytes);
    cli_json_text(json, "runs", gpu->runs);
    cli_json_end(json, '}');
}

/* Without a driver or a GPU that is what the line says, and no failure. */
static fp8_status print_gpus(cli_json *json, fp8_error *err)
{
    fp8_gpu_info gpu;
    char version[32];
    int64_t i = 0;
    fp8_status status = fp8_gpu(i, &gpu, err);
    if (status == FP8_OK)
        snprintf(version, sizeof version, "CUDA %d.%d", gpu.driver_version / 1000,
                 gpu.driver_version % 1000 / 10);
    print_line(json, "cuda driver", status == FP8_OK ? version : err->msg);
    if (json != NULL)
        cli_json_begin(json, "gpus", '[');
    while (status == FP8_OK) {
        print_gpu(json, i, &gpu);
        status = fp8_gpu(++i, &gpu, err);
    }
    if (json != NULL)
        cli_json_end(json, ']');
    return i == 0 || status == FP8_E_NOT_FOUND ? FP8_OK : status;
}

/* device NULL: the CPU. */
static void print_peak(cli_json *json, const char *device, const fp8_peak *peak)
{
    if (json == NULL) {
        printf("peak %s%s%s: %.1f %s (%s)\n", device != NULL ? device : "",
               device != NULL ? " " : "", peak->name, peak->value, peak->unit, peak->what);
        return;
    }
    cli_json_begin(json, NULL, '{');
    if (device != NULL)
        cli_json_text(json, "device", device);
    cli_json_text(json, "name", peak->name);
    cli_json_text(json, "what", peak->what);
    cli_json_text(json, "unit", peak->unit);
    cli_json_real(json, "value", peak->value);
    cli_json_end(json, '}');
}

/* Measures and prints each peak of a context. */
static fp8_status measure_all(cli_json *json, const fp8_context *ctx, const char *device,
                              fp8_error *err)
{
    fp8_status status;
    fp8_peak peak;
    for (int64_t i = 0; (status = fp8_machine_peak(ctx, i, 0, &peak, err)) == FP8_OK; i++)
        print_peak(json, device, &peak);
    return status == FP8_E_NOT_FOUND ? FP8_OK : status;
}

/* The same for each GPU; what cannot be measured is a warning. */
static void measure_gpus(cli_json *json)
{
    fp8_gpu_info gpu;
    for (int32_t i = 0; fp8_gpu(i, &gpu, NULL) == FP8_OK; i++) {
        fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
        fp8_context *ctx;
        fp8_error err;
        char device[32];
        desc.device = FP8_DEVICE_CUDA;
        desc.device_index = i;
        snprintf(device, sizeof device, "cuda:%d", i);
        fp8_status status = fp8_context_create(&desc, &ctx, &err);
        if (status == FP8_OK)
            status = measure_all(json, ctx, device, &err);
        if (status != FP8_OK)
            cli_warning(err.msg);
        fp8_context_free(ctx);
    }
}

/* Measures and prints each peak; as JSON unless `json` is NULL. */
static fp8_status print_peaks(cli_json *json, const fp8_context *ctx, fp8_error *err)
{
    if (json != NULL)
        cli_json_begin(json, "peaks", '[');
    const fp8_status status = measure_all(json, ctx, NULL, err);
    if (status == FP8_OK)
        measure_gpus(json);
    if (json != NULL)
        cli_json_end(json, ']');
    return status;
}

static int print(const cli_args *args, const fp8_context *ctx)
{
    cli_json document = {.out = stdout};
    cli_json *json = args->json ? &document : NULL;
    fp8_status status;
    fp8_error err;
    if (json != NULL) {
        cli_json_begin(json, NULL, '{');
        print_json(json, ctx);
    } else {
        print_text(ctx);
    }
    status = print_gpus(json, &err);
    print_libraries(json);
    if (status == FP8_OK && args->peaks)
        status = print_peaks(json, ctx, &err);
    if (json != NULL && status != FP8_OK)
        cli_json_error(json, &err);
    if (json != NULL)
        cli_json_end(json, '}');
    return status == FP8_OK ? CLI_DONE : cli_fail(&err, 0, "");
}

int cli_run_doctor(const cli_args *args)
{
    fp8_context *ctx;
    int code = cli_context(args, &ctx);
    if (code == CLI_DONE)
        code = print(args, ctx);
    fp8_context_free(ctx);
    return code;
}
