/* Process lists and per-process utilization. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "simulated_nvml.h"

/* ------------------------------------------- processes listed only while something holds */

static int alive(u32 pid) { /* a zombie is not, except a leader whose other threads live on */
    char path[64], buf[1024], state = 'X';
    int threads = 0;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    fclose(f);
    buf[n] = 0;
    char *rest = strrchr(buf, ')');
    if (rest) sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d", &state, &threads);
    return state != 'X' && (state != 'Z' || threads > 1);
}

static int folder_has(const char *folder, const struct stat *want, int *entries) {
    DIR *d = opendir(folder);
    struct stat st;
    int found = 0;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        if (*e->d_name == '.') continue;
        ++*entries;
        found = !fstatat(dirfd(d), e->d_name, &st, 0) && st.st_dev == want->st_dev && st.st_ino == want->st_ino;
    }
    if (d) closedir(d);
    return found;
}
static int held_by_anyone(const char *path) {
    struct stat want;
    if (stat(path, &want)) return 0;
    DIR *proc = opendir("/proc");
    int found = 0;
    for (struct dirent *e; proc && !found && (e = readdir(proc));) {
        char folder[600];
        int entries = 0;
        if (*e->d_name < '1' || *e->d_name > '9') continue;
        snprintf(folder, sizeof folder, "/proc/%s/fd", e->d_name);
        found = folder_has(folder, &want, &entries);
        if (found || entries) continue;
        snprintf(folder, sizeof folder, "/proc/%s/task", e->d_name); /* a zombie leader: its threads have them */
        DIR *tasks = opendir(folder);
        for (struct dirent *t; tasks && !found && (t = readdir(tasks));) {
            snprintf(folder, sizeof folder, "/proc/%.20s/task/%.20s/fd", e->d_name, t->d_name);
            if (*t->d_name != '.') found = folder_has(folder, &want, &entries);
        }
        if (tasks) closedir(tasks);
    }
    if (proc) closedir(proc);
    return found;
}

