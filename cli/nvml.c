/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c - the few functions of NVML that are used, by their exported names. */
#include "cli/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LIBRARY "libnvidia-ml.so.1"
enum { CLOCK_SM = 1 };

typedef unsigned int plain_fn(void);
typedef unsigned int version_fn(char *text, unsigned int bytes);
typedef unsigned int find_fn(const char *pci, void **device);
typedef unsigned int number_fn(void *device, unsigned int *value);
typedef unsigned int clock_fn(void *device, unsigned int which, unsigned int *mhz);

#define LOOK_UP(library, type, name) ((type *)(uintptr_t)dlsym(library, name))

/* The device at `pci`, and what is read of it. */
static void find_device(cli_nvml *nvml, void *library, const char *pci)
{
    find_fn *find = LOOK_UP(library, find_fn, "nvmlDeviceGetHandleByPciBusId_v2");
    number_fn *limit = LOOK_UP(library, number_fn, "nvmlDeviceGetEnforcedPowerLimit");
    unsigned int milliwatts;
    nvml->clock = LOOK_UP(library, clock_fn, "nvmlDeviceGetClockInfo");
    nvml->power = LOOK_UP(library, number_fn, "nvmlDeviceGetPowerUsage");
    if (find == NULL || nvml->clock == NULL || nvml->power == NULL ||
        find(pci, &nvml->device) != 0) {
        nvml->device = NULL;
        snprintf(nvml->missing, sizeof nvml->missing, LIBRARY " knows no GPU at %s", pci);
    } else if (limit != NULL && limit(nvml->device, &milliwatts) == 0) {
        nvml->power_limit_w = milliwatts * 1e-3;
    }
}

void cli_nvml_open(cli_nvml *nvml, const char *pci)
{
    *nvml = (cli_nvml){0};
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    plain_fn *init = library != NULL ? LOOK_UP(library, plain_fn, "nvmlInit_v2") : NULL;
    plain_fn *shutdown = library != NULL ? LOOK_UP(library, plain_fn, "nvmlShutdown") : NULL;
    if (library == NULL)
        snprintf(nvml->missing, sizeof nvml->missing, LIBRARY " is not installed");
    else if (init == NULL || shutdown == NULL || init() != 0)
        snprintf(nvml->missing, sizeof nvml->missing, LIBRARY " does not start");
    if (nvml->missing[0] != 0)
        return;
    version_fn *version = LOOK_UP(library, version_fn, "nvmlSystemGetDriverVersion");
    nvml->shutdown = shutdown;
    if (version == NULL || version(nvml->driver, sizeof nvml->driver) != 0)
        nvml->driver[0] = 0;
    if (pci != NULL)
        find_device(nvml, library, pci);
}

bool cli_nvml_read(const cli_nvml *nvml, cli_nvml_state *state)
{
    unsigned int mhz, milliwatts;
    if (nvml->device == NULL || nvml->clock(nvml->device, CLOCK_SM, &mhz) != 0 ||
        nvml->power(nvml->device, &milliwatts) != 0)
        return false;
    *state = (cli_nvml_state){mhz, milliwatts * 1e-3};
    return true;
}

void cli_nvml_close(cli_nvml *nvml)
{
    if (nvml->shutdown != NULL)
        nvml->shutdown();
    *nvml = (cli_nvml){0};
}
