/* Errors, delays and hangs that the scenario asks for. */
#define _GNU_SOURCE
#include <fnmatch.h>
#include <limits.h>
#include "simulated_nvml.h"

static int fits(const struct fault *f, int function, int init, int gpu) {
    if (f->init) {
        if (!init) return 0;
    } else if (f->gpu >= 0 ? f->gpu != gpu : !*f->call) {
        return 0;
    }
    return !*f->call || (function >= 0 && !fnmatch(f->call, function_names[function], 0));
}

/* "times N" is counted down with each call that it hits. */
static int spent(const struct fault *f) {
    volatile int *times = (volatile int *)&f->times;
    return *times != INT_MAX && __atomic_fetch_sub(times, 1, __ATOMIC_RELAXED) <= 0;
}

nvmlReturn_t apply_faults(int function, int init, int gpu) {
    for (;;) {
        const struct scenario *s = scenario();
        nvmlReturn_t r = OK;
        long delay = 0;
        int hang = 0;
        for (u32 i = 0; i < s->fault_count && r == OK; i++) {
            const struct fault *f = &s->faults[i];
            if (!fits(f, function, init, gpu) || spent(f)) continue;
            if (f->action == FAULT_ERROR) r = (nvmlReturn_t)f->value;
            else if (f->action == FAULT_DELAY) delay += f->value;
            else hang = 1;
        }
        if (!hang) {
            sleep_us(delay);
            return r;
        }
        sleep_us(60000); /* until the line is gone from the file */
    }
}

nvmlReturn_t gpu_error(u32 gpu) {
    const struct scenario *s = scenario();
    for (u32 i = 0; i < s->fault_count; i++)
        if (s->faults[i].action == FAULT_ERROR && fits(&s->faults[i], -1, 0, gpu))
            return (nvmlReturn_t)s->faults[i].value;
    return OK;
}
