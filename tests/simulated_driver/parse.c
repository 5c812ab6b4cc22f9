/* The scenario's language: README.md describes it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "simulated_nvml.h"

/* ------------------------------------------------------------------------- words */

int error_code(const char *s) {
    static const struct error_name also[] = {
        {"lost", NVML_ERROR_GPU_IS_LOST},
        {"driver_mismatch", NVML_ERROR_LIB_RM_VERSION_MISMATCH},
        {"no_library", NVML_ERROR_LIBRARY_NOT_FOUND},
        {"no_driver", NVML_ERROR_DRIVER_NOT_LOADED},
        {0, 0}};
    char *end;
    long n = strtol(s, &end, 10);
    if (end != s && !*end) return n;
    for (int i = 0; also[i].name; i++)
        if (!strcasecmp(s, also[i].name)) return also[i].code;
    for (int i = 0; error_names[i].name; i++)
        if (!strcasecmp(s, error_names[i].name)) return error_names[i].code;
    return -1;
}

static char *word(char **rest) {
    char *s = *rest;
    while (isspace((unsigned char)*s)) s++;
    if (!*s) return *rest = s, NULL;
    char *end = s;
    while (*end && !isspace((unsigned char)*end)) end++;
    *rest = *end ? end + 1 : end;
    *end = 0;
    return s;
}

static char *trimmed(char *s) { /* in place; \xHH, \n, \t, \e and \\ become what they stand for */
    while (isspace((unsigned char)*s)) s++;
    char *to = s, *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1])) *--end = 0;
    for (char *from = s; *from; to++) {
        if (*from != '\\' || !from[1]) { *to = *from++; continue; }
        unsigned code;
        int used;
        if (sscanf(from, "\\x%2x%n", &code, &used) == 1) *to = (char)code, from += used;
        else {
            *to = from[1] == 'n' ? '\n' : from[1] == 't' ? '\t' : from[1] == 'e' ? 27 : from[1];
            from += 2;
        }
    }
    *to = 0;
    return s;
}

/* "12", "0x10", "12.5GiB", "n/a", "not_supported" or "!not_supported"; 0 when it is none of these. */
static int parse_value(const char *s, struct value *v) {
    static const struct { const char *name; double factor; } units[] = {
        {"KiB", 1024}, {"MiB", MIB}, {"GiB", 1024.0 * MIB}, {"TiB", 1048576.0 * MIB},
        {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"W", 1}, {"%", 1}, {0, 0}};
    char *end;
    *v = (struct value){.kind = SCRIPTED};
    if (!s) return 0;
    if (!strcasecmp(s, "n/a")) return v->whole = NO_VALUE, v->real = (double)NO_VALUE, 1;
    if (!strcasecmp(s, "on") || !strcasecmp(s, "off")) return v->real = v->whole = !strcasecmp(s, "on"), 1;
    v->real = strtod(s, &end);
    if (end == s || isalpha((unsigned char)*s) || *s == '!') { /* "inf" and "nan" are no numbers here */
        int code = error_code(*s == '!' ? s + 1 : s);
        v->kind = AN_ERROR, v->error = (nvmlReturn_t)code;
        return code >= 0;
    }
    char *whole_end;
    v->whole = strtoull(s, &whole_end, 0);
    for (int i = 0; *end && units[i].name; i++)
        if (!strcasecmp(end, units[i].name)) v->real *= units[i].factor, v->whole = llround(v->real), whole_end = end = "";
    if (whole_end != end) v->whole = v->real < 0 ? (u64)(long long)llround(v->real) : (u64)llround(v->real);
    return !*end;
}
static u32 number_of(const char *s) {
    struct value v;
    return parse_value(s, &v) && v.kind == SCRIPTED ? (u32)v.whole : 0;
}

static void *grown(void *items, u32 count, size_t size) { /* with room for one more, cleared */
    if (count & (count - 1)) return items;
    items = realloc(items, (count ? count * 2 : 1) * size);
    if (items) memset((char *)items + count * size, 0, (count ? count : 1) * size);
    return items;
}
#define ADD(items, count) ((items) = grown((items), (count), sizeof *(items)), &(items)[(count)++])

