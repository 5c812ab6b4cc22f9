/*
 * What the files of the simulated driver share.
 *
 *   gen.py       exported wrappers of every function of nvml.h; they call enter() and leave()
 *   machinery.c  environment, clocks, call counts, enter() and leave()
 *   parse.c      the language of the scenario file
 *   scenario.c   which scenario is in force: the file is parsed anew when it changes
 *   faults.c     errors, delays and hangs that a scenario asks for
 *   load.c       values for what no scenario names: moving, deterministic
 *   devices.c    finding GPUs, fixed facts about them
 *   mig.c        MIG instances
 *   values.c     memory, utilization, temperature, power, clocks, PCIe link
 *   counters.c   field values, NVLink, PCIe counters
 *   processes.c  process lists and per-process utilization
 *   events.c     Xids and other events
 *   gpm.c        GPM metrics
 *
 * `impl_NAME` is what the exported NAME answers; functions without one answer
 * NVML_ERROR_NOT_SUPPORTED.
 */
#ifndef SIMULATED_NVML_H
#define SIMULATED_NVML_H
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
#define WEAK __attribute__((weak, visibility("hidden")))

typedef unsigned int u32;
typedef unsigned long long u64;
#define MIB (1024ULL * 1024)
#define MAX_GPUS 64
#define MAX_PROCS 1024 /* per GPU */
#define MAX_MIG 16     /* per GPU */
#define NO_ID 0xffffffffu
#define NO_VALUE 0xffffffffffffffffULL
#define OK NVML_SUCCESS

/* ------------------------------------------------------------ the generated part */

enum { ON_DEVICE = 1, IS_INIT = 2, IS_SHUTDOWN = 4 };
struct call { int function; u64 start; };
struct stat_of_calls { u64 calls, errors, ns; };
struct error_name { const char *name; int code; };

extern const int function_count;
extern const char *const function_names[];
extern const struct error_name error_names[];
extern struct stat_of_calls call_stats[];

nvmlReturn_t enter(struct call *c, int function, int flags, nvmlDevice_t device);
nvmlReturn_t leave(struct call *c, nvmlReturn_t r);

/* ------------------------------------------------------------------- the scenario */

#define NUMBERS(X) \
    X(absent) X(minor_number) X(numa_node) X(compute_major) X(compute_minor) X(architecture) \
    X(compute_mode) X(persistence_mode) X(display_active) X(accounting_mode) \
    X(memory_total) X(memory_used) X(memory_reserved) X(memory_unattributed) X(bar1_total) X(bar1_used) \
    X(utilization_gpu) X(utilization_memory) X(utilization_encoder) X(utilization_decoder) \
    X(utilization_jpeg) X(utilization_ofa) \
    X(temperature) X(temperature_memory) X(temperature_margin) \
    X(temperature_shutdown) X(temperature_slowdown) X(temperature_gpu_max) X(temperature_memory_max) \
    X(fans) X(fan_percent) X(fan_percent_0) X(fan_percent_1) X(fan_percent_2) X(fan_percent_3) X(fan_rpm) \
    X(power_watts) X(power_average_watts) X(power_instant_watts) X(power_limit_watts) \
    X(power_limit_default_watts) X(power_limit_min_watts) X(power_limit_max_watts) X(energy_joules) \
    X(clock_sm) X(clock_graphics) X(clock_memory) X(clock_video) \
    X(clock_max_sm) X(clock_max_graphics) X(clock_max_memory) X(clock_max_video) \
    X(performance_state) X(event_reasons) \
    X(pcie_link_gen) X(pcie_link_width) X(pcie_link_gen_max) X(pcie_link_width_max) X(pcie_replays) \
    X(pcie_tx_rate) X(pcie_rx_rate) X(pcie_counter_bits) \
    X(nvlink_links) X(nvlink_active) X(nvlink_speed_mb) X(nvlink_tx_rate) X(nvlink_rx_rate) \
    X(ecc_mode) X(ecc_corrected_volatile) X(ecc_uncorrected_volatile) \
    X(ecc_corrected_aggregate) X(ecc_uncorrected_aggregate) \
    X(remapped_corrected) X(remapped_uncorrected) X(remapped_pending) X(remapped_failure) X(recovery_action) \
    X(mig_mode) X(mig_mode_pending) X(gpm) X(process_sample_room)
