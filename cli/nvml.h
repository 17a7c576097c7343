/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.h - clock and power of a GPU while it is timed, by NVIDIA's management library, which comes
 * with the driver and is loaded at run time. Without it nothing is known. */
#ifndef FP8_CLI_NVML_H
#define FP8_CLI_NVML_H

#include <stdbool.h>

#define CLI_NVML_TEXT 160

typedef struct cli_nvml {
    void *device; /* NULL: nothing is known */
    unsigned int (*clock)(void *device, unsigned int which, unsigned int *mhz);
    unsigned int (*power)(void *device, unsigned int *milliwatts);
    unsigned int (*shutdown)(void);
    double power_limit_w;        /* 0: not known */
    char driver[80];             /* "580.159.04" */
    char missing[CLI_NVML_TEXT]; /* why nothing is known; empty if it is */
} cli_nvml;

typedef struct cli_nvml_state {
    double clock_mhz, power_w; /* of the multiprocessors; of the board */
} cli_nvml_state;

/* `pci` names a GPU as cuDeviceGetPCIBusId does; NULL: the driver's version alone is asked. */
void cli_nvml_open(cli_nvml *nvml, const char *pci);
/* false: not known. */
bool cli_nvml_read(const cli_nvml *nvml, cli_nvml_state *state);
void cli_nvml_close(cli_nvml *nvml);

#endif
