/* GPM metrics (Hopper and later): on by `gpu N gpm on`, by a scripted metric, or by SIMNVML_GPM=1. */
#include <stdlib.h>
#include "simulated_nvml.h"

struct nvmlGpmSample_st { u32 gpu; int gi; u64 at_ns; double t; };

static int supported(u32 g) {
    const struct gpu_script *own = scenario()->gpu[g];
    return (int)real(g, V_gpm, settings.gpm || (own && own->gpm_count));
}
IMPL(nvmlGpmQueryDeviceSupport, DEV, nvmlGpmSupport_t *s) {
    NEED(s);
    s->isSupportedDevice = supported(G);
    return OK;
}
IMPL(nvmlGpmSampleAlloc, nvmlGpmSample_t *s) {
    NEED(s);
    *s = calloc(1, sizeof **s);
    return *s ? OK : NVML_ERROR_MEMORY;
}
IMPL(nvmlGpmSampleFree, nvmlGpmSample_t s) { free(s); return OK; }

static nvmlReturn_t take(u32 g, int gi, nvmlGpmSample_t s) {
    NEED(s);
    if (!supported(g)) return NVML_ERROR_NOT_SUPPORTED;
    *s = (struct nvmlGpmSample_st){.gpu = g, .gi = gi, .at_ns = mono_ns(), .t = T};
    return OK;
}
IMPL(nvmlGpmSampleGet, DEV, nvmlGpmSample_t s) { return take(G, -1, s); }
IMPL(nvmlGpmMigSampleGet, DEV, u32 gi, nvmlGpmSample_t s) {
    for (int i = 0; i < MAX_MIG; i++) {
        const struct mig_instance *m = mig_instance(G, i);
        if (m && m->gi == gi) return take(G, (int)gi, s);
    }
    return NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t automatic(u32 g, double t, u32 metric, double *v) {
    double load = load_of(g, t) * 100;
    switch (metric) {
    case NVML_GPM_METRIC_GRAPHICS_UTIL: *v = load; break;
    case NVML_GPM_METRIC_SM_UTIL: *v = load * 0.9; break;
    case NVML_GPM_METRIC_SM_OCCUPANCY: *v = load * 0.5; break;
    case NVML_GPM_METRIC_ANY_TENSOR_UTIL: *v = load * 0.6; break;
    case NVML_GPM_METRIC_FP32_UTIL: case NVML_GPM_METRIC_FP16_UTIL: *v = load * 0.2; break;
    case NVML_GPM_METRIC_INTEGER_UTIL: *v = load * 0.1; break;
    case NVML_GPM_METRIC_FP64_UTIL: *v = 0; break;
    case NVML_GPM_METRIC_DRAM_BW_UTIL: *v = auto_mem_util(g, t); break;
    case NVML_GPM_METRIC_PCIE_TX_PER_SEC: *v = counter_rate(g, PCIE_TX, t) / MIB; break;
    case NVML_GPM_METRIC_PCIE_RX_PER_SEC: *v = counter_rate(g, PCIE_RX, t) / MIB; break;
    case NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: case NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC:
        if (!links_active(g)) return NVML_ERROR_NOT_SUPPORTED;
        *v = counter_rate(g, metric == NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC ? NVLINK_RX : NVLINK_TX, t) / MIB;
        break;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    return OK;
}

static nvmlReturn_t metric(const struct nvmlGpmSample_st *s, u32 id, double *v) {
    const struct gpu_script *own = scenario()->gpu[s->gpu];
    const struct gpm_value *best = NULL;
    for (u32 i = 0; own && i < own->gpm_count; i++)
        if (own->gpm[i].metric == (int)id && own->gpm[i].gi == s->gi) best = &own->gpm[i];
    if (!best) return automatic(s->gpu, s->t, id, v);
    if (best->value.kind == AN_ERROR) return best->value.error;
    *v = best->value.real;
    return OK;
}
IMPL(nvmlGpmMetricsGet, nvmlGpmMetricsGet_t *m) {
    NEED(m && m->sample1 && m->sample2);
    if (m->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (m->sample2->at_ns <= m->sample1->at_ns || m->sample1->at_ns == 0) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu_error(m->sample2->gpu) != OK) return gpu_error(m->sample2->gpu);
    for (u32 i = 0; i < m->numMetrics && i < NVML_GPM_METRIC_MAX; i++)
        m->metrics[i].nvmlReturn = metric(m->sample2, m->metrics[i].metricId, &m->metrics[i].value);
    return OK;
}
