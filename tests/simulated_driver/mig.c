/* MIG instances: `gpu N mig SLOT ...` lines of the scenario. */
#include <string.h>
#include "simulated_nvml.h"

u32 mig_mode(u32 gpu) { /* on when instances are scripted, unless the mode itself is */
    const struct gpu_script *g = scenario()->gpu[gpu];
    int any = 0;
    for (int i = 0; g && i < MAX_MIG; i++) any |= g->mig[i].exists;
    return (u32)real(gpu, V_mig_mode, any);
}

const struct mig_instance *mig_instance(u32 gpu, int slot) {
    const struct gpu_script *g = scenario()->gpu[gpu];
    if (!g || slot < 0 || slot >= MAX_MIG || !g->mig[slot].exists || !mig_mode(gpu)) return NULL;
    return &g->mig[slot];
}

int mig_answers(const char *function) { /* what an instance's handle can be asked */
    static const char *const functions[] = {
        "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetIndex", "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetBAR1MemoryInfo",
        "nvmlDeviceGetComputeMode", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceIsMigDeviceHandle",
        "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetAttributes",
        "nvmlDeviceGetAttributes_v2", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "nvmlDeviceGetPciInfo_v3", 0};
    for (int i = 0; functions[i]; i++)
        if (!strcmp(functions[i], function)) return 1;
    return strstr(function, "RunningProcesses") != NULL;
}

IMPL(nvmlDeviceGetMigMode, DEV, u32 *cur, u32 *pending) {
    const struct value *v = scripted(G, V_mig_mode);
    NEED(cur && pending);
    if (v->kind == AN_ERROR) return v->error;
    *cur = mig_mode(G);
    *pending = (u32)real(G, V_mig_mode_pending, *cur);
    return OK;
}
FIXED(nvmlDeviceGetMaxMigDeviceCount, u32, 7)
IMPL(nvmlDeviceGetMigDeviceHandleByIndex, DEV, u32 i, nvmlDevice_t *mig) {
    NEED(mig);
    if (!mig_instance(G, (int)i)) return NVML_ERROR_NOT_FOUND;
    *mig = &mig_devices[G][i];
    return OK;
}
IMPL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t mig, nvmlDevice_t *device) {
    if (!device || mig->mig < 0) return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[mig->index];
    return OK;
}

/* Everything below is asked of an instance's handle. */
#define INSTANCE(m) \
    const struct mig_instance *m = mig_instance(G, device->mig); \
    if (!m) return NVML_ERROR_NOT_SUPPORTED
IMPL(nvmlDeviceGetGpuInstanceId, DEV, u32 *id) { INSTANCE(m); NEED(id); *id = m->gi; return OK; }
IMPL(nvmlDeviceGetComputeInstanceId, DEV, u32 *id) { INSTANCE(m); NEED(id); *id = m->ci; return OK; }
static nvmlReturn_t attributes(nvmlDevice_t device, nvmlDeviceAttributes_t *a) {
    INSTANCE(m);
    NEED(a);
    u32 slices = 1;
    sscanf(m->profile, "%ug", &slices);
    *a = (nvmlDeviceAttributes_t){
        .multiprocessorCount = slices * 16, .sharedCopyEngineCount = slices, .sharedDecoderCount = slices,
        .gpuInstanceSliceCount = slices, .computeInstanceSliceCount = slices,
        .memorySizeMB = (m->memory_total.kind == SCRIPTED ? m->memory_total.whole : settings.memory / 7) / MIB};
    return OK;
}
IMPL(nvmlDeviceGetAttributes, DEV, nvmlDeviceAttributes_t *a) { return attributes(device, a); }
IMPL(nvmlDeviceGetAttributes_v2, DEV, nvmlDeviceAttributes_t *a) { return attributes(device, a); }
