/* Memory, utilization, temperature, fans, power, clocks and the PCIe link. */
#include "simulated_nvml.h"

/* ------------------------------------------------------------------------------ memory */

struct memory { u64 total, used, reserved; };

static nvmlReturn_t mig_memory(u32 g, const struct mig_instance *i, struct memory *m) {
    if (i->memory_total.kind == AN_ERROR) return i->memory_total.error;
    if (i->memory_used.kind == AN_ERROR) return i->memory_used.error;
    m->total = i->memory_total.kind == SCRIPTED ? i->memory_total.whole : settings.memory / 7;
    m->used = i->memory_used.kind == SCRIPTED ? i->memory_used.whole : memory_of_processes(g, T, i->gi, NO_ID);
    m->reserved = 0;
    return OK;
}

/* Where the scenario is silent, used is what the listed processes hold and a little more. */
static nvmlReturn_t memory_of(nvmlDevice_t device, struct memory *m) {
    const struct mig_instance *i = device->mig >= 0 ? mig_instance(G, device->mig) : NULL;
    if (i) return mig_memory(G, i, m);
    nvmlReturn_t r = whole(G, V_memory_total, settings.memory, &m->total);
    if (r == OK) r = whole(G, V_memory_reserved, m->total ? 637 * MIB : 0, &m->reserved);
    if (r == OK && scripted(G, V_memory_used)->kind != AUTOMATIC) return whole(G, V_memory_used, 0, &m->used);
    if (r == OK) r = whole(G, V_memory_unattributed, 3 * MIB, &m->used);
    if (r == OK) m->used = m->total ? m->used + memory_of_processes(G, T, NO_ID, NO_ID) : 0;
    return r;
}
static u64 rest(u64 total, u64 taken) { return total > taken ? total - taken : 0; }

