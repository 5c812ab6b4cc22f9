/* The environment, clocks, call counts, and what every exported function does first and last. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "simulated_nvml.h"

struct settings settings;
struct nvmlDevice_st devices[MAX_GPUS], mig_devices[MAX_GPUS][MAX_MIG];
static int init_count;
static char count_path[4096];
static u64 last_flush;

static u64 clock_ns(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}
u64 mono_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
u64 wall_us(void) { return clock_ns(CLOCK_REALTIME) / 1000; }
double wall_s(void) { return clock_ns(CLOCK_REALTIME) / 1e9; }

void sleep_us(long us) {
    struct timespec ts = {us / 1000000, us % 1000000 * 1000};
    if (us <= 0) return;
    while (nanosleep(&ts, &ts) && errno == EINTR) {}
}

void spin_us(long us) { /* as the real driver waits for the GPU: with the CPU */
    for (u64 until = mono_ns() + (us > 0 ? us : 0) * 1000ULL; mono_ns() < until;) {}
}

/* ------------------------------------------------------------------- environment */

static long env_long(const char *name, long fallback, long low, long high) {
    const char *s = getenv(name);
    long v = s && *s ? strtol(s, NULL, 0) : fallback;
    return v < low ? low : v > high ? high : v;
}
static const char *env_text(const char *name, const char *fallback) {
    const char *s = getenv(name);
    return s && *s ? s : fallback;
}

static void set_count_path(void) { /* %p stands for the pid */
    const char *s = getenv("SIMNVML_COUNT"), *p = s ? strstr(s, "%p") : NULL;
    if (p) snprintf(count_path, sizeof count_path, "%.*s%d%s", (int)(p - s), s, getpid(), p + 2);
    else if (s) snprintf(count_path, sizeof count_path, "%s", s);
}
static void after_fork(void) {
    set_count_path();
    memset(call_stats, 0, function_count * sizeof *call_stats);
}

