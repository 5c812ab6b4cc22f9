/* Finding GPUs, and the facts about them that do not move. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <string.h>
#include "simulated_nvml.h"

nvmlReturn_t text(char *out, u32 room, const char *format, ...) {
    char buf[512];
    va_list ap;
    NEED(out);
    va_start(ap, format);
    vsnprintf(buf, sizeof buf, format, ap);
    va_end(ap);
    if (strlen(buf) + 1 > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, buf);
    return OK;
}
/* A text that a scenario may set. */
static nvmlReturn_t scripted_or(u32 gpu, int which, const char *automatic, char *out, u32 room) {
    nvmlReturn_t error;
    const char *s = scripted_text(gpu, which, &error);
    return error != OK ? error : text(out, room, "%s", s ? s : automatic);
}

/* ------------------------------------------------------------------------- the system */

IMPL(nvmlSystemGetDriverVersion, char *s, u32 n) {
    const char *driver = scenario()->driver;
    return text(s, n, "%s", *driver ? driver : settings.driver);
}
IMPL(nvmlSystemGetNVMLVersion, char *s, u32 n) {
    const struct scenario *now = scenario();
    return *now->nvml ? text(s, n, "%s", now->nvml)
                      : text(s, n, "13.%s", *now->driver ? now->driver : settings.driver);
}
IMPL(nvmlSystemGetCudaDriverVersion, int *v) { NEED(v); *v = scenario()->cuda; return OK; }
IMPL(nvmlSystemGetCudaDriverVersion_v2, int *v) { NEED(v); *v = scenario()->cuda; return OK; }
IMPL(nvmlSystemGetProcessName, u32 pid, char *s, u32 n) {
    char path[64], buf[1024] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "re");
    if (!f) return NVML_ERROR_NOT_FOUND;
    size_t got = fread(buf, 1, sizeof buf - 1, f); /* ends at the first NUL: argv[0] */
    fclose(f);
    if (!s || !n || !got) return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(s, n, "%s", buf);
    return OK;
}
IMPL(nvmlUnitGetCount, u32 *v) { NEED(v); *v = 0; return OK; }

/* -------------------------------------------------------------------- finding devices */

static u32 slots(void) { /* GPUs, those that are absent included */
    const struct scenario *s = scenario();
    return s->gpus >= 0 ? (u32)s->gpus : settings.gpus;
}
int gpu_exists(u32 gpu) { return gpu < slots() && !(int)real(gpu, V_absent, 0); }
u32 gpu_count(void) {
    u32 n = 0;
    for (u32 g = 0; g < slots(); g++) n += gpu_exists(g);
    return n;
}
static u32 index_of(u32 gpu) { /* what NVML numbers it: absent ones do not count */
    u32 n = 0;
    for (u32 g = 0; g < gpu; g++) n += gpu_exists(g);
    return n;
}

static nvmlReturn_t handle(u32 gpu, nvmlDevice_t *device) {
    nvmlReturn_t r = apply_faults(NULL, 0, (int)gpu); /* a lost GPU gives no handle */
    if (r == OK) *device = &devices[gpu];
    return r;
}
static nvmlReturn_t handle_of_index(u32 index, nvmlDevice_t *device) {
    NEED(device);
    for (u32 g = 0; g < slots(); g++)
        if (gpu_exists(g) && index-- == 0) return handle(g, device);
    return NVML_ERROR_INVALID_ARGUMENT;
}
static u32 bus_of(u32 g) { return 0x01 + g * 0x20 % 0x100 + g / 8; }
void bus_id_of(u32 g, char *s) {
    char automatic[32];
    sprintf(automatic, "%08X:%02X:00.0", 0, bus_of(g));
    if (scripted_or(g, T_bus_id, automatic, s, 32) != OK) strcpy(s, automatic);
}
void name_of(u32 g, char *s, size_t room) {
    if (scripted_or(g, T_name, settings.name, s, room) != OK) *s = 0;
}
static nvmlReturn_t uuid_of(u32 g, char *s, u32 room) {
    char automatic[64];
    sprintf(automatic, "GPU-fa4e%04x-0000-4000-8000-%012x", g, 0xabc000 + g);
    return scripted_or(g, T_uuid, automatic, s, room);
}
static nvmlReturn_t serial_of(u32 g, char *s, u32 room) {
    char automatic[32];
    sprintf(automatic, "15600000%05u", g);
    return scripted_or(g, T_serial, automatic, s, room);
}
static nvmlReturn_t any_bus_id_of(u32 g, char *s, u32 room) { return bus_id_of(g, s), OK; }

