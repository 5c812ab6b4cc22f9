/* Field values, and the byte counters of PCIe and NVLink behind them. */
#include <pthread.h>
#include "simulated_nvml.h"

/* Bytes per second now: what the scenario says, else automatic (NVLink: nothing). */
double counter_rate(u32 gpu, int which, double t) {
    static const int numbers[] = {V_pcie_tx_rate, V_pcie_rx_rate, V_nvlink_tx_rate, V_nvlink_rx_rate};
    double automatic = which == PCIE_TX || which == PCIE_RX ? auto_pcie_rate(gpu, t, which == PCIE_RX) : 0;
    return real(gpu, numbers[which], automatic);
}

/* Bytes so far. A scripted rate is integrated from look to look, so a change of it bends the counter
 * and never makes it jump. */
static u64 counter_bytes(u32 gpu, int which, double t) {
    static struct { double bytes, at, rate; } kept[MAX_GPUS][COUNTERS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int number = which == PCIE_TX ? V_pcie_tx_rate : which == PCIE_RX ? V_pcie_rx_rate : -1;
    if (number >= 0 && scripted(gpu, number)->kind != SCRIPTED) return auto_pcie_bytes(gpu, t, which == PCIE_RX);
    pthread_mutex_lock(&lock);
    double now = mono_ns() / 1e9;
    if (kept[gpu][which].at > 0) kept[gpu][which].bytes += kept[gpu][which].rate * (now - kept[gpu][which].at);
    kept[gpu][which].rate = counter_rate(gpu, which, t);
    kept[gpu][which].at = now;
    u64 bytes = (u64)kept[gpu][which].bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* ------------------------------------------------------------------------------ NVLink */

static u32 link_count(u32 g) {
    u32 n = (u32)real(g, V_nvlink_links, 0);
    return n > 32 ? 32 : n;
}
static u32 link_mask(u32 g) {
    u32 all = link_count(g) == 32 ? NO_ID : (1u << link_count(g)) - 1;
    return (u32)real(g, V_nvlink_active, all) & all;
}
u32 links_active(u32 g) { return (u32)__builtin_popcount(link_mask(g)); }

#define LINK() do { \
        if (!link_count(G)) return NVML_ERROR_NOT_SUPPORTED; \
        if (link >= link_count(G)) return NVML_ERROR_INVALID_ARGUMENT; \
    } while (0)
IMPL(nvmlDeviceGetNvLinkState, DEV, u32 link, nvmlEnableState_t *active) {
    LINK();
    *active = link_mask(G) >> link & 1 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return OK;
}
IMPL(nvmlDeviceGetNvLinkVersion, DEV, u32 link, u32 *v) { LINK(); *v = 4; return OK; }
IMPL(nvmlDeviceGetNvLinkRemoteDeviceType, DEV, u32 link, nvmlIntNvLinkDeviceType_t *type) {
    LINK();
    *type = NVML_NVLINK_DEVICE_TYPE_SWITCH;
    return OK;
}
IMPL(nvmlDeviceGetNvLinkErrorCounter, DEV, u32 link, nvmlNvLinkErrorCounter_t c, u64 *v) { LINK(); *v = 0; return OK; }

static nvmlReturn_t nvlink_field(u32 g, double t, const nvmlFieldValue_t *f, u64 *v) {
    int rx = f->fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX || f->fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX;
    if (!link_count(g)) return NVML_ERROR_NOT_SUPPORTED;
    if (f->scopeId != NO_ID && f->scopeId >= link_count(g)) return NVML_ERROR_INVALID_ARGUMENT;
    if (f->scopeId != NO_ID && !(link_mask(g) >> f->scopeId & 1)) return NVML_ERROR_NOT_SUPPORTED;
    switch (f->fieldId) {
    case NVML_FI_DEV_NVLINK_GET_SPEED: *v = (u64)real(g, V_nvlink_speed_mb, 26562); return OK;
    case NVML_FI_DEV_NVLINK_GET_STATE: *v = 1; return OK;
    case NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY: case NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY:
    case NVML_FI_DEV_NVLINK_ERROR_DL_CRC: *v = 0; return OK;
    default: *v = counter_bytes(g, rx ? NVLINK_RX : NVLINK_TX, t) / 1024; /* KiB */
    }
    if (f->scopeId != NO_ID && links_active(g)) *v /= links_active(g);
    return OK;
}

/* ------------------------------------------------------------------------ field values */

static nvmlReturn_t override(const struct field_override *o, nvmlFieldValue_t *f) {
    if (o->value.kind == AN_ERROR) return o->value.error;
    f->valueType = (nvmlValueType_t)(o->type >= 0 ? o->type : NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
    if (f->valueType == NVML_VALUE_TYPE_DOUBLE) f->value.dVal = o->value.real;
    else f->value.ullVal = o->value.whole;
    return OK;
}

static nvmlReturn_t pcie_field(u32 g, double t, nvmlFieldValue_t *f) {
    u64 bits = 32; /* as an H200's */
    nvmlReturn_t r = whole(g, V_pcie_counter_bits, 32, &bits);
    if (r != OK || !bits) return r != OK ? r : NVML_ERROR_NOT_SUPPORTED;
    u64 bytes = counter_bytes(g, f->fieldId == NVML_FI_DEV_PCIE_COUNT_RX_BYTES ? PCIE_RX : PCIE_TX, t);
    f->valueType = bits == 64 ? NVML_VALUE_TYPE_UNSIGNED_LONG_LONG : NVML_VALUE_TYPE_UNSIGNED_INT;
    f->value.ullVal = bits == 64 ? bytes : (u32)bytes;
    return OK;
}

static nvmlReturn_t field(u32 g, double t, nvmlFieldValue_t *f) {
    const struct gpu_script *own = scenario()->gpu[g];
    nvmlReturn_t r = OK;
    u64 v = 0;
    f->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    f->value.ullVal = 0;
    for (u32 i = 0; own && i < own->field_count; i++)
        if (own->fields[i].id == f->fieldId && (own->fields[i].scope == NO_ID - 1 || own->fields[i].scope == f->scopeId))
            return override(&own->fields[i], f);
    switch (f->fieldId) {
    case NVML_FI_DEV_ECC_CURRENT: case NVML_FI_DEV_ECC_PENDING: r = whole(g, V_ecc_mode, 1, &v); break;
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL: r = whole(g, V_ecc_corrected_volatile, g == 2 ? 3 : 0, &v); break;
    case NVML_FI_DEV_ECC_SBE_AGG_TOTAL: r = whole(g, V_ecc_corrected_aggregate, g == 2 ? 3 : 0, &v); break;
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL: r = whole(g, V_ecc_uncorrected_volatile, 0, &v); break;
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL: r = whole(g, V_ecc_uncorrected_aggregate, 0, &v); break;
    case NVML_FI_DEV_MEMORY_TEMP: r = whole(g, V_temperature_memory, auto_temp(g, t) + 8, &v); break;
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
        f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        r = thousandths(g, V_energy_joules, auto_energy_mj(g, t), &v); break;
    case NVML_FI_DEV_PCIE_REPLAY_COUNTER: r = whole(g, V_pcie_replays, 0, &v); break;
    case NVML_FI_DEV_REMAPPED_COR: r = whole(g, V_remapped_corrected, g == 2, &v); break;
    case NVML_FI_DEV_REMAPPED_UNC: r = whole(g, V_remapped_uncorrected, 0, &v); break;
    case NVML_FI_DEV_REMAPPED_PENDING: r = whole(g, V_remapped_pending, 0, &v); break;
    case NVML_FI_DEV_REMAPPED_FAILURE: r = whole(g, V_remapped_failure, 0, &v); break;
    case NVML_FI_DEV_POWER_AVERAGE: case NVML_FI_DEV_POWER_INSTANT: {
        int own_number = f->fieldId == NVML_FI_DEV_POWER_AVERAGE ? V_power_average_watts : V_power_instant_watts;
        int number = scripted(g, own_number)->kind == AUTOMATIC ? V_power_watts : own_number;
        if (f->scopeId) return NVML_ERROR_NOT_SUPPORTED; /* the module's and the memory's */
        r = thousandths(g, number, auto_power_mw(g, t), &v); break;
    }
    case NVML_FI_DEV_POWER_MIN_LIMIT: r = thousandths(g, V_power_limit_min_watts, 150000, &v); break;
    case NVML_FI_DEV_POWER_MAX_LIMIT: r = thousandths(g, V_power_limit_max_watts, 600000, &v); break;
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT: r = thousandths(g, V_power_limit_default_watts, 600000, &v); break;
    case NVML_FI_DEV_POWER_CURRENT_LIMIT: case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
        r = thousandths(g, V_power_limit_watts, 600000, &v); break;
    case NVML_FI_DEV_PCIE_COUNT_TX_BYTES: case NVML_FI_DEV_PCIE_COUNT_RX_BYTES: return pcie_field(g, t, f);
    case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: r = whole(g, V_recovery_action, 0, &v); break;
    case NVML_FI_DEV_NVLINK_LINK_COUNT: v = link_count(g); break;
    case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX:
    case NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX: case NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX:
    case NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY: case NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY:
    case NVML_FI_DEV_NVLINK_ERROR_DL_CRC: case NVML_FI_DEV_NVLINK_GET_SPEED: case NVML_FI_DEV_NVLINK_GET_STATE:
        f->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        r = nvlink_field(g, t, f, &v); break;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    f->value.ullVal = v;
    return r;
}
IMPL(nvmlDeviceGetFieldValues, DEV, int n, nvmlFieldValue_t *f) {
    double t = T;
    if (n < 0 || !f) return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < n; i++) {
        f[i].timestamp = (long long)(t * 1e6);
        f[i].latencyUsec = 10;
        char call[24];
        snprintf(call, sizeof call, "field:%u", f[i].fieldId);
        f[i].nvmlReturn = apply_faults(call, 0, (int)G);
        if (f[i].nvmlReturn == OK) f[i].nvmlReturn = field(G, t, &f[i]);
    }
    return OK;
}

/* ----------------------------------------------------------------------------- samples */

IMPL(nvmlDeviceGetSamples, DEV, nvmlSamplingType_t type, u64 last, nvmlValueType_t *vt, u32 *n, nvmlSample_t *s) {
    const u64 period = 166667, now = wall_us() / period, depth = 120;
    if (type > NVML_MEMORY_CLK_SAMPLES) return NVML_ERROR_NOT_SUPPORTED;
    if (vt) *vt = NVML_VALUE_TYPE_UNSIGNED_INT;
    NEED(n);
    if (!s) return *n = depth, OK;
    u64 first = last / period + 1 > now - depth ? last / period + 1 : now - depth + 1;
    u32 k = 0;
    for (u64 i = first; i <= now && k < *n; i++, k++) {
        double t = i * period / 1e6;
        s[k].timeStamp = i * period;
        s[k].sampleValue.ullVal = 0;
        s[k].sampleValue.uiVal = type == NVML_TOTAL_POWER_SAMPLES ? auto_power_mw(G, t)
                               : type == NVML_GPU_UTILIZATION_SAMPLES ? auto_gpu_util(G, t)
                               : type == NVML_MEMORY_UTILIZATION_SAMPLES ? auto_mem_util(G, t)
                               : type == NVML_ENC_UTILIZATION_SAMPLES ? auto_enc_util(G, t)
                               : type == NVML_DEC_UTILIZATION_SAMPLES ? auto_dec_util(G, t)
                               : auto_clock(G, t, type == NVML_PROCESSOR_CLK_SAMPLES ? NVML_CLOCK_SM : NVML_CLOCK_MEM);
    }
    *n = k;
    return k ? OK : NVML_ERROR_NOT_FOUND;
}