IMPL(nvmlDeviceGetMemoryInfo, DEV, nvmlMemory_t *out) { /* v1 counts the reserved part as used */
    struct memory m;
    NEED(out);
    nvmlReturn_t r = memory_of(device, &m);
    if (r == OK) *out = (nvmlMemory_t){m.total, rest(m.total, m.used + m.reserved), m.used + m.reserved};
    return r;
}
IMPL(nvmlDeviceGetMemoryInfo_v2, DEV, nvmlMemory_v2_t *out) {
    struct memory m;
    NEED(out);
    if (out->version != nvmlMemory_v2 && out->version != 2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t r = memory_of(device, &m);
    if (r != OK) return r;
    out->total = m.total, out->reserved = m.reserved, out->used = m.used;
    out->free = rest(m.total, m.reserved + m.used);
    return OK;
}
IMPL(nvmlDeviceGetBAR1MemoryInfo, DEV, nvmlBAR1Memory_t *m) {
    u64 total = 0, used = 0;
    NEED(m);
    nvmlReturn_t r = whole(G, V_bar1_total, 131072 * MIB, &total);
    if (r == OK) r = whole(G, V_bar1_used, 5 * MIB, &used);
    if (r == OK) *m = (nvmlBAR1Memory_t){.bar1Total = total, .bar1Used = used, .bar1Free = rest(total, used)};
    return r;
}

/* ------------------------------------------------------------------------- utilization */

/* A GPU in MIG mode has none, unless a scenario says otherwise. */
static nvmlReturn_t utilization(u32 g, int number, u32 automatic, u32 *out) {
    u64 w = 0;
    if (mig_mode(g) && scripted(g, number)->kind == AUTOMATIC) return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t r = whole(g, number, automatic, &w);
    if (r == OK) *out = (u32)w;
    return r;
}
IMPL(nvmlDeviceGetUtilizationRates, DEV, nvmlUtilization_t *u) {
    double t = T;
    NEED(u);
    nvmlReturn_t r = utilization(G, V_utilization_gpu, auto_gpu_util(G, t), &u->gpu);
    return r == OK ? utilization(G, V_utilization_memory, auto_mem_util(G, t), &u->memory) : r;
}
#define ENGINE(name, number, automatic) \
    IMPL(name, DEV, u32 *v, u32 *period) { \
        double t = T; \
        (void)t; \
        NEED(v && period); \
        *period = 167000; \
        return utilization(G, V_##number, automatic, v); \
    }
ENGINE(nvmlDeviceGetEncoderUtilization, utilization_encoder, auto_enc_util(G, t))
ENGINE(nvmlDeviceGetDecoderUtilization, utilization_decoder, auto_dec_util(G, t))
ENGINE(nvmlDeviceGetJpgUtilization, utilization_jpeg, 0)
ENGINE(nvmlDeviceGetOfaUtilization, utilization_ofa, 0)
IMPL(nvmlDeviceGetEncoderStats, DEV, u32 *n, u32 *fps, u32 *lat) { *n = *fps = *lat = 0; return OK; }
IMPL(nvmlDeviceGetEncoderSessions, DEV, u32 *n, nvmlEncoderSessionInfo_t *s) { *n = 0; return OK; }
IMPL(nvmlDeviceGetFBCStats, DEV, nvmlFBCStats_t *s) { *s = (nvmlFBCStats_t){0}; return OK; }

/* ------------------------------------------------------------------- temperature, fans */

static nvmlReturn_t temperature(u32 g, u64 *w) { return whole(g, V_temperature, auto_temp(g, T), w); }
IMPL(nvmlDeviceGetTemperature, DEV, nvmlTemperatureSensors_t s, u32 *v) {
    u64 w = 0;
    if (!v || s != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = temperature(G, &w);
    if (r == OK) *v = (u32)w;
    return r;
}
IMPL(nvmlDeviceGetTemperatureV, DEV, nvmlTemperature_t *v) {
    u64 w = 0;
    NEED(v);
    if (v->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (v->sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = temperature(G, &w);
    if (r == OK) v->temperature = (int)w;
    return r;
}
IMPL(nvmlDeviceGetTemperatureThreshold, DEV, nvmlTemperatureThresholds_t type, u32 *v) {
    u64 w = 0;
    nvmlReturn_t r;
    NEED(v);
    switch (type) {
    case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: r = whole(G, V_temperature_shutdown, 97, &w); break;
    case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: r = whole(G, V_temperature_slowdown, 94, &w); break;
    case NVML_TEMPERATURE_THRESHOLD_GPU_MAX: r = whole(G, V_temperature_gpu_max, 92, &w); break;
    case NVML_TEMPERATURE_THRESHOLD_MEM_MAX: r = whole(G, V_temperature_memory_max, 105, &w); break;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    if (r == OK) *v = (u32)w;
    return r;
}
IMPL(nvmlDeviceGetMarginTemperature, DEV, nvmlMarginTemperature_t *v) {
    u64 w = 0;
    NEED(v);
    if (v->version != nvmlMarginTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t r = whole(G, V_temperature_margin, (u64)(92 - (int)real(G, V_temperature, auto_temp(G, T))), &w);
    if (r == OK) v->marginTemperature = (int)w;
    return r;
}

static u32 fan_count(u32 g) { return (u32)real(g, V_fans, 2); }
NUMBER(nvmlDeviceGetNumFans, u32, fans, 2)
static nvmlReturn_t fan(u32 g, u32 i, u32 *v) {
    u64 w = 0;
    NEED(v);
    if (!fan_count(g)) return NVML_ERROR_NOT_SUPPORTED;
    if (i >= fan_count(g)) return NVML_ERROR_INVALID_ARGUMENT;
    int own = V_fan_percent_0 + (int)(i < 4 ? i : 3);
    int number = scripted(g, own)->kind == AUTOMATIC ? V_fan_percent : own;
    nvmlReturn_t r = whole(g, number, auto_fan(g, T), &w);
    if (r == OK) *v = (u32)w;
    return r;
}
IMPL(nvmlDeviceGetFanSpeed, DEV, u32 *v) { return fan(G, 0, v); }
IMPL(nvmlDeviceGetFanSpeed_v2, DEV, u32 i, u32 *v) { return fan(G, i, v); }
IMPL(nvmlDeviceGetTargetFanSpeed, DEV, u32 i, u32 *v) { return fan(G, i, v); }
IMPL(nvmlDeviceGetFanSpeedRPM, DEV, nvmlFanSpeedInfo_t *v) {
    u64 w = 0;
    u32 percent = 0;
    NEED(v);
    if (v->version != nvmlFanSpeedInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t r = fan(G, v->fan, &percent);
    if (r == OK) r = whole(G, V_fan_rpm, 900 + percent * 22, &w);
    if (r == OK) v->speed = (u32)w;
    return r;
}
IMPL(nvmlDeviceGetMinMaxFanSpeed, DEV, u32 *low, u32 *high) {
    if (!fan_count(G)) return NVML_ERROR_NOT_SUPPORTED;
    *low = 30, *high = 100;
    return OK;
}

/* -------------------------------------------------------------------------------- power */

#define POWER_LIMIT_MW 600000
#define MILLI(name, type, number, automatic) \
    IMPL(name, DEV, type *v) { \
        u64 w = 0; \
        NEED(v); \
        nvmlReturn_t r = thousandths(G, V_##number, automatic, &w); \
        if (r == OK) *v = (type)w; \
        return r; \
    }
MILLI(nvmlDeviceGetPowerUsage, u32, power_watts, auto_power_mw(G, T))
MILLI(nvmlDeviceGetTotalEnergyConsumption, u64, energy_joules, auto_energy_mj(G, T))
MILLI(nvmlDeviceGetEnforcedPowerLimit, u32, power_limit_watts, POWER_LIMIT_MW)
MILLI(nvmlDeviceGetPowerManagementLimit, u32, power_limit_watts, POWER_LIMIT_MW)
MILLI(nvmlDeviceGetPowerManagementDefaultLimit, u32, power_limit_default_watts, POWER_LIMIT_MW)
FIXED(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
IMPL(nvmlDeviceGetPowerManagementLimitConstraints, DEV, u32 *low, u32 *high) {
    u64 a = 0, b = 0;
    NEED(low && high);
    nvmlReturn_t r = thousandths(G, V_power_limit_min_watts, 150000, &a);
    if (r == OK) r = thousandths(G, V_power_limit_max_watts, POWER_LIMIT_MW, &b);
    *low = (u32)a, *high = (u32)b;
    return r;
}
static nvmlPstates_t automatic_state(u32 g) {
    return load_of(g, T) < 0.01 ? NVML_PSTATE_8 : g % 4 == 1 ? NVML_PSTATE_1 : NVML_PSTATE_0;
}
NUMBER(nvmlDeviceGetPerformanceState, nvmlPstates_t, performance_state, automatic_state(G))
NUMBER(nvmlDeviceGetPowerState, nvmlPstates_t, performance_state, automatic_state(G))
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, event_reasons, auto_reasons(G, T))
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, event_reasons, auto_reasons(G, T))
FIXED(nvmlDeviceGetSupportedClocksEventReasons, u64, nvmlClocksEventReasonAll)
FIXED(nvmlDeviceGetSupportedClocksThrottleReasons, u64, nvmlClocksEventReasonAll)
IMPL(nvmlDeviceGetViolationStatus, DEV, nvmlPerfPolicyType_t p, nvmlViolationTime_t *v) {
    if (p > NVML_PERF_POLICY_THERMAL) return NVML_ERROR_NOT_SUPPORTED;
    v->referenceTime = wall_us(), v->violationTime = p == NVML_PERF_POLICY_POWER ? wall_us() % 1000000000 * 30 : 0;
    return OK;
}

/* ------------------------------------------------------------------------------- clocks */

static nvmlReturn_t clock_value(u32 g, nvmlClockType_t type, int maximum, u32 *v) {
    static const int current[] = {V_clock_graphics, V_clock_sm, V_clock_memory, V_clock_video};
    static const int maxima[] = {V_clock_max_graphics, V_clock_max_sm, V_clock_max_memory, V_clock_max_video};
    static const u32 automatic_maxima[] = {3090, 3090, 14001, 2790};
    u64 w = 0;
    if (!v || type >= NVML_CLOCK_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = maximum ? whole(g, maxima[type], automatic_maxima[type], &w)
                             : whole(g, current[type], auto_clock(g, T, type), &w);
    if (r == OK) *v = (u32)w;
    return r;
}
IMPL(nvmlDeviceGetClockInfo, DEV, nvmlClockType_t type, u32 *v) { return clock_value(G, type, 0, v); }
IMPL(nvmlDeviceGetMaxClockInfo, DEV, nvmlClockType_t type, u32 *v) { return clock_value(G, type, 1, v); }
IMPL(nvmlDeviceGetMaxCustomerBoostClock, DEV, nvmlClockType_t type, u32 *v) { return clock_value(G, type, 1, v); }
IMPL(nvmlDeviceGetClock, DEV, nvmlClockType_t type, nvmlClockId_t id, u32 *v) {
    if (id == NVML_CLOCK_ID_CURRENT) return clock_value(G, type, 0, v);
    if (id == NVML_CLOCK_ID_CUSTOMER_BOOST_MAX) return clock_value(G, type, 1, v);
    return NVML_ERROR_NOT_SUPPORTED;
}

/* --------------------------------------------------------------------------------- PCIe */

NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, u32, pcie_link_gen_max, 5)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, u32, pcie_link_gen_max, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, u32, pcie_link_width_max, 16)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, u32, pcie_link_gen, load_of(G, T) < 0.01 ? 1 : 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, u32, pcie_link_width, 16)
FIXED(nvmlDeviceGetPcieLinkMaxSpeed, u32, NVML_PCIE_LINK_MAX_SPEED_32000MBPS)
FIXED(nvmlDeviceGetPcieSpeed, u32, load_of(G, T) < 0.01 ? 2500 : 32000)
NUMBER(nvmlDeviceGetPcieReplayCounter, u32, pcie_replays, 0)
IMPL(nvmlDeviceGetPcieThroughput, DEV, nvmlPcieUtilCounter_t c, u32 *v) { /* KB/s */
    if (!v || c >= NVML_PCIE_UTIL_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    int which = c == NVML_PCIE_UTIL_RX_BYTES ? PCIE_RX : PCIE_TX;
    const struct value *s = scripted(G, which == PCIE_RX ? V_pcie_rx_rate : V_pcie_tx_rate);
    if (s->kind == AN_ERROR) return s->error;
    sleep_us(settings.pcie_us); /* the real one measures over a window of 20 ms */
    *v = (u32)(counter_rate(G, which, T) / 1024);
    return OK;
}
