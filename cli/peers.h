/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.h - other libraries that `fp8 bench linear` times beside ours, loaded when they are
 * installed: Y[M,N] = X[M,K] W[N,K]^T, no bias, in their own precision. */
#ifndef FP8_CLI_PEERS_H
#define FP8_CLI_PEERS_H

#include "cli/shapes.h"
#include "fp8.h"

#define CLI_PEER_TEXT 128

/* One multiplication, ready to be called again and again. */
typedef struct cli_peer_case {
    void *state;
    void (*call)(void *state);
    void (*free)(void *state);
} cli_peer_case;

typedef struct cli_peer {
    const char *name; /* "openblas-f32" */
    fp8_dtype dtype;  /* of X and W */
    /* Makes a case with its operands. false: no memory, or the library refuses. */
    bool (*make)(const struct cli_peer *peer, const cli_shape *shape, cli_peer_case *out);
    char missing[CLI_PEER_TEXT]; /* why it cannot be timed; empty if it can */
} cli_peer;

/* OpenBLAS and oneDNN in fp32 and bf16. */
#define CLI_PEER_COUNT 4

/* Loads what there is and has it use so many threads. The libraries stay loaded. */
void cli_peers_open(cli_peer peers[CLI_PEER_COUNT], int threads);

/* For the two files that do it: two peers each, fp32 and bf16. */
void cli_openblas_open(cli_peer peers[2], int threads);
void cli_onednn_open(cli_peer peers[2], int threads);

#endif
