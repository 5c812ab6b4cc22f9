/* Errors, delays and hangs that the scenario asks for. */
#define _GNU_SOURCE
#include <fnmatch.h>
#include <limits.h>
#include <string.h>
#include "simulated_nvml.h"

#define FIELD "field:" /* "field:82" is the part of nvmlDeviceGetFieldValues that answers for id 82 */

static int fits(const struct fault *f, const char *call, int init, int gpu) {
    if (f->init) {
        if (!init) return 0;
    } else if (f->gpu >= 0 ? f->gpu != gpu : !*f->call) {
        return 0;
    }
    if (call && !strncmp(call, FIELD, strlen(FIELD)) && strncmp(f->call, FIELD, strlen(FIELD))) return 0;
    return !*f->call || (call && !fnmatch(f->call, call, 0));
}

/* "times N" is counted down with each call that it hits. */
static int spent(const struct fault *f) {
    volatile int *times = (volatile int *)&f->times;
    return *times != INT_MAX && __atomic_fetch_sub(times, 1, __ATOMIC_RELAXED) <= 0;
}

nvmlReturn_t apply_faults(const char *call, int init, int gpu) {
    for (;;) {
        const struct scenario *s = scenario();
        nvmlReturn_t r = OK;
        long delay = 0, spin = 0;
        int hang = 0;
        for (u32 i = 0; i < s->fault_count && r == OK; i++) {
            const struct fault *f = &s->faults[i];
            if (!fits(f, call, init, gpu) || spent(f)) continue;
            if (f->action == FAULT_ERROR) r = (nvmlReturn_t)f->value;
            else if (f->action == FAULT_DELAY) delay += f->value;
            else if (f->action == FAULT_SPIN) spin += f->value;
            else hang = 1;
        }
        if (!hang) {
            sleep_us(delay);
            spin_us(spin);
            return r;
        }
        sleep_us(60000); /* until the line is gone from the file */
    }
}

nvmlReturn_t gpu_error(u32 gpu) {
    const struct scenario *s = scenario();
    for (u32 i = 0; i < s->fault_count; i++)
        if (s->faults[i].action == FAULT_ERROR && fits(&s->faults[i], NULL, 0, gpu))
            return (nvmlReturn_t)s->faults[i].value;
    return OK;
}
