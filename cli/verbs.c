/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs.c - the table of verbs. */
#include "cli/verbs.h"

#include <string.h>

#define SRC_TEXT "SRC is a directory, a model.safetensors.index.json or one .safetensors file.\n"
#define NAMES_TEXT \
    "fp8 schemes lists what --scheme, --numerics and --for take; man fp8 says more.\n"

static const cli_verb verbs[] = {
    {"quantize", CLI_QUANTIZE, "SRC -o DST", 1, 1, cli_run_quantize,
     "make an FP8 checkpoint from a bf16, f16 or f32 one",
     "Makes DST, an FP8 checkpoint, from SRC in bf16, f16 or f32. Linear weights are\n"
     "quantized; embeddings, heads, norms, routers and convolutions are kept.\n" SRC_TEXT
         NAMES_TEXT,
     "  fp8 quantize llama -o llama-fp8 --dry-run\n"
     "  fp8 quantize llama -o llama-fp8\n"
     "  fp8 verify llama-fp8 --against llama\n"
     "  fp8 quantize llama -o llama-fp8 --scheme ct-channel --keep '*.down_proj'\n",
     NULL},
    {"dequantize", CLI_DEQUANTIZE, "SRC -o DST", 1, 1, cli_run_dequantize,
     "make a bf16, f16 or f32 checkpoint from an FP8 one",
     "Makes DST, a checkpoint without FP8, from SRC in any FP8 scheme.\n" SRC_TEXT,
     "  fp8 dequantize deepseek-v3 -o deepseek-v3-bf16\n"
     "  fp8 dequantize llama-fp8 -o llama-f32 --dtype f32\n",
     NULL},
    {"convert", CLI_CONVERT, "SRC -o DST --scheme S", 1, 1, cli_run_convert,
     "change the scheme of an FP8 checkpoint",
     "Makes DST, an FP8 checkpoint in scheme S, from SRC in another. Where both have\n"
     "the same scale blocks nothing is computed and nothing is lost.\n" SRC_TEXT NAMES_TEXT,
     "  fp8 convert qwen3-fp8 -o qwen3-ct --scheme ct-block\n", NULL},
    {"inspect", CLI_INSPECT, "PATH", 1, 1, cli_run_inspect, "say what is in a checkpoint",
     "Checks the headers of PATH and prints files, scheme, totals and tensors. Reads\n"
     "no weights. PATH is a directory, an index.json or one .safetensors file.\n",
     "  fp8 inspect llama\n"
     "  fp8 inspect llama --json | jq '.tensors[].name'\n",
     NULL},
    {"verify", CLI_VERIFY, "DIR", 1, 1, cli_run_verify,
     "check an FP8 checkpoint, alone or against its source",
     "Checks files, index, scales and config of an FP8 checkpoint; with --against how\n"
     "near its weights are to their source; with --for what that engine will refuse.\n"
     "Exit code 1 if an error is found; warnings alone do not count.\n",
     "  fp8 verify llama-fp8 --against llama\n"
     "  fp8 verify llama-fp8 --for vllm --tp 8\n",
     NULL},
    {"diff", CLI_DIFF, "A B", 2, 2, cli_run_diff, "compare two checkpoints by their real values",
     "Compares A and B tensor by tensor, FP8 weights by the numbers they stand for.\n"
     "Exit code 1 if anything differs.\n",
     "  fp8 diff llama-fp8 llama-fp8-of-last-week\n", NULL},
    {"schemes", CLI_SCHEMES, "", 0, 0, cli_run_schemes, "list schemes, numerics and engines",
     "Lists what --scheme, --numerics and --for take, and who loads each scheme.\n",
     "  fp8 schemes\n", NULL},
    {"doctor", CLI_DOCTOR, "", 0, 0, cli_run_doctor, "say what this build and this machine can do",
     "Prints the version, the levels of instructions, the compiler and the threads:\n"
     "what a bug report should contain.\n",
     "  fp8 doctor\n"
     "  fp8 doctor --peaks\n",
     NULL},
    {"explain", CLI_EXPLAIN, "--shape MxNxK", 0, 0, cli_run_explain,
     "say which kernel a linear layer takes, and why",
     "For Y[M,N] = X[M,K] W[N,K]^T prints every kernel, which one a linear layer would\n"
     "run with on this processor or GPU, and what each other one lacks.\n",
     "  fp8 explain --shape 1x4096x14336\n"
     "  fp8 explain --shape 64x2112x7168 --scheme block --json\n"
     "  fp8 explain --shape 16x4096x4096 --device cuda\n",
     NULL},
    {"bench", CLI_BENCH, "linear|quantize", 1, 1, cli_run_bench,
     "time linear layers or quantizers on this machine",
     "Times fp8_linear_run or fp8_quantize, a line a case, with its share of what the\n"
     "machine can do and, where oneDNN, OpenBLAS or on a GPU cuBLASLt are installed,\n"
     "beside them.\n",
     "  fp8 bench linear --shape 1x4096x4096 --shape 64x4096x4096\n"
     "  fp8 bench linear --shapes llama3-8b.txt --m 1,16,64 --scheme block\n"
     "  fp8 bench quantize --scheme mxfp8 --json\n"
     "  fp8 bench linear --device cuda --shape 16x4096x4096\n",
     cli_bench_subject},
    {"tune", CLI_TUNE, "--device cuda -o FILE", 0, 0, cli_run_tune,
     "find the fastest kernels for some layers on this GPU",
     "Times, for each shape, every kernel that a linear layer could run with on a GPU,\n"
     "and writes the fastest into FILE, which explain, bench and contexts load.\n",
     "  fp8 tune --device cuda --shapes llama3-8b.txt --m 1,16,64,256 -o h200.tuned\n"
     "  fp8 explain --device cuda --shape 16x4096x4096 --tuned h200.tuned\n",
     NULL},
};

const cli_verb *cli_verb_at(int64_t i)
{
    return i >= 0 && i < (int64_t)(sizeof verbs / sizeof verbs[0]) ? &verbs[i] : NULL;
}

const char *cli_verb_name(int64_t i)
{
    const cli_verb *verb = cli_verb_at(i);
    return verb != NULL ? verb->name : NULL;
}

const cli_verb *cli_verb_find(const char *name)
{
    const cli_verb *verb;
    for (int64_t i = 0; (verb = cli_verb_at(i)) != NULL; i++) {
        if (strcmp(verb->name, name) == 0)
            return verb;
    }
    return NULL;
}
