/* Xids and other events: `event ID ...` lines of the scenario that appear while a set exists. */
#include <stdlib.h>
#include "simulated_nvml.h"

/* A set hears of the events that are added after it was made: the driver keeps no history. */
struct nvmlEventSet_st { u64 heard; u64 types[MAX_GPUS]; };

static u64 last_event(void) {
    const struct scenario *s = scenario();
    u64 last = 0;
    for (u32 i = 0; i < s->event_count; i++)
        if (s->events[i].id > last) last = s->events[i].id;
    return last;
}

IMPL(nvmlEventSetCreate, nvmlEventSet_t *s) {
    NEED(s);
    *s = calloc(1, sizeof **s);
    if (!*s) return NVML_ERROR_MEMORY;
    (*s)->heard = last_event();
    return OK;
}
IMPL(nvmlEventSetFree, nvmlEventSet_t s) { free(s); return OK; }
FIXED(nvmlDeviceGetSupportedEventTypes, u64,
      nvmlEventTypeXidCriticalError | nvmlEventTypeClock | nvmlEventTypePState | nvmlEventTypeDoubleBitEccError |
      nvmlEventTypeGpuUnavailableError | nvmlEventTypeGpuRecoveryAction)
IMPL(nvmlDeviceRegisterEvents, DEV, u64 types, nvmlEventSet_t s) {
    NEED(s);
    s->types[G] |= types;
    return OK;
}

static int next_event(nvmlEventSet_t set, nvmlEventData_t *d) {
    const struct scenario *s = scenario();
    const struct event *next = NULL;
    for (u32 i = 0; i < s->event_count; i++)
        if (s->events[i].id > set->heard && (!next || s->events[i].id < next->id)) next = &s->events[i];
    if (!next) return 0;
    set->heard = next->id;
    if (next->gpu >= MAX_GPUS || !(set->types[next->gpu] & next->type)) return next_event(set, d);
    *d = (nvmlEventData_t){.device = &devices[next->gpu], .eventType = next->type, .eventData = next->data,
                           .gpuInstanceId = next->gi, .computeInstanceId = next->ci};
    return 1;
}

static nvmlReturn_t wait(nvmlEventSet_t set, nvmlEventData_t *d, u32 ms) {
    u64 until = mono_ns() + ms * 1000000ULL;
    NEED(set && d);
    for (;;) {
        u64 now = mono_ns();
        for (u32 g = 0; g < MAX_GPUS; g++)
            if (set->types[g] && gpu_error(g) == NVML_ERROR_GPU_IS_LOST) return NVML_ERROR_GPU_IS_LOST;
        if (next_event(set, d)) return OK;
        if (now >= until) return NVML_ERROR_TIMEOUT;
        u64 left = (until - now) / 1000;
        sleep_us(!scenario_has_file() || left < 100000 ? (long)left : 100000);
    }
}
IMPL(nvmlEventSetWait, nvmlEventSet_t s, nvmlEventData_t *d, u32 ms) { return wait(s, d, ms); }
IMPL(nvmlEventSetWait_v2, nvmlEventSet_t s, nvmlEventData_t *d, u32 ms) { return wait(s, d, ms); }