#define TEXTS(X) X(name) X(uuid) X(serial) X(vbios) X(part_number) X(bus_id)

enum {
#define X(name) V_##name,
    NUMBERS(X) NUMBER_COUNT,
#undef X
#define X(name) T_##name,
    T_before_texts = -1,
    TEXTS(X) TEXT_COUNT
#undef X
};

enum value_kind { AUTOMATIC, SCRIPTED, AN_ERROR };
struct value { enum value_kind kind; nvmlReturn_t error; u64 whole; double real; };

enum { KIND_C = 1, KIND_G = 2, KIND_M = 4 };
enum { UTIL_SM, UTIL_MEM, UTIL_ENC, UTIL_DEC, UTIL_COUNT };
struct process {
    u32 pid, kinds, gi, ci;
    u64 memory;                /* bytes, or NO_VALUE */
    int util[UTIL_COUNT];      /* percent; -1: not said */
    int while_alive, present;
    char *holds;               /* a path: listed while any process has it open */
};
struct mig_instance {
    int exists;
    u32 gi, ci;
    char profile[32], uuid[96];
    struct value memory_total, memory_used;
};
struct gpm_value { int metric, gi; struct value value; };
struct field_override { u32 id, scope; int type; struct value value; };

struct gpu_script {
    struct value numbers[NUMBER_COUNT];
    char *texts[TEXT_COUNT];
    nvmlReturn_t text_errors[TEXT_COUNT];
    int processes_scripted; /* else the automatic ones are listed */
    struct process *processes;
    u32 process_count;
    nvmlProcessUtilizationSample_t *samples; /* given out as they are, at each call */
    u32 sample_count;
    struct mig_instance mig[MAX_MIG];
    struct gpm_value *gpm;
    u32 gpm_count;
    struct field_override *fields;
    u32 field_count;
};
struct fault { int gpu, init, action; long value; volatile int times; char call[64]; };
struct event { u64 id, type, data; u32 gpu, gi, ci; };

struct scenario {
    int gpus;   /* how many are counted; -1: as the environment says */
    int stride; /* bytes of an entry of the v3 process lists */
    int cuda;
    u64 driver_loads;
    char driver[80], nvml[80];
    struct gpu_script *gpu[MAX_GPUS], *every; /* NULL: all automatic */
    struct fault *faults;
    u32 fault_count;
    struct event *events;
    u32 event_count;
    struct scenario *next; /* among those replaced */
    u64 replaced_at;
};

/* The scenario as the file has it now (looked at every 50 ms); never NULL. It stays valid for
 * half a second after it was replaced: do not sleep with it. */
const struct scenario *scenario(void);
void scenario_configure(const char *path); /* NULL: none */
void scenario_reload(void);
int scenario_has_file(void);

extern const struct scenario nothing_scripted;
struct scenario *parse_scenario(FILE *f); /* f may be NULL; the result is malloc'ed, or NULL */
int error_code(const char *name);         /* -1: no such name */

const struct value *scripted(u32 gpu, int number); /* kind AUTOMATIC when the scenario is silent */
const char *scripted_text(u32 gpu, int text, nvmlReturn_t *error);
nvmlReturn_t whole(u32 gpu, int number, u64 automatic, u64 *out);
nvmlReturn_t thousandths(u32 gpu, int number, u64 automatic, u64 *out); /* watts -> mW */
double real(u32 gpu, int number, double automatic);                     /* an error counts as automatic */

/* --------------------------------------------------------------- machinery, faults */