/* ------------------------------------------------------------------- one line each */

static int parse_process(char *rest, struct gpu_script *g) {
    g->processes_scripted = 1;
    char *w = word(&rest);
    if (!w || g->process_count == MAX_PROCS) return 0;
    struct process *p = ADD(g->processes, g->process_count);
    *p = (struct process){.pid = number_of(w), .kinds = KIND_C, .gi = NO_ID, .ci = NO_ID, .memory = NO_VALUE,
                          .util = {-1, -1, -1, -1}, .present = 1};
    while ((w = word(&rest))) {
        static const char *const utils[] = {"sm", "mem", "enc", "dec"};
        if (!strcmp(w, "while-alive")) { p->while_alive = 1; continue; }
        char *arg = word(&rest);
        struct value v;
        if (!arg) return 0;
        if (!strcmp(w, "kind"))
            p->kinds = !!strchr(arg, 'C') * KIND_C | !!strchr(arg, 'G') * KIND_G | !!strchr(arg, 'M') * KIND_M;
        else if (!strcmp(w, "holds")) p->holds = strdup(trimmed(arg));
        else if (!parse_value(arg, &v)) return 0;
        else if (!strcmp(w, "memory")) p->memory = v.kind == SCRIPTED ? v.whole : NO_VALUE;
        else if (!strcmp(w, "gi")) p->gi = (u32)v.whole;
        else if (!strcmp(w, "ci")) p->ci = (u32)v.whole;
        else {
            int i = 0;
            while (i < UTIL_COUNT && strcmp(w, utils[i])) i++;
            if (i == UTIL_COUNT) return 0;
            p->util[i] = (int)v.whole;
        }
    }
    return 1;
}

static int parse_sample(char *rest, struct gpu_script *g) {
    nvmlProcessUtilizationSample_t s = {0};
    u32 repeat = 1;
    for (char *w, *arg; (w = word(&rest));) {
        struct value v;
        if (!(arg = word(&rest)) || !parse_value(arg, &v)) return 0;
        if (!strcmp(w, "pid")) s.pid = v.whole;
        else if (!strcmp(w, "sm")) s.smUtil = v.whole;
        else if (!strcmp(w, "mem")) s.memUtil = v.whole;
        else if (!strcmp(w, "enc")) s.encUtil = v.whole;
        else if (!strcmp(w, "dec")) s.decUtil = v.whole;
        else if (!strcmp(w, "timestamp")) s.timeStamp = v.whole;
        else if (!strcmp(w, "repeat")) repeat = v.whole;
        else return 0;
    }
    while (repeat-- && g->sample_count < MAX_PROCS) *ADD(g->samples, g->sample_count) = s;
    return 1;
}

static int parse_mig(char *rest, struct gpu_script *g) {
    char *w = word(&rest);
    u32 slot = w ? number_of(w) : MAX_MIG;
    if (slot >= MAX_MIG) return 0;
    struct mig_instance *m = &g->mig[slot];
    *m = (struct mig_instance){.exists = 1, .gi = slot + 1};
    strcpy(m->profile, "1g.18gb");
    for (char *arg; (w = word(&rest));) {
        struct value v;
        if (!(arg = word(&rest))) return 0;
        if (!strcmp(w, "profile")) snprintf(m->profile, sizeof m->profile, "%s", arg);
        else if (!strcmp(w, "uuid")) snprintf(m->uuid, sizeof m->uuid, "%s", arg);
        else if (!parse_value(arg, &v)) return 0;
        else if (!strcmp(w, "gi")) m->gi = v.whole;
        else if (!strcmp(w, "ci")) m->ci = v.whole;
        else if (!strcmp(w, "memory_total")) m->memory_total = v;
        else if (!strcmp(w, "memory_used")) m->memory_used = v;
        else return 0;
    }
    return 1;
}

