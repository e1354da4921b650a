/* Stands for NVIDIA's management library where there is no GPU: two GPUs, the second of which may be divided (MIG).

The file that the variable NVML_STAND_IN names has words: "slow" (each call computes for 5 ms), "hang" (the use of a GPU
takes a minute), "lost" (the second GPU is lost), "xid" (the first GPU reports fault 79, once; with "xid=31", fault 31), "mig" (the second GPU is
divided into two), "training" (use, memory, power and temperature as of a GPU that trains, for pictures). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15 };
struct device { const char *uuid; int index; int part; };
static struct device devices[] = {
    {"GPU-11111111-aaaa-bbbb-cccc-000000000000", 0, 0},
    {"GPU-22222222-aaaa-bbbb-cccc-000000000000", 1, 0},
    {"MIG-33333333-aaaa-bbbb-cccc-000000000000", 1, 1},
    {"MIG-44444444-aaaa-bbbb-cccc-000000000000", 1, 2},
};
static int faults;

static int has(const char *word) {
    char words[256] = "";
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        if (!fgets(words, sizeof words, file)) words[0] = 0;
        fclose(file);
    }
    return strstr(words, word) != NULL;
}

static int number(const char *name, int otherwise) {
    char words[256] = "", *found;
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        if (!fgets(words, sizeof words, file)) words[0] = 0;
        fclose(file);
    }
    found = strstr(words, name);
    return found && found[strlen(name)] == '=' ? atoi(found + strlen(name) + 1) : otherwise;
}

/* A number from ``low`` that changes every eight seconds; another one on each GPU and in each process. */
static unsigned varied(struct device *device, unsigned low, unsigned range) {
    return low + (time(NULL) / 8 * 37 + 11 * device->index + 7 * getpid()) % range;
}

static int look_at(struct device *device) {
    if (has("slow")) {
        struct timespec start, now;
        clock_gettime(CLOCK_MONOTONIC, &start);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - start.tv_sec) * 1e9 + (now.tv_nsec - start.tv_nsec) < 5e6);
    }
    return device->index == 1 && has("lost") ? LOST : OK;
}

static int whole(struct device *device) {
    int code = look_at(device);
    return code ? code : device->index == 1 && has("mig") ? NOT_SUPPORTED : OK;
}

int nvmlInit_v2(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device) {
    if (index > 1) return NOT_FOUND;
    *device = &devices[index];
    return OK;
}
int nvmlDeviceGetUUID(struct device *device, char *text, unsigned size) {
    snprintf(text, size, "%s", device->uuid);
    return OK;
}
int nvmlDeviceGetMigMode(struct device *device, unsigned *mode, unsigned *pending) {
    *mode = *pending = device->index == 1 && has("mig");
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count) { *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **part) {
    if (index > 1) return NOT_FOUND;
    *part = &devices[2 + index];
    return OK;
}
int nvmlDeviceGetUtilizationRates(struct device *device, unsigned rates[2]) {
    if (has("hang")) sleep(60);
    rates[0] = has("training") ? varied(device, 82, 16) : 90 + device->index;
    rates[1] = 50;
    return whole(device);
}
int nvmlDeviceGetMemoryInfo(struct device *device, unsigned long long sizes[3]) {
    sizes[0] = 80ULL << 30;
    sizes[2] = (device->part ? 5ULL : has("training") ? 51ULL : 70ULL) << 30;
    sizes[1] = sizes[0] - sizes[2];
    return look_at(device);
}
int nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts) {
    *milliwatts = has("training") ? 1000 * varied(device, 560, 90) : 650500;
    return whole(device);
}
int nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *degrees) {
    *degrees = has("training") ? varied(device, 61, 9) : 71;
    return whole(device);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device, unsigned long long *reasons) {
    *reasons = device->index || has("training") ? 0x1 : 0x24; /* idle; the limits of power and of temperature */
    return whole(device);
}
int nvmlDeviceGetTotalEccErrors(struct device *device, int type, int counter, unsigned long long *count) {
    *count = 0;
    return device->index ? NOT_SUPPORTED : OK; /* as without ECC */
}
int nvmlEventSetCreate(void **set) { *set = &faults; return OK; }
int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, void *set) { return types == 8 ? OK : NOT_SUPPORTED; }
int nvmlEventSetWait_v2(void *set, struct { struct device *device; unsigned long long type, data; unsigned a, b; } *event, unsigned wait) {
    if (wait || faults || !has("xid")) return TIMEOUT;
    faults = 1;
    event->device = &devices[0];
    event->type = 8;
    event->data = number("xid", 79);
    return OK;
}
/* It stalls the driver: nothing may call it. */
int nvmlDeviceGetComputeRunningProcesses_v3(void) { abort(); }
