/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.c - the list of peers. */
#include "cli/peers.h"

void cli_peers_open(cli_peer peers[CLI_PEER_COUNT], int threads)
{
    cli_openblas_open(peers, threads);
    cli_onednn_open(peers + 2, threads);
}