static nvmlReturn_t find(const char *want, nvmlReturn_t (*name)(u32, char *, u32), nvmlDevice_t *device) {
    char s[96];
    NEED(want && device);
    for (u32 g = 0; g < slots(); g++) {
        if (!gpu_exists(g) || name(g, s, sizeof s) != OK) continue;
        /* bus ids are also given with a 4-digit domain */
        if (!strcasecmp(s, want) || (name == any_bus_id_of && !strcasecmp(s + 4, want))) return handle(g, device);
    }
    return NVML_ERROR_NOT_FOUND;
}
static nvmlReturn_t find_uuid(const char *want, nvmlDevice_t *device) {
    NEED(want && device);
    if (strncmp(want, "MIG-", 4)) return find(want, uuid_of, device);
    for (u32 g = 0; g < slots(); g++)
        for (int m = 0; gpu_exists(g) && m < MAX_MIG; m++) {
            const struct mig_instance *i = mig_instance(g, m);
            if (i && !strcmp(i->uuid, want)) return *device = &mig_devices[g][m], OK;
        }
    return NVML_ERROR_NOT_FOUND;
}

IMPL(nvmlDeviceGetCount, u32 *v) { NEED(v); *v = gpu_count(); return OK; }
IMPL(nvmlDeviceGetCount_v2, u32 *v) { NEED(v); *v = gpu_count(); return OK; }
IMPL(nvmlDeviceGetHandleByIndex, u32 i, nvmlDevice_t *device) { return handle_of_index(i, device); }
IMPL(nvmlDeviceGetHandleByIndex_v2, u32 i, nvmlDevice_t *device) { return handle_of_index(i, device); }
IMPL(nvmlDeviceGetHandleByUUID, const char *s, nvmlDevice_t *device) { return find_uuid(s, device); }
IMPL(nvmlDeviceGetHandleByPciBusId, const char *s, nvmlDevice_t *device) { return find(s, any_bus_id_of, device); }
IMPL(nvmlDeviceGetHandleByPciBusId_v2, const char *s, nvmlDevice_t *device) { return find(s, any_bus_id_of, device); }
IMPL(nvmlDeviceGetHandleBySerial, const char *s, nvmlDevice_t *device) { return find(s, serial_of, device); }

/* --------------------------------------------------------------------- identity, facts */

IMPL(nvmlDeviceGetName, DEV, char *s, u32 n) {
    const struct mig_instance *m = device->mig >= 0 ? mig_instance(G, device->mig) : NULL;
    char name[256];
    if (!m) return scripted_or(G, T_name, settings.name, s, n);
    name_of(G, name, sizeof name);
    return text(s, n, "%s MIG %s", name, m->profile);
}
IMPL(nvmlDeviceGetUUID, DEV, char *s, u32 n) {
    const struct mig_instance *m = device->mig >= 0 ? mig_instance(G, device->mig) : NULL;
    if (m && *m->uuid) return text(s, n, "%s", m->uuid);
    if (m) return text(s, n, "MIG-fa4e%04x-%04x-5000-8000-%012x", G, device->mig, 0xabc000 + G);
    return uuid_of(G, s, n);
}
IMPL(nvmlDeviceGetSerial, DEV, char *s, u32 n) { return serial_of(G, s, n); }
IMPL(nvmlDeviceGetVbiosVersion, DEV, char *s, u32 n) { return scripted_or(G, T_vbios, "98.02.2E.00.01", s, n); }
IMPL(nvmlDeviceGetBoardPartNumber, DEV, char *s, u32 n) {
    return scripted_or(G, T_part_number, "900-00000-0000-000", s, n);
}
IMPL(nvmlDeviceGetInforomImageVersion, DEV, char *s, u32 n) { return text(s, n, "G153.0510.00.01"); }
FIXED(nvmlDeviceGetIndex, u32, device->mig >= 0 ? (u32)device->mig : index_of(G))
NUMBER(nvmlDeviceGetMinorNumber, u32, minor_number, G)
FIXED(nvmlDeviceGetModuleId, u32, G)
FIXED(nvmlDeviceGetBrand, nvmlBrandType_t, NVML_BRAND_NVIDIA_RTX)
NUMBER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, architecture,
       settings.gpm ? NVML_DEVICE_ARCH_HOPPER : NVML_DEVICE_ARCH_BLACKWELL)
