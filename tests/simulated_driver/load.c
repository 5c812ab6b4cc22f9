/*
 * Values for what no scenario names. They depend on the GPU's index and the wall clock only, so all
 * programs that look at the same moment see the same machine. By index modulo 4 a GPU trains, follows
 * a wave, works in bursts, idles.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include "simulated_nvml.h"

static double fixed_random(u32 a, u32 b, u64 c) { /* 0..1 for three integers */
    u64 x = (a * 0x9E3779B97F4A7C15ULL) ^ (b * 0xC2B2AE3D27D4EB4FULL) ^ (c * 0x165667B19E3779F9ULL);
    x ^= x >> 31, x *= 0xBF58476D1CE4E5B9ULL, x ^= x >> 27, x *= 0x94D049BB133111EBULL, x ^= x >> 31;
    return (x >> 11) / 9007199254740992.0;
}
static double clamp(double v, double low, double high) { return v < low ? low : v > high ? high : v; }
static u32 percent(double v) { return (u32)(clamp(v, 0, 1) * 100 + 0.5); }

double load_of(u32 g, double t) { /* a new value each 1/6 s, as real counters have */
    u64 step = (u64)(t * 6);
    double s = step / 6.0, n = fixed_random(g, 1, step) - 0.5, v;
    switch (g % 4) {
    case 0: v = (fmod(s + g * 3, 20) < 1.5 ? 0.35 : 0.96) + n * 0.08; break; /* training, with dips */
    case 1: v = 0.5 + 0.38 * sin(s / 9 + g) + n * 0.1; break;                /* a wave */
    case 2: v = fmod(s + g * 5, 15) < 9 ? 0.88 + n * 0.1 : 0.02; break;      /* bursts */
    default: v = fixed_random(g, 2, step / 6) < 0.3 ? 0.04 + n * 0.04 : 0;   /* nearly idle */
    }
    return clamp(v, 0, 1);
}
static double slow_load(u32 g, double t) { /* what heats: the mean of the last seconds */
    return (load_of(g, t) + load_of(g, t - 1) + load_of(g, t - 2) + load_of(g, t - 4)) / 4;
}
u32 auto_gpu_util(u32 g, double t) { return percent(load_of(g, t)); }
u32 auto_mem_util(u32 g, double t) { return percent(load_of(g, t) * (0.4 + 0.2 * fixed_random(g, 3, 0))); }
u32 auto_enc_util(u32 g, double t) { return g % 4 == 1 ? percent(load_of(g, t) * 0.3) : 0; }
u32 auto_dec_util(u32 g, double t) { return g % 4 == 1 ? percent(load_of(g, t) * 0.5) : 0; }
u32 auto_temp(u32 g, double t) { return 33 + g % 3 + (u32)(slow_load(g, t) * 45); }
u32 auto_fan(u32 g, double t) { return 30 + (u32)(slow_load(g, t) * 45); }
u32 auto_power_mw(u32 g, double t) {
    /* Beacon: the watts tell when they were read, in steps of 10 ms, over 5 s. */
    if (settings.beacon) return (100 + mono_ns() / 10000000 % 500) * 1000;
    return 24000 + g * 700 + (u32)(load_of(g, t) * 560000 + fixed_random(g, 4, (u64)(t * 10)) * 4000);
}
u64 auto_energy_mj(u32 g, double t) { /* the running mean's integral is not needed exactly */
    return (u64)(fmod(t, 1e7) * (60000 + 240000 * fixed_random(g, 5, 0))) + auto_power_mw(g, t) / 10;
}
u32 auto_clock(u32 g, double t, nvmlClockType_t type) {
    double load = load_of(g, t);
    u32 sm = load < 0.01 ? 180 : 1900 + (u32)(load * 717);
    return type == NVML_CLOCK_MEM ? load < 0.01 ? 405 : 14001 : type == NVML_CLOCK_VIDEO ? sm * 9 / 10 : sm;
}
static double pcie_mean(u32 g, int rx) { return (0.2 + fixed_random(g, 6, rx)) * (g % 4 == 3 ? 2e5 : 4e9); }
double auto_pcie_rate(u32 g, double t, int rx) { /* bytes per second; its integral is below */
    return pcie_mean(g, rx) * (1 + 0.6 * sin(t / 7 + g + rx));
}
u64 auto_pcie_bytes(u32 g, double t, int rx) {
    t = fmod(t, 1e7);
    return (u64)(pcie_mean(g, rx) * (t - 0.6 * 7 * cos(t / 7 + g + rx) + 4.2));
}
u64 auto_reasons(u32 g, double t) {
    double load = load_of(g, t);
    if (load < 0.01) return nvmlClocksEventReasonGpuIdle;
    return (load > 0.95 ? nvmlClocksEventReasonSwPowerCap : 0) |
           (auto_temp(g, t) >= 77 ? nvmlClocksEventReasonSwThermalSlowdown : 0);
}

