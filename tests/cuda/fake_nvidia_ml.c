/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_nvidia_ml.c - a libnvidia-ml.so.1 that knows GPUs at any place: 1755 MHz and 412 W. */
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT unsigned int nvmlInit_v2(void);
EXPORT unsigned int nvmlShutdown(void);
EXPORT unsigned int nvmlSystemGetDriverVersion(char *text, unsigned int bytes);
EXPORT unsigned int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device);
EXPORT unsigned int nvmlDeviceGetClockInfo(void *device, unsigned int which, unsigned int *mhz);
EXPORT unsigned int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts);
EXPORT unsigned int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned int *milliwatts);

enum { INVALID = 2 };
static char gpu;

EXPORT unsigned int nvmlInit_v2(void)
{
    return 0;
}

EXPORT unsigned int nvmlShutdown(void)
{
    return 0;
}

EXPORT unsigned int nvmlSystemGetDriverVersion(char *text, unsigned int bytes)
{
    strncpy(text, "999.1", bytes);
    return 0;
}

EXPORT unsigned int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device)
{
    *device = &gpu;
    return strlen(pci) == strlen("0000:00:00.0") ? 0 : INVALID;
}

EXPORT unsigned int nvmlDeviceGetClockInfo(void *device, unsigned int which, unsigned int *mhz)
{
    *mhz = 1755;
    return device == &gpu && which == 1 ? 0 : INVALID;
}

EXPORT unsigned int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts)
{
    *milliwatts = 412000;
    return device == &gpu ? 0 : INVALID;
}

EXPORT unsigned int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned int *milliwatts)
{
    *milliwatts = 700000;
    return device == &gpu ? 0 : INVALID;
}
