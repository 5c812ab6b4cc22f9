/* Which scenario is in force: the file is parsed anew whenever it changes. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "simulated_nvml.h"

#define KEPT_NS 500000000ULL /* replaced scenarios are freed so much later: readers take no lock */
#define LOOK_NS 50000000

const struct scenario nothing_scripted = {.gpus = -1, .stride = 24, .cuda = 13000};
static struct scenario *const nothing = (struct scenario *)&nothing_scripted; /* never written to */
static struct scenario *current = (struct scenario *)&nothing_scripted, *replaced;
static char path[4096];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static u64 looked_at, driver_loads;
static struct stat seen;

static void free_gpu(struct gpu_script *g) {
    if (!g) return;
    for (int i = 0; i < TEXT_COUNT; i++) free(g->texts[i]);
    for (u32 i = 0; i < g->process_count; i++) free(g->processes[i].holds);
    free(g->processes), free(g->samples), free(g->gpm), free(g->fields), free(g);
}
static void free_scenario(struct scenario *s) {
    if (!s || s == nothing) return;
    for (int i = 0; i < MAX_GPUS; i++) free_gpu(s->gpu[i]);
    free_gpu(s->every), free(s->faults), free(s->events), free(s);
}

/* --------------------------------------------------------------------- which is read */

static void replace(struct scenario *s) { /* under the lock */
    if (s->driver_loads != driver_loads) forget_inits();
    driver_loads = s->driver_loads;
    struct scenario *old = current, **link = &replaced;
    __atomic_store_n(&current, s, __ATOMIC_RELEASE);
    if (old != nothing) old->replaced_at = mono_ns(), old->next = replaced, replaced = old;
    while (*link) { /* newest first */
        struct scenario *one = *link;
        if (mono_ns() - one->replaced_at < KEPT_NS) link = &one->next;
        else *link = one->next, free_scenario(one);
    }
}

static void look(void) { /* under the lock */
    struct stat st;
    __atomic_store_n(&looked_at, mono_ns(), __ATOMIC_RELAXED);
    if (!*path || stat(path, &st)) {
        if (current != nothing) replace(nothing);
        memset(&seen, 0, sizeof seen);
    } else if (st.st_size != seen.st_size || st.st_ino != seen.st_ino ||
               memcmp(&st.st_mtim, &seen.st_mtim, sizeof seen.st_mtim)) {
        FILE *f = fopen(path, "re");
        struct scenario *s = parse_scenario(f);
        if (f) fclose(f);
        if (s) replace(s);
        seen = st;
    }
}

const struct scenario *scenario(void) {
    if (*path && mono_ns() - __atomic_load_n(&looked_at, __ATOMIC_RELAXED) >= LOOK_NS && !pthread_mutex_trylock(&lock)) {
        look();
        pthread_mutex_unlock(&lock);
    }
    return __atomic_load_n(&current, __ATOMIC_ACQUIRE);
}
void scenario_reload(void) {
    pthread_mutex_lock(&lock);
    look();
    pthread_mutex_unlock(&lock);
}
void scenario_configure(const char *new_path) {
    pthread_mutex_lock(&lock);
    snprintf(path, sizeof path, "%s", new_path ? new_path : "");
    memset(&seen, 0, sizeof seen);
    driver_loads = 0;
    look();
    pthread_mutex_unlock(&lock);
}
int scenario_has_file(void) { return *path != 0; }

/* ------------------------------------------------------------------------- its values */

const struct value *scripted(u32 gpu, int number) {
    static const struct value silent;
    const struct scenario *s = scenario();
    const struct gpu_script *own = s->gpu[gpu], *every = s->every;
    if (own && own->numbers[number].kind != AUTOMATIC) return &own->numbers[number];
    return every ? &every->numbers[number] : &silent;
}

const char *scripted_text(u32 gpu, int text, nvmlReturn_t *error) {
    const struct scenario *s = scenario();
    const struct gpu_script *g = s->gpu[gpu] && s->gpu[gpu]->texts[text] ? s->gpu[gpu] : s->every;
    *error = g ? g->text_errors[text] : OK;
    return g ? g->texts[text] : NULL;
}

nvmlReturn_t whole(u32 gpu, int number, u64 automatic, u64 *out) {
    const struct value *v = scripted(gpu, number);
    if (v->kind == AN_ERROR) return v->error;
    *out = v->kind == SCRIPTED ? v->whole : automatic;
    return OK;
}

nvmlReturn_t thousandths(u32 gpu, int number, u64 automatic, u64 *out) {
    const struct value *v = scripted(gpu, number);
    if (v->kind == AN_ERROR) return v->error;
    *out = v->kind == SCRIPTED ? (u64)llround(v->real * 1000) : automatic;
    return OK;
}

double real(u32 gpu, int number, double automatic) {
    const struct value *v = scripted(gpu, number);
    return v->kind == SCRIPTED ? v->real : automatic;
}