/* ---------------------------------------------------------------- automatic processes */

static u32 pids[MAX_GPUS * MAX_PROCS], pid_count;

void load_pids(void) { /* SIMNVML_PIDS: a file, read again when it changes, or the pids themselves */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static u64 looked_at;
    static struct timespec seen;
    struct stat st;
    u64 now = mono_ns();
    if (!settings.pids || (looked_at && now - looked_at < 200000000)) return;
    pthread_mutex_lock(&lock);
    looked_at = now;
    int is_file = !stat(settings.pids, &st);
    if (is_file ? memcmp(&seen, &st.st_mtim, sizeof seen) != 0 : !pid_count) {
        FILE *f = is_file ? fopen(settings.pids, "re") : fmemopen((void *)settings.pids, strlen(settings.pids), "r");
        u32 n = 0;
        while (f && n < MAX_GPUS * MAX_PROCS && fscanf(f, "%u%*[, \t\n]", &pids[n]) >= 1) n++;
        if (f) fclose(f);
        pid_count = n;
        if (is_file) seen = st.st_mtim;
    }
    pthread_mutex_unlock(&lock);
}

u32 auto_process_count(u32 g) {
    u32 each = !settings.gpus ? 0 : pid_count < settings.gpus * settings.procs ? pid_count / settings.gpus : settings.procs;
    return g < settings.gpus ? each : 0;
}
u32 auto_process_pid(u32 g, u32 i) { return pids[g * auto_process_count(g) + i]; }
u32 auto_process_kinds(u32 i) { /* each 16th is in both lists */
    return (i % 8 != 7 ? KIND_C : 0) | (i % 8 == 7 || i % 16 == 6 ? KIND_G : 0);
}
static double weight(u32 g, u32 i, u32 salt) {
    double r = fixed_random(g, i, salt);
    return 0.05 + r * r;
}
static double weight_sum(u32 g, u32 n) { /* kept: lists of many processes should not cost n*n */
    static struct { u32 n; double sum; } kept[MAX_GPUS];
    if (kept[g].n != n) {
        double sum = 0;
        for (u32 k = 0; k < n; k++) sum += weight(g, k, 7);
        kept[g].sum = sum, kept[g].n = n;
    }
    return kept[g].sum;
}
u64 auto_process_memory(u32 g, u32 i, double t) {
    double share = (settings.memory - 2048.0 * MIB) * (0.35 + 0.55 * fixed_random(g, 8, 0));
    double bytes = share * weight(g, i, 7) / weight_sum(g, auto_process_count(g));
    if (i % 4 == 1) bytes *= 1 + 0.04 * sin(t / 3 + i);
    return (u64)(bytes / MIB) * MIB;
}
double auto_process_shares(u32 g, double t, double *weights) { /* some are idle for some seconds */
    double sum = 0;
    u64 era = (u64)(t / 5);
    for (u32 i = 0; i < auto_process_count(g); i++)
        sum += weights[i] = i && fixed_random(g, i, era) < 0.3 ? 0 : weight(g, i, 9);
    return sum;
}