static void look_who_is_there(void) { /* at most each 100 ms */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static u64 looked_at;
    static const struct scenario *looked_in;
    const struct scenario *s = scenario();
    if (pthread_mutex_trylock(&lock)) return;
    if (s != looked_in || mono_ns() - looked_at >= 100000000) {
        for (u32 g = 0; g < MAX_GPUS; g++)
            for (u32 i = 0; s->gpu[g] && i < s->gpu[g]->process_count; i++) {
                struct process *p = &s->gpu[g]->processes[i];
                if (p->while_alive || p->holds)
                    p->present = (!p->while_alive || alive(p->pid)) && (!p->holds || held_by_anyone(p->holds));
            }
        looked_in = s, looked_at = mono_ns();
    }
    pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------------------- who is listed */

const struct gpu_script *process_script(u32 gpu) {
    const struct gpu_script *g = scenario()->gpu[gpu];
    if (!g || !g->processes_scripted) return NULL;
    look_who_is_there();
    return g;
}

u32 list_processes(u32 gpu, double t, struct listed *out) {
    const struct gpu_script *g = process_script(gpu);
    u32 n = 0;
    for (u32 i = 0; g && i < g->process_count; i++) {
        const struct process *p = &g->processes[i];
        if (p->present) out[n++] = (struct listed){p->pid, p->kinds, p->gi, p->ci, p->memory};
    }
    if (g) return n;
    load_pids();
    for (n = 0; n < auto_process_count(gpu); n++)
        out[n] = (struct listed){auto_process_pid(gpu, n), auto_process_kinds(n), NO_ID, NO_ID,
                                 auto_process_memory(gpu, n, t)};
    return n;
}

u64 memory_of_processes(u32 gpu, double t, u32 gi, u32 ci) {
    static __thread struct listed all[MAX_PROCS];
    u64 sum = 0;
    u32 n = list_processes(gpu, t, all);
    for (u32 i = 0; i < n; i++)
        if (all[i].memory != NO_VALUE && (gi == NO_ID || gi == all[i].gi) && (ci == NO_ID || ci == all[i].ci))
            sum += all[i].memory;
    return sum;
}

static u32 wanted(nvmlDevice_t device, u32 kind, struct listed *out) {
    const struct mig_instance *m = device->mig >= 0 ? mig_instance(G, device->mig) : NULL;
    u32 k = 0, n = list_processes(G, T, out);
    for (u32 i = 0; i < n; i++)
        if (out[i].kinds & kind && (!m || (out[i].gi == m->gi && out[i].ci == m->ci))) out[k++] = out[i];
    return k;
}

/* Entries of 16 bytes (v1), 24 (v2, v3) or 32 (the v3 of drivers 535.43 to 535.86). */
static nvmlReturn_t list(nvmlDevice_t device, u32 kind, u32 *count, void *out, int version) {
    static __thread struct listed found[MAX_PROCS];
    struct entry { u32 pid; u64 memory; u32 gi, ci; u64 protected_memory, more[4]; } entry;
    NEED(count);
    size_t stride = version == 1 ? 16 : version == 3 ? (size_t)scenario()->stride : 24;
    u32 n = wanted(device, kind, found);
    if (*count < n || (n && !out)) {
        *count = n;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (u32 i = 0; i < n; i++) {
        memset(&entry, 0, sizeof entry);
        entry.pid = found[i].pid, entry.memory = found[i].memory, entry.gi = found[i].gi, entry.ci = found[i].ci;
        memcpy((char *)out + i * stride, &entry, stride);
    }
    *count = n;
    return OK;
}
#define LISTS(what, kind) \
    IMPL(nvmlDeviceGet##what##RunningProcesses, DEV, u32 *n, nvmlProcessInfo_v1_t *p) { return list(device, kind, n, p, 1); } \
    IMPL(nvmlDeviceGet##what##RunningProcesses_v2, DEV, u32 *n, nvmlProcessInfo_v2_t *p) { return list(device, kind, n, p, 2); } \
    IMPL(nvmlDeviceGet##what##RunningProcesses_v3, DEV, u32 *n, nvmlProcessInfo_t *p) { return list(device, kind, n, p, 3); }
LISTS(Compute, KIND_C)
LISTS(Graphics, KIND_G)
LISTS(MPSCompute, KIND_M)

IMPL(nvmlDeviceGetRunningProcessDetailList, DEV, nvmlProcessDetailList_t *p) {
    static __thread struct listed found[MAX_PROCS];
    NEED(p);
    if (p->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (p->mode > 2) return NVML_ERROR_INVALID_ARGUMENT;
    u32 n = wanted(device, 1u << p->mode, found), room = p->numProcArrayEntries;
    p->numProcArrayEntries = n;
    if (room < n || (n && !p->procArray)) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (u32 i = 0; i < n; i++)
        p->procArray[i] = (nvmlProcessDetail_v1_t){found[i].pid, found[i].memory, found[i].gi, found[i].ci, 0};
    return OK;
}

/* ------------------------------------------------------------ per-process utilization */

static u32 keep(nvmlProcessUtilizationSample_t *out, u32 room, u32 k, nvmlProcessUtilizationSample_t s) {
    if (k < room) out[k] = s;
    return k + 1;
}

/* One sample for each active process each 1/5 s, newer than `last` (microseconds of the wall clock). */
static u32 samples(u32 g, u64 last, nvmlProcessUtilizationSample_t *out, u32 room) {
    u64 ts = wall_us() / 200000 * 200000;
    const struct gpu_script *script = process_script(g);
    double t = ts / 1e6, weights[MAX_PROCS];
    u32 k = 0;
    if (script) {
        for (u32 i = 0; ts > last && i < script->process_count; i++) {
            const struct process *p = &script->processes[i];
            int any = 0;
            u32 v[UTIL_COUNT];
            for (int u = 0; u < UTIL_COUNT; u++) any |= v[u] = p->util[u] > 0 ? (u32)p->util[u] : 0;
            if (p->present && any)
                k = keep(out, room, k, (nvmlProcessUtilizationSample_t){
                    p->pid, ts, v[UTIL_SM], v[UTIL_MEM], v[UTIL_ENC], v[UTIL_DEC]});
        }
    } else if (ts > last) {
        load_pids();
        double all = auto_process_shares(g, t, weights), gpu = load_of(g, t) * 100;
        u32 memory = auto_mem_util(g, t), encoder = auto_enc_util(g, t), decoder = auto_dec_util(g, t);
        for (u32 i = 0; i < auto_process_count(g); i++) {
            double x = weights[i] / all;
            u32 sm = (u32)(gpu * x + 0.5), mem = (u32)(memory * x + 0.5);
            u32 enc = (u32)(encoder * x + 0.5), dec = (u32)(decoder * x + 0.5);
            if (sm | mem | enc | dec)
                k = keep(out, room, k, (nvmlProcessUtilizationSample_t){auto_process_pid(g, i), ts, sm, mem, enc, dec});
        }
    }
    const struct gpu_script *own = scenario()->gpu[g]; /* garbage goes out as it is */
    for (u32 i = 0; own && i < own->sample_count; i++) k = keep(out, room, k, own->samples[i]);
    return k;
}
static u32 sample_room(u32 g) { /* what a size query answers: the driver's buffer, not the need */
    u32 n = auto_process_count(g);
    return (u32)real(g, V_process_sample_room, n > 100 ? n : 100);
}
IMPL(nvmlDeviceGetProcessUtilization, DEV, nvmlProcessUtilizationSample_t *s, u32 *n, u64 last) {
    static __thread nvmlProcessUtilizationSample_t found[MAX_PROCS];
    NEED(n);
    if (mig_mode(G)) return NVML_ERROR_NOT_SUPPORTED;
    u32 have = samples(G, last, found, MAX_PROCS);
    if (!s || *n < have) {
        *n = sample_room(G) > have || !sample_room(G) ? sample_room(G) : have;
        return *n ? NVML_ERROR_INSUFFICIENT_SIZE : OK;
    }
    memcpy(s, found, have * sizeof *s);
    *n = have;
    return have ? OK : NVML_ERROR_NOT_FOUND;
}
IMPL(nvmlDeviceGetProcessesUtilizationInfo, DEV, nvmlProcessesUtilizationInfo_t *p) {
    static __thread nvmlProcessUtilizationSample_t found[MAX_PROCS];
    NEED(p);
    if (p->version != nvmlProcessesUtilizationInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (mig_mode(G)) return NVML_ERROR_NOT_SUPPORTED;
    u32 have = samples(G, p->lastSeenTimeStamp, found, MAX_PROCS), room = p->processSamplesCount;
    if (!p->procUtilArray || room < have) {
        p->processSamplesCount = sample_room(G) > have ? sample_room(G) : have;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (u32 i = 0; i < have; i++)
        p->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = found[i].timeStamp, .pid = found[i].pid, .smUtil = found[i].smUtil,
            .memUtil = found[i].memUtil, .encUtil = found[i].encUtil, .decUtil = found[i].decUtil};
    p->processSamplesCount = have;
    return have ? OK : NVML_ERROR_NOT_FOUND;
}