FIXED(nvmlDeviceGetNumGpuCores, u32, 24064)
FIXED(nvmlDeviceGetMemoryBusWidth, u32, 512)
FIXED(nvmlDeviceGetIrqNum, u32, 120 + G)
FIXED(nvmlDeviceGetBoardId, u32, bus_of(G) << 8)
FIXED(nvmlDeviceGetMultiGpuBoard, u32, 0)
FIXED(nvmlDeviceGetBusType, nvmlBusType_t, NVML_BUS_TYPE_PCIE)
FIXED(nvmlDeviceGetPowerSource, nvmlPowerSource_t, NVML_POWER_SOURCE_AC)
FIXED(nvmlDeviceGetAdaptiveClockInfoStatus, u32, 1)
NUMBER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, persistence_mode, NVML_FEATURE_ENABLED)
FIXED(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
NUMBER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, display_active, NVML_FEATURE_DISABLED)
NUMBER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, compute_mode, NVML_COMPUTEMODE_DEFAULT)
NUMBER(nvmlDeviceGetAccountingMode, nvmlEnableState_t, accounting_mode, NVML_FEATURE_DISABLED)
FIXED(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, NVML_GPU_VIRTUALIZATION_MODE_NONE)
FIXED(nvmlDeviceIsMigDeviceHandle, u32, device->mig >= 0)
IMPL(nvmlDeviceGetNumaNodeId, DEV, u32 *v) { /* only for GPUs that are a NUMA node */
    u64 w = 0;
    NEED(v);
    if (scripted(G, V_numa_node)->kind == AUTOMATIC) return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t r = whole(G, V_numa_node, 0, &w);
    return *v = (u32)w, r;
}
IMPL(nvmlDeviceGetCudaComputeCapability, DEV, int *major, int *minor) {
    NEED(major && minor);
    *major = (int)real(G, V_compute_major, settings.gpm ? 9 : 12), *minor = (int)real(G, V_compute_minor, 0);
    return OK;
}

static nvmlReturn_t pci(u32 g, nvmlPciInfo_t *p) {
    NEED(p);
    memset(p, 0, sizeof *p);
    bus_id_of(g, p->busId);
    sscanf(p->busId, "%x:%x:%x", &p->domain, &p->bus, &p->device);
    p->pciDeviceId = 0x2BB110DE, p->pciSubSystemId = 0x204B10DE;
    strncpy(p->busIdLegacy, p->busId + 4, sizeof p->busIdLegacy - 1);
    return OK;
}
IMPL(nvmlDeviceGetPciInfo, DEV, nvmlPciInfo_t *p) { return pci(G, p); }
IMPL(nvmlDeviceGetPciInfo_v2, DEV, nvmlPciInfo_t *p) { return pci(G, p); }
IMPL(nvmlDeviceGetPciInfo_v3, DEV, nvmlPciInfo_t *p) { return pci(G, p); }