struct nvmlDevice_st { u32 index; int mig; }; /* mig: slot, -1 for a whole GPU */
extern struct nvmlDevice_st devices[MAX_GPUS], mig_devices[MAX_GPUS][MAX_MIG];

struct settings {
    u32 gpus, procs;
    long latency_us, pcie_us;
    int gpm, beacon;
    u64 memory;
    const char *name, *driver, *pids;
};
extern struct settings settings;

u64 mono_ns(void);
u64 wall_us(void);
double wall_s(void);
void sleep_us(long us);
void spin_us(long us);
void forget_inits(void);

enum { FAULT_ERROR, FAULT_DELAY, FAULT_SPIN, FAULT_HANG };
/* Waits as the scenario says, then gives its error or OK. call NULL: only faults of a whole GPU. */
nvmlReturn_t apply_faults(const char *call, int init, int gpu);
nvmlReturn_t gpu_error(u32 gpu); /* the error of a whole GPU, without waiting */

/* ------------------------------------------------------- automatic values, processes */

double load_of(u32 gpu, double t); /* 0..1 */
u32 auto_gpu_util(u32 g, double t);
u32 auto_mem_util(u32 g, double t);
u32 auto_enc_util(u32 g, double t);
u32 auto_dec_util(u32 g, double t);
u32 auto_temp(u32 g, double t);
u32 auto_fan(u32 g, double t);
u32 auto_power_mw(u32 g, double t);
u64 auto_energy_mj(u32 g, double t);
u32 auto_clock(u32 g, double t, nvmlClockType_t type);
double auto_pcie_rate(u32 g, double t, int rx);
u64 auto_pcie_bytes(u32 g, double t, int rx);
u64 auto_reasons(u32 g, double t);
u32 auto_process_count(u32 g);
u32 auto_process_pid(u32 g, u32 i);
u32 auto_process_kinds(u32 i);
u64 auto_process_memory(u32 g, u32 i, double t);
double auto_process_shares(u32 g, double t, double *weights); /* their sum */
void load_pids(void);

struct listed { u32 pid, kinds, gi, ci; u64 memory; };
u32 list_processes(u32 gpu, double t, struct listed *out); /* room for MAX_PROCS; the number of entries */
u64 memory_of_processes(u32 gpu, double t, u32 gi, u32 ci); /* NO_ID: any */
const struct gpu_script *process_script(u32 gpu);           /* the one that names processes, or NULL */

/* ----------------------------------------------------------------- devices, MIG, rest */

u32 gpu_count(void);
int gpu_exists(u32 gpu);
nvmlReturn_t text(char *out, u32 room, const char *format, ...) __attribute__((format(printf, 3, 4)));
void bus_id_of(u32 gpu, char *out);
void name_of(u32 gpu, char *out, size_t room);

const struct mig_instance *mig_instance(u32 gpu, int slot); /* NULL: none */
u32 mig_mode(u32 gpu);
int mig_answers(const char *function);

enum { PCIE_TX, PCIE_RX, NVLINK_TX, NVLINK_RX, COUNTERS };
double counter_rate(u32 gpu, int which, double t); /* bytes per second */
u32 links_active(u32 gpu);

#define G (device->index)
#define T wall_s()
#define DEV nvmlDevice_t device
#define IMPL(name, ...) nvmlReturn_t impl_##name(__VA_ARGS__)
#define NEED(p) do { if (!(p)) return NVML_ERROR_INVALID_ARGUMENT; } while (0)
/* One fixed value through one pointer. */
#define FIXED(name, type, expr) IMPL(name, DEV, type *v) { NEED(v); *v = (type)(expr); return OK; }
/* One value that a scenario may set, and what it is when it does not. */
#define NUMBER(name, type, number, automatic) \
    IMPL(name, DEV, type *v) { \
        u64 w = 0; \
        NEED(v); \
        nvmlReturn_t r = whole(G, V_##number, (u64)(automatic), &w); \
        if (r == OK) *v = (type)w; \
        return r; \
    }
#endif