static void flush_counts(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char tmp[sizeof count_path + 8];
    if (!*count_path || pthread_mutex_trylock(&lock)) return;
    snprintf(tmp, sizeof tmp, "%s.tmp", count_path);
    FILE *f = fopen(tmp, "w");
    if (f) {
        /* CLOCK_MONOTONIC seconds of this flush, then: function calls errors seconds-inside */
        fprintf(f, "# pid %d time %.6f\n", getpid(), mono_ns() / 1e9);
        for (int i = 0; i < function_count; i++)
            if (call_stats[i].calls)
                fprintf(f, "%s %llu %llu %.6f\n", function_names[i], call_stats[i].calls, call_stats[i].errors,
                        call_stats[i].ns / 1e9);
        if (!fclose(f)) rename(tmp, count_path);
    }
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void setup(void) {
    settings = (struct settings){
        .gpus = env_long("SIMNVML_GPUS", 8, 0, MAX_GPUS),
        .procs = env_long("SIMNVML_PROCS", 8, 0, MAX_PROCS),
        .latency_us = env_long("SIMNVML_LATENCY_US", 0, 0, 60000000),
        .pcie_us = env_long("SIMNVML_PCIE_US", 20000, 0, 60000000),
        .gpm = env_long("SIMNVML_GPM", 0, 0, 1),
        .beacon = env_long("SIMNVML_BEACON", 0, 0, 1),
        .memory = env_long("SIMNVML_MEM_MIB", 97887, 4096, 1 << 24) * MIB,
        .name = env_text("SIMNVML_NAME", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        .driver = env_text("SIMNVML_DRIVER", "580.126.09"),
        .pids = env_text("SIMNVML_PIDS", NULL),
    };
    for (u32 g = 0; g < MAX_GPUS; g++) {
        devices[g] = (struct nvmlDevice_st){g, -1};
        for (int m = 0; m < MAX_MIG; m++) mig_devices[g][m] = (struct nvmlDevice_st){g, m};
    }
    set_count_path();
    scenario_configure(env_text("SIMNVML_SCENARIO", NULL));
    pthread_atfork(NULL, NULL, after_fork);
    atexit(flush_counts);
}

/* For use inside one process, by tests: another scenario file, as if the library were loaded anew. */
EXPORT void simnvml_configure(const char *scenario_path) {
    forget_inits();
    scenario_configure(scenario_path && *scenario_path ? scenario_path : NULL);
}
/* Read the scenario file now, not within the next 50 ms. */
EXPORT void simnvml_reload(void) { scenario_reload(); }
/* How often a function was called since the library was loaded. */
EXPORT u64 simnvml_calls(const char *function) {
    for (int i = 0; i < function_count; i++)
        if (!strcmp(function, function_names[i])) return __atomic_load_n(&call_stats[i].calls, __ATOMIC_RELAXED);
    return 0;
}

/* ---------------------------------------------------------- called by the wrappers */

static nvmlReturn_t check_device(nvmlDevice_t d, int function) {
    int is_mig = d >= &mig_devices[0][0] && d <= &mig_devices[MAX_GPUS - 1][MAX_MIG - 1];
    if (!is_mig && (d < devices || d >= devices + MAX_GPUS)) return NVML_ERROR_INVALID_ARGUMENT;
    if (!gpu_exists(d->index)) return NVML_ERROR_GPU_IS_LOST;
    if (is_mig && !mig_instance(d->index, d->mig)) return NVML_ERROR_INVALID_ARGUMENT; /* instances changed */
    if (is_mig && !mig_answers(function_names[function])) return NVML_ERROR_NOT_SUPPORTED;
    return OK;
}

nvmlReturn_t enter(struct call *c, int function, int flags, nvmlDevice_t device) {
    c->function = function;
    c->start = *count_path ? mono_ns() : 0;
    __atomic_add_fetch(&call_stats[function].calls, 1, __ATOMIC_RELAXED);
    scenario(); /* a driver loaded anew forgets who had initialized */
    if (!(flags & IS_INIT) && !__atomic_load_n(&init_count, __ATOMIC_RELAXED)) return NVML_ERROR_UNINITIALIZED;
    if (!(flags & ON_DEVICE)) return apply_faults(function_names[function], flags & IS_INIT, -1);
    nvmlReturn_t r = check_device(device, function);
    if (r != OK) return r;
    sleep_us(settings.latency_us);
    return apply_faults(function_names[function], 0, device->index);
}

nvmlReturn_t leave(struct call *c, nvmlReturn_t r) {
    if (r != OK) __atomic_add_fetch(&call_stats[c->function].errors, 1, __ATOMIC_RELAXED);
    if (*count_path) {
        u64 now = mono_ns();
        __atomic_add_fetch(&call_stats[c->function].ns, now - c->start, __ATOMIC_RELAXED);
        if (now - __atomic_load_n(&last_flush, __ATOMIC_RELAXED) > 1000000000) {
            __atomic_store_n(&last_flush, now, __ATOMIC_RELAXED);
            flush_counts();
        }
    }
    return r;
}

/* ------------------------------------------------------------------ init and errors */

void forget_inits(void) { __atomic_store_n(&init_count, 0, __ATOMIC_RELAXED); }
static nvmlReturn_t init(void) { __atomic_add_fetch(&init_count, 1, __ATOMIC_RELAXED); return OK; }
IMPL(nvmlInit, void) { return init(); }
IMPL(nvmlInit_v2, void) { return init(); }
IMPL(nvmlInitWithFlags, u32 flags) { return init(); }
IMPL(nvmlShutdown, void) {
    flush_counts();
    __atomic_sub_fetch(&init_count, 1, __ATOMIC_RELAXED);
    return OK;
}

const char *impl_nvmlErrorString(nvmlReturn_t r) {
    switch (r) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case NVML_ERROR_UNKNOWN: return "Unknown Error";
    default:
        for (int i = 0; error_names[i].name; i++)
            if (error_names[i].code == (int)r) return error_names[i].name;
        return "Unknown Error";
    }
}