static int parse_gpm(char *rest, struct gpu_script *g) { /* METRIC VALUE [gi N]; on, off */
    char *w = word(&rest), *arg = word(&rest);
    struct value v;
    if (!w) return 0;
    if (!arg) return parse_value(w, &g->numbers[V_gpm]);
    if (!parse_value(arg, &v)) return 0;
    struct gpm_value *m = ADD(g->gpm, g->gpm_count);
    *m = (struct gpm_value){.metric = (int)number_of(w), .gi = -1, .value = v};
    if ((w = word(&rest)) && !strcmp(w, "gi")) m->gi = (int)number_of(word(&rest));
    return 1;
}

static int parse_field(char *rest, struct gpu_script *g) { /* ID VALUE [scope N] [type N] */
    char *w = word(&rest), *arg = word(&rest);
    struct value v;
    if (!w || !parse_value(arg, &v)) return 0;
    struct field_override *f = ADD(g->fields, g->field_count);
    *f = (struct field_override){.id = number_of(w), .scope = NO_ID - 1, .type = -1, .value = v};
    while ((w = word(&rest)) && (arg = word(&rest))) {
        if (!strcmp(w, "scope")) f->scope = !strcmp(arg, "all") ? NO_ID : number_of(arg);
        else if (!strcmp(w, "type")) f->type = (int)number_of(arg);
        else return 0;
    }
    return 1;
}

static const char *const number_names[] = {
#define X(name) #name,
    NUMBERS(X)
#undef X
};
static const char *const text_names[] = {
#define X(name) #name,
    TEXTS(X)
#undef X
};

/* NAME VALUE of one GPU; 0: no such name, -1: a bad value. */
static int parse_quantity(const char *name, char *rest, struct gpu_script *g) {
    if (!strcmp(name, "process")) return parse_process(rest, g) ? 1 : -1;
    if (!strcmp(name, "processes")) return g->processes_scripted = 1;
    if (!strcmp(name, "sample")) return parse_sample(rest, g) ? 1 : -1;
    if (!strcmp(name, "mig")) return parse_mig(rest, g) ? 1 : -1;
    if (!strcmp(name, "gpm")) return parse_gpm(rest, g) ? 1 : -1;
    if (!strcmp(name, "field")) return parse_field(rest, g) ? 1 : -1;
    for (int i = 0; i < NUMBER_COUNT; i++)
        if (!strcmp(name, number_names[i])) return parse_value(word(&rest), &g->numbers[i]) ? 1 : -1;
    for (int i = 0; i < TEXT_COUNT; i++) {
        if (strcmp(name, text_names[i])) continue;
        char *s = trimmed(rest);
        free(g->texts[i]);
        g->texts[i] = strdup(s);
        g->text_errors[i] = *s == '!' && error_code(s + 1) >= 0 ? (nvmlReturn_t)error_code(s + 1) : OK;
        return 1;
    }
    return 0;
}

/* ERROR | delay_us N | delay_ms N | spin_us N | hang, then perhaps "times N" */
static int parse_fault(const char *first, char *rest, struct fault f, struct scenario *s) {
    f.times = INT_MAX;
    for (const char *w = first; w; w = word(&rest)) {
        if (!strcmp(w, "call")) {
            char *name = word(&rest);
            if (!name) return 0;
            snprintf(f.call, sizeof f.call, "%s", name);
        } else if (!strcmp(w, "delay_us") || !strcmp(w, "delay_ms")) {
            f.action = FAULT_DELAY, f.value = (long)number_of(word(&rest)) * (w[6] == 'm' ? 1000 : 1);
        } else if (!strcmp(w, "spin_us")) {
            f.action = FAULT_SPIN, f.value = (long)number_of(word(&rest));
        } else if (!strcmp(w, "hang")) {
            f.action = FAULT_HANG;
        } else if (!strcmp(w, "times")) {
            f.times = (int)number_of(word(&rest));
        } else {
            f.action = FAULT_ERROR, f.value = error_code(w);
            if (f.value < 0) return 0;
        }
    }
    *ADD(s->faults, s->fault_count) = f;
    return 1;
}