static nvmlReturn_t affinity(u32 g, u32 n, unsigned long *set) {
    for (u32 i = 0; i < n; i++) set[i] = i == 0 ? (g / 4 % 2 ? 0xffff0000UL : 0xffffUL) : 0;
    return OK;
}
IMPL(nvmlDeviceGetCpuAffinity, DEV, u32 n, unsigned long *set) { return affinity(G, n, set); }
IMPL(nvmlDeviceGetCpuAffinityWithinScope, DEV, u32 n, unsigned long *set, nvmlAffinityScope_t s) {
    return affinity(G, n, set);
}
IMPL(nvmlDeviceGetMemoryAffinity, DEV, u32 n, unsigned long *set, nvmlAffinityScope_t s) {
    for (u32 i = 0; i < n; i++) set[i] = i == 0 ? 1UL << G / 4 % 2 : 0;
    return OK;
}
static int valid_gpu(nvmlDevice_t d) { return d >= devices && d < devices + MAX_GPUS && gpu_exists(d->index); }
IMPL(nvmlDeviceGetTopologyCommonAncestor, DEV, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level) {
    if (!level || !valid_gpu(other)) return NVML_ERROR_INVALID_ARGUMENT;
    *level = other == device ? NVML_TOPOLOGY_INTERNAL
             : G / 4 == other->index / 4 ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
    return OK;
}
IMPL(nvmlDeviceGetP2PStatus, DEV, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t i, nvmlGpuP2PStatus_t *s) {
    if (!s || !valid_gpu(other)) return NVML_ERROR_INVALID_ARGUMENT;
    *s = i == NVML_P2P_CAPS_INDEX_NVLINK && !links_active(G) ? NVML_P2P_STATUS_NOT_SUPPORTED : NVML_P2P_STATUS_OK;
    return OK;
}

/* --------------------------------------------------------------------------------- ECC */

NUMBER(nvmlDeviceGetDefaultEccMode, nvmlEnableState_t, ecc_mode, NVML_FEATURE_ENABLED)
IMPL(nvmlDeviceGetEccMode, DEV, nvmlEnableState_t *cur, nvmlEnableState_t *pending) {
    u64 w = 0;
    NEED(cur && pending);
    nvmlReturn_t r = whole(G, V_ecc_mode, NVML_FEATURE_ENABLED, &w);
    *cur = *pending = (nvmlEnableState_t)w;
    return r;
}
static nvmlReturn_t ecc(u32 g, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, u64 *v) {
    NEED(v);
    int corrected = type == NVML_MEMORY_ERROR_TYPE_CORRECTED, lifetime = counter == NVML_AGGREGATE_ECC;
    return whole(g, lifetime ? (corrected ? V_ecc_corrected_aggregate : V_ecc_uncorrected_aggregate)
                             : (corrected ? V_ecc_corrected_volatile : V_ecc_uncorrected_volatile),
                 g == 2 && corrected ? 3 : 0, v);
}
IMPL(nvmlDeviceGetTotalEccErrors, DEV, nvmlMemoryErrorType_t type, nvmlEccCounterType_t c, u64 *v) {
    return ecc(G, type, c, v);
}
IMPL(nvmlDeviceGetMemoryErrorCounter, DEV, nvmlMemoryErrorType_t type, nvmlEccCounterType_t c,
     nvmlMemoryLocation_t where, u64 *v) {
    if (where == NVML_MEMORY_LOCATION_DRAM) return ecc(G, type, c, v);
    if (where != NVML_MEMORY_LOCATION_SRAM) return NVML_ERROR_NOT_SUPPORTED;
    *v = 0;
    return OK;
}
IMPL(nvmlDeviceGetRemappedRows, DEV, u32 *corr, u32 *unc, u32 *pending, u32 *failed) {
    u32 *out[] = {corr, unc, pending, failed};
    if (mig_mode(G)) return NVML_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < 4; i++) {
        u64 w = 0;
        NEED(out[i]);
        nvmlReturn_t r = whole(G, V_remapped_corrected + i, i == 0 && G == 2, &w);
        if (r != OK) return r;
        *out[i] = (u32)w;
    }
    return OK;
}
IMPL(nvmlDeviceGetRowRemapperHistogram, DEV, nvmlRowRemapperHistogramValues_t *v) {
    NEED(v);
    *v = (nvmlRowRemapperHistogramValues_t){.max = 192};
    return OK;
}