static int parse_event(char *rest, struct scenario *s) { /* ID gpu N xid CODE | type BITS [data N] [gi N ci N] */
    struct event e = {.gi = NO_ID, .ci = NO_ID};
    char *w = word(&rest), *arg;
    struct value v;
    if (!parse_value(w, &v)) return 0;
    e.id = v.whole;
    while ((w = word(&rest))) {
        if (!(arg = word(&rest)) || !parse_value(arg, &v)) return 0;
        if (!strcmp(w, "gpu")) e.gpu = v.whole;
        else if (!strcmp(w, "xid")) e.type = nvmlEventTypeXidCriticalError, e.data = v.whole;
        else if (!strcmp(w, "type")) e.type = v.whole;
        else if (!strcmp(w, "data")) e.data = v.whole;
        else if (!strcmp(w, "gi")) e.gi = v.whole;
        else if (!strcmp(w, "ci")) e.ci = v.whole;
        else return 0;
    }
    *ADD(s->events, s->event_count) = e;
    return 1;
}

static int parse_gpu_line(char *rest, struct scenario *s) {
    char *which = word(&rest), *w = word(&rest);
    if (!which || !w) return 0;
    int every = !strcmp(which, "*");
    u32 gpu = every ? 0 : number_of(which);
    if (gpu >= MAX_GPUS) return 0;
    struct gpu_script **g = every ? &s->every : &s->gpu[gpu];
    if (!*g && !(*g = calloc(1, sizeof **g))) return 0;
    int known = parse_quantity(w, rest, *g);
    if (known) return known > 0;
    if (!every) return parse_fault(w, rest, (struct fault){.gpu = (int)gpu}, s);
    return 0;
}

static int parse_line(char *line, struct scenario *s) {
    for (char *c = line; *c; c++)
        if (*c == '#' && (c == line || isspace((unsigned char)c[-1]))) *c = 0;
    char *rest = line, *w = word(&rest);
    if (!w) return 1;
    if (!strcmp(w, "gpu")) return parse_gpu_line(rest, s);
    if (!strcmp(w, "event")) return parse_event(rest, s);
    if (!strcmp(w, "init")) return parse_fault(word(&rest), rest, (struct fault){.gpu = -1, .init = 1}, s);
    if (!strcmp(w, "call")) return parse_fault(w, rest, (struct fault){.gpu = -1}, s);
    if (!strcmp(w, "driver")) return snprintf(s->driver, sizeof s->driver, "%s", trimmed(rest)), 1;
    if (!strcmp(w, "nvml")) return snprintf(s->nvml, sizeof s->nvml, "%s", trimmed(rest)), 1;
    struct value v;
    if (!parse_value(word(&rest), &v) || v.kind != SCRIPTED) return 0;
    if (!strcmp(w, "gpus")) s->gpus = v.whole > MAX_GPUS ? MAX_GPUS : (int)v.whole;
    else if (!strcmp(w, "cuda")) s->cuda = (int)v.whole;
    else if (!strcmp(w, "process_stride")) s->stride = v.whole >= 16 && v.whole <= 64 ? (int)v.whole : 24;
    else if (!strcmp(w, "driver_loads")) s->driver_loads = v.whole;
    else return 0;
    return 1;
}

struct scenario *parse_scenario(FILE *f) {
    struct scenario *s = malloc(sizeof *s);
    char *line = NULL, copy[160];
    size_t room = 0;
    if (!s) return NULL;
    *s = nothing_scripted;
    while (f && getline(&line, &room, f) >= 0) {
        snprintf(copy, sizeof copy, "%s", line);
        copy[strcspn(copy, "\n")] = 0;
        if (!parse_line(line, s)) fprintf(stderr, "simulated driver: not understood in the scenario: %s\n", copy);
    }
    free(line);
    return s;
}
